/** Constant of RFC 6455, by which the server proves that it supports WebSocket. */
const HANDSHAKE_GUID = "258EAFA5-E914-47DA-95CA-C5AB0DC85B11";

/** Returns the `Sec-WebSocket-Accept` value for a `Sec-WebSocket-Key`. */
export function websocketAcceptKey(key: string): string {
  return sha1(Buffer.from(key + HANDSHAKE_GUID, "latin1")).toString("base64");
}

/**
 * Returns the SHA-1 digest, which the handshake uses as a checksum, not for security. Implemented here, because loading
 * node:crypto (8 ms) takes longer than all other work before the first response.
 */
export function sha1(message: Buffer): Buffer {
  const blocks = Math.ceil((message.length + 9) / 64);
  const padded = Buffer.alloc(blocks * 64);
  padded.set(message);
  padded[message.length] = 0x80;
  padded.writeBigUInt64BE(BigInt(message.length) * 8n, padded.length - 8);
  const state = new Uint32Array([0x67452301, 0xefcdab89, 0x98badcfe, 0x10325476, 0xc3d2e1f0]);
  const words = new Uint32Array(80);
  for (let at = 0; at < padded.length; at += 64) {
    for (let i = 0; i < 16; i++) words[i] = padded.readUInt32BE(at + i * 4);
    for (let i = 16; i < 80; i++)
      words[i] = rotate(word(words, i - 3) ^ word(words, i - 8) ^ word(words, i - 14) ^ word(words, i - 16), 1);
    mix(state, words);
  }
  const digest = Buffer.alloc(20);
  for (const [i, value] of state.entries()) digest.writeUInt32BE(value, i * 4);
  return digest;
}

function mix(state: Uint32Array, words: Uint32Array): void {
  let [a = 0, b = 0, c = 0, d = 0, e = 0] = state;
  for (let i = 0; i < 80; i++) {
    const [f, k] =
      i < 20
        ? [(b & c) | (~b & d), 0x5a827999]
        : i < 40
          ? [b ^ c ^ d, 0x6ed9eba1]
          : i < 60
            ? [(b & c) | (b & d) | (c & d), 0x8f1bbcdc]
            : [b ^ c ^ d, 0xca62c1d6];
    const next = (rotate(a, 5) + f + e + k + word(words, i)) >>> 0;
    e = d;
    d = c;
    c = rotate(b, 30) >>> 0;
    b = a;
    a = next;
  }
  for (const [i, value] of [a, b, c, d, e].entries()) state[i] = word(state, i) + value;
}

const word = (words: Uint32Array, i: number) => words[i] ?? 0;
const rotate = (value: number, bits: number) => (value << bits) | (value >>> (32 - bits));
