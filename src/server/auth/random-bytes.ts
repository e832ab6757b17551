import { closeSync, openSync, readSync } from "node:fs";

/** Returns random bytes from /dev/urandom. Loading node:crypto would delay the first response. */
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
