import { closeSync, openSync, readSync } from "node:fs";

/** Returns random bytes from /dev/urandom. Loading node:crypto would delay the first response. */
export function randomBytes(length: number): Buffer {
  const bytes = Buffer.alloc(length);
  let source: number | null = null;
  try {
    source = openSync("/dev/urandom", "r");
    if (readSync(source, bytes) === length) return bytes;
  } catch {
    // Not readable, for example in a chroot without /dev.
  } finally {
    if (source !== null) closeSync(source);
  }
  return process.getBuiltinModule("node:crypto").randomBytes(length);
}
