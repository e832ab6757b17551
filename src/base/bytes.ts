/** Concatenates `parts`. Returns a single part itself, without a copy. Uses no Buffer, so that it runs in browsers. */
export function concatBytes(parts: readonly Uint8Array[]): Uint8Array {
  const only = parts[0];
  if (parts.length === 1 && only) return only;
  let length = 0;
  for (const part of parts) length += part.length;
  const whole = new Uint8Array(length);
  let offset = 0;
  for (const part of parts) {
    whole.set(part, offset);
    offset += part.length;
  }
  return whole;
}

/** Returns one character per byte. */
export function latin1(bytes: Uint8Array): string {
  let text = "";
  for (const byte of bytes) text += String.fromCharCode(byte);
  return text;
}
