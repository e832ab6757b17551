import { BLOCK_LENGTH_BYTES } from "../protocol/block-message.ts";
import { type ByteCodec, base64Length } from "./byte-codec.ts";
import { FrameBufferPool } from "./frame-buffer-pool.ts";
import { FrameOpening } from "./frame-socket.ts";
import { EMPTY, type EndpointRole, MAX_CONTROL_BYTES, Opcode } from "./websocket-frames.ts";

/** Builds frames. Masks each client frame with a new key. */
export class FrameWriter {
  readonly #role: EndpointRole;
  readonly #codec: ByteCodec;
  readonly #randomKey: () => number;
  readonly #buffers: FrameBufferPool;

  constructor(role: EndpointRole, codec: ByteCodec, buffers = new FrameBufferPool(), randomKey = randomMaskKey) {
    this.#role = role;
    this.#buffers = buffers;
    this.#codec = codec;
    this.#randomKey = randomKey;
  }

  text(text: string): Buffer {
    const payloadBytes = Buffer.byteLength(text);
    const { frame, at } = this.#begin(Opcode.text, payloadBytes);
    frame.write(text, at);
    return this.#finish(frame, at);
  }

  /** Builds a frame of `head`, `bytes` as base64 and `tail`: a text message, or a part of one. */
  chunk(head: string, bytes: Uint8Array, tail: string, opening: FrameOpening = FrameOpening.whole): Buffer {
    const headBytes = Buffer.byteLength(head);
    const { frame, at } = this.#begin(Opcode.text, headBytes + base64Length(bytes.length) + tail.length);
    frame.write(head, at);
    frame[0] = opening;
    const end = at + headBytes + this.#codec.base64Encode(bytes, frame, at + headBytes);
    frame.write(tail, end, "latin1");
    return this.#finish(frame, at);
  }

  /** Builds a binary frame of a block message. */
  block(text: string, bytes: Uint8Array): Buffer {
    const { frame, at, bytesAt } = this.#beginBlock(text, bytes.length, bytes.length);
    frame.set(bytes, bytesAt);
    return this.#finish(frame, at);
  }

  /** Builds a block frame without its last `bytes` bytes, which the caller sends. Frames of a client need mask key 0. */
  blockHead(text: string, bytes: number): Buffer {
    const { frame, at } = this.#beginBlock(text, bytes, 0);
    return this.#finish(frame, at);
  }

  #beginBlock(text: string, bytes: number, includedBytes: number): { frame: Buffer; at: number; bytesAt: number } {
    const textBytes = Buffer.byteLength(text);
    const { frame, at } = this.#begin(Opcode.binary, BLOCK_LENGTH_BYTES + textBytes + bytes, bytes - includedBytes);
    frame.writeUInt32BE(textBytes, at);
    frame.write(text, at + BLOCK_LENGTH_BYTES);
    return { frame, at, bytesAt: at + BLOCK_LENGTH_BYTES + textBytes };
  }

  ping(): Buffer {
    return this.#frame(Opcode.ping, EMPTY);
  }

  pong(payload: Buffer): Buffer {
    return this.#frame(Opcode.pong, payload);
  }

  close(code: number, reason: string): Buffer {
    const text = cutToWholeCharacters(Buffer.from(reason), MAX_CONTROL_BYTES - 2);
    const payload = Buffer.alloc(2 + text.length);
    payload.writeUInt16BE(code, 0);
    payload.set(text, 2);
    return this.#frame(Opcode.close, payload);
  }

  #frame(opcode: number, payload: Buffer): Buffer {
    const { frame, at } = this.#begin(opcode, payload.length);
    frame.set(payload, at);
    return this.#finish(frame, at);
  }

  #begin(opcode: number, payloadBytes: number, omittedBytes = 0): { frame: Buffer; at: number } {
    const maskBytes = this.#role === "client" ? 4 : 0;
    const lengthBytes = payloadBytes < 126 ? 0 : payloadBytes < 65536 ? 2 : 8;
    const frame = this.#buffers.acquire(2 + lengthBytes + maskBytes + payloadBytes - omittedBytes);
    frame[0] = 0x80 | opcode;
    const maskBit = maskBytes === 0 ? 0 : 0x80;
    if (lengthBytes === 0) {
      frame[1] = maskBit | payloadBytes;
    } else if (lengthBytes === 2) {
      frame[1] = maskBit | 126;
      frame.writeUInt16BE(payloadBytes, 2);
    } else {
      frame[1] = maskBit | 127;
      frame.writeBigUInt64BE(BigInt(payloadBytes), 2);
    }
    return { frame, at: 2 + lengthBytes + maskBytes };
  }

  #finish(frame: Buffer, at: number): Buffer {
    if (this.#role === "client") {
      const key = this.#randomKey();
      frame.writeUInt32BE(key, at - 4);
      if (key !== 0) this.#codec.unmask(frame, at, frame.length - at, key);
    }
    return frame;
  }
}

/** Truncates UTF-8 text to at most `bytes` bytes without splitting a character. */
function cutToWholeCharacters(text: Buffer, bytes: number): Buffer {
  let end = Math.min(text.length, bytes);
  while (end > 0 && ((text[end] ?? 0) & 0xc0) === 0x80) end--;
  return text.subarray(0, end);
}

/** Returns a mask key. Masking protects proxies, not secrets: a cheap generator suffices, but a constant does not. */
function randomMaskKey(): number {
  return (Math.random() * 0x1_0000_0000) >>> 0;
}
