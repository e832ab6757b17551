/**
 * Bytes that encode their position: byte `offset` of the stream with this `key`. A receiver detects missing, duplicate and
 * reordered bytes without storing the sent ones.
 */
export function patternBytes(key: number, offset: number, length: number): Uint8Array {
  const bytes = new Uint8Array(length);
  for (let at = 0; at < length; at++) bytes[at] = byteAt(key, offset + at);
  return bytes;
}

/** Returns the position of the first byte that differs from the pattern, or -1. */
export function firstMismatch(key: number, offset: number, bytes: Uint8Array): number {
  for (let at = 0; at < bytes.length; at++) if (bytes[at] !== byteAt(key, offset + at)) return at;
  return -1;
}

function byteAt(key: number, offset: number): number {
  return (key + offset * 31 + (offset >> 8) * 7 + (offset >> 16) * 13) & 255;
}
