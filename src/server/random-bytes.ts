import { closeSync, openSync, readSync } from "node:fs";

/** From the system's generator; read directly, because loading node:crypto takes longer than everything else before the first answer. */
export function randomBytes(length: number): Buffer {
  const bytes = Buffer.alloc(length);
  let source: number;
  try {
    source = openSync("/dev/urandom", "r");
  } catch {
    return process.getBuiltinModule("node:crypto").randomBytes(length);
  }
  try {
    if (readSync(source, bytes) !== length) throw new Error("/dev/urandom gave too few bytes");
  } finally {
    closeSync(source);
  }
  return bytes;
}
