/** Encodes ASN.1 values in DER, as far as X.509 certificates need it. */

const Tag = {
  ...{ boolean: 0x01, integer: 0x02, bitString: 0x03, octetString: 0x04, objectId: 0x06, utf8String: 0x0c },
  ...{ generalizedTime: 0x18, sequence: 0x30, set: 0x31 },
} as const;

/** Encodes a value with its tag and length. */
export function derValue(tag: number, ...contents: readonly Uint8Array[]): Buffer {
  const content = Buffer.concat(contents);
  return Buffer.concat([Buffer.from([tag]), derLength(content.length), content]);
}

function derLength(length: number): Buffer {
  if (length < 0x80) return Buffer.from([length]);
  const bytes = bigEndian(length);
  return Buffer.from([0x80 | bytes.length, ...bytes]);
}

function bigEndian(value: number): number[] {
  return value < 0x100 ? [value] : [...bigEndian(Math.floor(value / 0x100)), value % 0x100];
}

export const derSequence = (...items: readonly Uint8Array[]) => derValue(Tag.sequence, ...items);
export const derSet = (...items: readonly Uint8Array[]) => derValue(Tag.set, ...items);
export const derBoolean = (value: boolean) => derValue(Tag.boolean, Buffer.from([value ? 0xff : 0]));
export const derOctets = (bytes: Uint8Array) => derValue(Tag.octetString, bytes);
export const derUtf8 = (text: string) => derValue(Tag.utf8String, Buffer.from(text));

/** Encodes an unsigned big-endian integer. */
export function derInteger(bytes: Uint8Array): Buffer {
  const first = bytes.findIndex((byte) => byte !== 0);
  const shortest = first < 0 ? Buffer.from([0]) : Buffer.from(bytes.subarray(first));
  // A set top bit would make the integer negative.
  return (shortest[0] ?? 0) >= 0x80
    ? derValue(Tag.integer, Buffer.from([0]), shortest)
    : derValue(Tag.integer, shortest);
}

/** Encodes bits; `unused` counts the bits at the end that carry no value. */
export const derBits = (bytes: Uint8Array, unused = 0) => derValue(Tag.bitString, Buffer.from([unused]), bytes);

/** Encodes an object identifier such as `2.5.29.17`. */
export function derObjectId(text: string): Buffer {
  const [first = 0, second = 0, ...rest] = text.split(".").map(Number);
  const base128 = (value: number): number[] => {
    const digits = [value & 0x7f];
    for (let left = value >>> 7; left > 0; left >>>= 7) digits.unshift((left & 0x7f) | 0x80);
    return digits;
  };
  return derValue(Tag.objectId, Buffer.from([first * 40 + second, ...rest].flatMap(base128)));
}

/** Encodes a time with whole seconds, which is the only form that X.509 permits. */
export function derTime(time: Date): Buffer {
  const digits = time.toISOString().replace(/\.\d+Z$|[-:T]/g, "");
  // X.509 requires the two-digit year before 2050.
  return time.getUTCFullYear() < 2050
    ? derValue(0x17, Buffer.from(`${digits.slice(2)}Z`))
    : derValue(Tag.generalizedTime, Buffer.from(`${digits}Z`));
}
