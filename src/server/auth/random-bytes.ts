import { closeSync, openSync, readSync } from "node:fs";

/**
 * Returns random bytes from /dev/urandom. Loading node:crypto takes longer than everything else before the first
 * response, so it is only the fallback if the read fails.
 */
export function randomBytes(length: number): Buffer {
  return fromSystem(length) ?? process.getBuiltinModule("node:crypto").randomBytes(length);
}

function fromSystem(length: number): Buffer | null {
  const bytes = Buffer.alloc(length);
  let source: number | null = null;
  try {
    source = openSync("/dev/urandom", "r");
    return readSync(source, bytes) === length ? bytes : null;
  } catch {
    return null;
  } finally {
    if (source !== null) closeSync(source);
  }
}
