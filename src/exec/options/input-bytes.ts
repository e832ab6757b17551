import { checkArgument, kind } from "./option-schema.ts";

/** Data that calls accept as bytes. A string is encoded as UTF-8. */
export type InputData = string | ArrayBufferView | ArrayBuffer | SharedArrayBuffer;

/** Validates data without converting it. */
export const inputData = kind("a string, a typed array, a DataView or an ArrayBuffer", isInputData);

/** Throws an `EINVAL` error unless the argument `name` is data. */
export function checkInputData(operation: string, name: string, data: unknown): void {
  checkArgument(operation, name, data, inputData);
}

/** Returns the bytes of valid `data`. Shared memory is copied, because another thread may change it. */
export function toInputBytes(data: InputData): Uint8Array {
  if (typeof data === "string") return new TextEncoder().encode(data);
  const bytes = toView(data);
  return isShared(bytes.buffer) ? bytes.slice() : bytes;
}

function toView(data: ArrayBufferView | ArrayBuffer | SharedArrayBuffer): Uint8Array {
  if (data instanceof Uint8Array) return data;
  return ArrayBuffer.isView(data)
    ? new Uint8Array(data.buffer, data.byteOffset, data.byteLength)
    : new Uint8Array(data);
}

function isInputData(value: unknown): value is InputData {
  return typeof value === "string" || ArrayBuffer.isView(value) || isBuffer(value);
}

/** Accepts buffers of other realms too, such as those of a `node:vm` context. */
function isBuffer(value: unknown): boolean {
  return (
    value instanceof ArrayBuffer || isShared(value) || Object.prototype.toString.call(value) === "[object ArrayBuffer]"
  );
}

/** Browsers define SharedArrayBuffer only for isolated pages. */
function isShared(value: unknown): boolean {
  return typeof SharedArrayBuffer !== "undefined" && value instanceof SharedArrayBuffer;
}
