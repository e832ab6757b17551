/** Finds the ends of escape sequences in output, as terminals parse them. */

export const ESC = 0x1b;
export const BEL = 0x07;

/** Maximum length of an incomplete sequence. A longer one, such as an image, is cut. */
const MAX_SEQUENCE_BYTES = 64 * 1024;

/** Returns the end of the sequence that starts with the escape character at `at`, or null if it is incomplete. */
export function sequenceEnd(bytes: Uint8Array, at: number): number | null {
  switch (bytes[at + 1]) {
    case undefined:
      return null;
    case 0x5b: // [
      return controlEnd(bytes, at + 2);
    case 0x5d: // ]
      return stringEnd(
        bytes,
        scanUntil(bytes, at + 2, (byte) => byte === BEL),
      );
    case 0x50: // P
    case 0x58: // X
    case 0x5e: // ^
    case 0x5f: // _
      return stringEnd(
        bytes,
        scanUntil(bytes, at + 2, () => false),
      );
    default:
      return scanUntil(bytes, at + 1, (byte) => byte < 0x20 || byte > 0x2f);
  }
}

/** Returns the end of a sequence that ends with a final byte, or before another escape character. */
function scanUntil(bytes: Uint8Array, from: number, isFinal: (byte: number) => boolean): number | null {
  for (let at = from; ; at++) {
    const byte = bytes[at];
    if (byte === undefined) return null;
    if (byte === ESC) return at;
    // CAN and SUB cancel a sequence.
    if (byte === 0x18 || byte === 0x1a || isFinal(byte)) return at + 1;
  }
}

/** Includes the terminator `ESC \`, because a terminal acts on the string when the escape character arrives. */
function stringEnd(bytes: Uint8Array, end: number | null): number | null {
  if (end === null || bytes[end] !== ESC) return end;
  if (end + 1 === bytes.length) return null;
  return bytes[end + 1] === 0x5c ? end + 2 : end;
}

/** Returns the end of a control sequence. Most sequences of a program are control sequences, so this is a plain loop. */
function controlEnd(bytes: Uint8Array, from: number): number | null {
  for (let at = from; ; at++) {
    const byte = bytes[at];
    if (byte === undefined) return null;
    if (byte >= 0x40 && byte !== 0x7f) return at + 1;
    if (byte === ESC) return at;
    // CAN and SUB cancel a sequence. A terminal executes the other control characters, and ignores DEL.
    if (byte === 0x18 || byte === 0x1a) return at + 1;
  }
}

/** Returns where an incomplete sequence or character at the end of the bytes starts; their length if there is none. */
export function incompleteFrom(bytes: Uint8Array): number {
  for (let at = bytes.indexOf(ESC); at >= 0; ) {
    const end = sequenceEnd(bytes, at);
    if (end === null) return bytes.length - at > MAX_SEQUENCE_BYTES ? bytes.length : at;
    at = bytes.indexOf(ESC, end);
  }
  return incompleteCharacterFrom(bytes);
}

/** Returns where an incomplete UTF-8 character at the end starts; the length of the bytes if there is none. */
export function incompleteCharacterFrom(bytes: Uint8Array): number {
  for (let back = 1; back <= Math.min(3, bytes.length); back++) {
    const byte = bytes[bytes.length - back] ?? 0;
    if (byte < 0x80) break;
    if (byte < 0xc0) continue;
    const length = byte >= 0xf0 ? 4 : byte >= 0xe0 ? 3 : 2;
    return length > back ? bytes.length - back : bytes.length;
  }
  return bytes.length;
}
