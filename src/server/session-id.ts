import { closeSync, openSync, readSync } from "node:fs";

/**
 * A random UUID (version 4). Whoever knows a session's id can take it over, so it comes from the system's generator; read
 * directly, because loading node:crypto takes longer than everything else before the first answer.
 */
export function newSessionId(): string {
  const bytes = randomBytes(16);
  bytes[6] = ((bytes[6] ?? 0) & 0x0f) | 0x40;
  bytes[8] = ((bytes[8] ?? 0) & 0x3f) | 0x80;
  const hex = bytes.toString("hex");
  return [hex.slice(0, 8), hex.slice(8, 12), hex.slice(12, 16), hex.slice(16, 20), hex.slice(20)].join("-");
}

function randomBytes(length: number): Buffer {
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
