import { constants } from "node:os";
import { ERRNO_MESSAGES } from "../base/errno-messages.ts";
import { getErrorCode } from "../base/error-code.ts";
import { ErrorCode, RequestError } from "../protocol/errors.ts";

/** Returns the wire protocol's text of a system error: `No such file or directory (os error 2)` for `ENOENT`. */
export function osErrorMessage(errnoName: string): string {
  const number = errnoNumbers.get(errnoName);
  const text = ERRNO_MESSAGES[errnoName] ?? errnoName;
  return number === undefined ? text : `${text} (os error ${number})`;
}

/** Converts a system error to a `RequestError`; returns any other error unchanged. */
export function osRequestError(error: unknown): unknown {
  const name = errnoNameOf(error);
  if (name === null) return error;
  return new RequestError(toRpcCode(name), osErrorMessage(name), { cause: error });
}

/** Returns the errno name of a system error; null for any other error. */
export function errnoNameOf(error: unknown): string | null {
  const code = getErrorCode(error);
  return code !== null && errnoNumbers.has(code) ? code : null;
}

/** Runs file system calls and converts their system errors to `RequestError`s. */
export async function withOsErrors<T>(work: () => Promise<T>): Promise<T> {
  try {
    return await work();
  } catch (error) {
    throw osRequestError(error);
  }
}

function toRpcCode(name: string): number {
  if (name === "ENOENT") return ErrorCode.notFound;
  if (name === "EACCES" || name === "EPERM" || name === "EINVAL") return ErrorCode.invalidRequest;
  return ErrorCode.internal;
}

const errnoNumbers: ReadonlyMap<string, number> = new Map(Object.entries(constants.errno));
