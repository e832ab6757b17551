import { concatBytes } from "../bytes.ts";

/** Finds character boundaries in UTF-8 bytes. Invalid UTF-8 has a boundary at every byte. */

/** Decodes UTF-8. Keeps a byte order mark, and replaces invalid bytes by U+FFFD. */
export function decodeUtf8(bytes: Uint8Array): string {
  return new TextDecoder("utf-8", { ignoreBOM: true }).decode(bytes);
}

/** Decodes UTF-8. Keeps a byte order mark. Returns null for invalid bytes. */
export function decodeValidUtf8(bytes: Uint8Array): string | null {
  try {
    return new TextDecoder("utf-8", { fatal: true, ignoreBOM: true }).decode(bytes);
  } catch {
    return null;
  }
}

/** Returns the length of an incomplete character at the end: 0 to 3 bytes. */
export function incompleteTailBytes(bytes: Uint8Array): number {
  for (let back = 1; back <= Math.min(3, bytes.length); back++) {
    const byte = bytes[bytes.length - back] ?? 0;
    if (isContinuation(byte)) continue;
    return sequenceLength(byte) > back ? back : 0;
  }
  return 0;
}

/** Returns the length of a partial character at the start, whose first byte is missing: 0 to 3 bytes. */
export function incompleteHeadBytes(bytes: Uint8Array): number {
  let count = 0;
  while (count < Math.min(3, bytes.length) && isContinuation(bytes[count] ?? 0)) count++;
  return count;
}

/** Splits a byte stream at character boundaries: buffers an incomplete character until its remaining bytes arrive. */
export class Utf8Splitter {
  #incomplete = new Uint8Array(0);

  push(chunk: Uint8Array): Uint8Array {
    const bytes = this.#incomplete.length === 0 ? chunk : concatBytes([this.#incomplete, chunk]);
    const whole = bytes.subarray(0, bytes.length - incompleteTailBytes(bytes));
    // A copy: `slice` of a Buffer is a view of memory that the caller may reuse.
    this.#incomplete = new Uint8Array(bytes.subarray(whole.length));
    return whole;
  }

  /** Returns the remaining bytes at the end of the stream. */
  flush(): Uint8Array {
    const rest = this.#incomplete;
    this.#incomplete = new Uint8Array(0);
    return rest;
  }
}

function isContinuation(byte: number): boolean {
  return (byte & 0xc0) === 0x80;
}

function sequenceLength(lead: number): number {
  if (lead >= 0xf0 && lead < 0xf5) return 4;
  if (lead >= 0xe0 && lead < 0xf0) return 3;
  return lead >= 0xc2 && lead < 0xe0 ? 2 : 1;
}
