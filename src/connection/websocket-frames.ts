import { isUtf8 } from "node:buffer";
import { freeCopied } from "../base/free-buffer.ts";
import { type ByteCodec, base64Length } from "./byte-codec.ts";
import { FrameBuffers } from "./frame-buffer-pool.ts";

/**
 * WebSocket frames (RFC 6455), both roles, without extensions.
 *
 * Own rather than a library because output frames are built around their base64 in one piece, input is unmasked by the
 * native codec, and the usual library loads TLS and zlib before the first byte is served.
 */

export type Role = "server" | "client";
export type MessageKind = "text" | "binary";

const Opcode = { continuation: 0, text: 1, binary: 2, close: 8, ping: 9, pong: 10 } as const;

export const CloseCode = {
  normal: 1000,
  protocolError: 1002,
  invalidText: 1007,
  policy: 1008,
  tooBig: 1009,
} as const;

/** A control frame's payload is at most this long. */
const MAX_CONTROL_BYTES = 125;

/** Memory for a frame whose payload is to come; more is taken as it comes. What a head claims costs its sender nothing. */
const FIRST_PAYLOAD_BYTES = 256 * 1024;

/** A message longer than this that has not come whole asks for room: many connections may have one. */
const WORTH_ASKING_BYTES = 64 * 1024;
/** A longer one asks for room among those that are so large that few fit. */
export const LARGE_MESSAGE_BYTES = 2 * 1024 * 1024;

export interface FrameHandler {
  /** A whole message. Its buffer is used again afterwards: what is to stay must be copied. */
  message(payload: Buffer, kind: MessageKind): void;
  /**
   * A message of up to that many bytes has begun; told again when it turns out larger. Whoever has no room for it now stops
   * what feeds this reader.
   */
  begun?(bytes: number): void;
  ping(payload: Buffer): void;
  pong(): void;
  close(code: number | null, reason: string): void;
  /** The peer broke the protocol; nothing more is read. */
  violated(code: number, reason: string): void;
}

interface FrameHead {
  fin: boolean;
  opcode: number;
  masked: boolean;
  maskKey: number;
  payloadBytes: number;
  headBytes: number;
}

interface UnfinishedFrame {
  head: FrameHead;
  /** Large enough for what is here, not always for all of it. */
  payload: Buffer;
  filled: number;
}

function missingBytes({ head, filled }: UnfinishedFrame): number {
  return head.payloadBytes - filled;
}

/** Takes bytes as they come, split anywhere, and gives whole messages. */
export class FrameReader {
  readonly #role: Role;
  readonly #codec: ByteCodec;
  readonly #maxMessageBytes: number;
  readonly #handler: FrameHandler;
  readonly #buffers: FrameBuffers;
  /** Bytes of a frame head that is not whole yet. */
  #pending: Buffer = EMPTY;
  /** The frame whose payload is coming in, and how much of it is here. */
  #frame: UnfinishedFrame | null = null;
  /** A message that comes in fragments: what is here of it, in a buffer that doubles, so that tiny ones cost no object each. */
  #partial: Buffer = EMPTY;
  #partialBytes = 0;
  #inMessage = false;
  #kind: MessageKind = "text";
  #over = false;

  constructor(
    role: Role,
    codec: ByteCodec,
    maxMessageBytes: number,
    handler: FrameHandler,
    buffers = new FrameBuffers(),
  ) {
    this.#buffers = buffers;
    this.#role = role;
    this.#codec = codec;
    this.#maxMessageBytes = maxMessageBytes;
    this.#handler = handler;
  }

  /** "copied" when nothing here looks at the chunk's own memory any more. */
  push(chunk: Buffer): "kept" | "copied" {
    const isWithinFrame = this.#frame !== null && chunk.length <= missingBytes(this.#frame);
    this.#take(chunk);
    return isWithinFrame ? "copied" : "kept";
  }

  #take(chunk: Buffer): void {
    let data = this.#pending.length === 0 ? chunk : Buffer.concat([this.#pending, chunk]);
    this.#pending = EMPTY;
    while (data.length > 0 && !this.#over) {
      if (this.#frame) {
        data = this.#fill(this.#frame, data);
        continue;
      }
      const head = readHead(data);
      if (head === "incomplete") {
        this.#pending = data;
        return;
      }
      const problem = this.#refuse(head);
      if (problem) {
        this.#violated(problem.code, problem.reason);
        return;
      }
      data = data.subarray(head.headBytes);
      if (data.length >= head.payloadBytes) {
        // The whole payload is here already: no copy of its own, only what the mask forces.
        const payload = data.subarray(0, head.payloadBytes);
        data = data.subarray(head.payloadBytes);
        this.#unmask(head, payload);
        this.#frameDone(head, payload);
      } else {
        this.#frame = { head, payload: this.#firstRoom(head), filled: 0 };
      }
    }
  }

  #fill(frame: UnfinishedFrame, data: Buffer): Buffer {
    const { head } = frame;
    const part = data.subarray(0, missingBytes(frame));
    this.#makeRoom(frame, frame.filled + part.length);
    frame.payload.set(part, frame.filled);
    frame.filled += part.length;
    if (frame.filled === head.payloadBytes) {
      this.#frame = null;
      this.#unmask(head, frame.payload);
      this.#frameDone(head, frame.payload);
      this.#giveBack(frame.payload);
    }
    return data.subarray(part.length);
  }

  /** For a large frame that was admitted all of it is taken at once: the system gives the memory as it is filled. */
  #firstRoom({ fin, payloadBytes }: FrameHead): Buffer {
    const isLarge = payloadBytes > LARGE_MESSAGE_BYTES;
    const isWhole = fin && !this.#inMessage;
    const most = isLarge ? this.#maxMessageBytes : LARGE_MESSAGE_BYTES;
    if (payloadBytes > WORTH_ASKING_BYTES) this.#handler.begun?.(isWhole ? payloadBytes : most);
    if (isLarge && this.#handler.begun) return Buffer.allocUnsafeSlow(payloadBytes);
    // A client has one server, whose answers of this size are blocks of files that it asked for.
    const isAsked = this.#role === "client" && !isLarge;
    return this.#buffers.take(isAsked ? payloadBytes : Math.min(payloadBytes, FIRST_PAYLOAD_BYTES));
  }

  /** Memory of a large message is not left to the collector, which may not come for long. */
  #giveBack(payload: Buffer): void {
    if (this.#buffers.isLent(payload)) this.#buffers.give(payload);
    else freeCopied(payload);
  }

  #makeRoom(frame: UnfinishedFrame, bytes: number): void {
    const { head, payload, filled } = frame;
    if (bytes <= payload.length) return;
    frame.payload = this.#buffers.take(Math.min(head.payloadBytes, Math.max(bytes, 2 * payload.length)));
    frame.payload.set(payload.subarray(0, filled));
    this.#buffers.give(payload);
  }

  #unmask(head: FrameHead, payload: Buffer): void {
    if (head.masked && head.maskKey !== 0) this.#codec.unmask(payload, 0, payload.length, head.maskKey);
  }

  #refuse(head: FrameHead): { code: number; reason: string } | null {
    const wrong = (reason: string) => ({ code: CloseCode.protocolError, reason });
    if (head.opcode === -1) return wrong("reserved bits must be zero: no extension was agreed on");
    if (head.masked !== (this.#role === "server")) {
      return wrong(
        this.#role === "server" ? "client frames must be masked" : "server frames must not be masked",
      );
    }
    if (head.opcode >= Opcode.close) {
      if (!head.fin || head.payloadBytes > MAX_CONTROL_BYTES)
        return wrong("a control frame has at most 125 bytes and is not fragmented");
      return head.opcode <= Opcode.pong ? null : wrong(`unknown opcode ${head.opcode}`);
    }
    if (head.opcode > Opcode.binary) return wrong(`unknown opcode ${head.opcode}`);
    if (this.#inMessage !== (head.opcode === Opcode.continuation)) {
      return wrong(this.#inMessage ? "expected a continuation frame" : "unexpected continuation frame");
    }
    if (this.#partialBytes + head.payloadBytes > this.#maxMessageBytes) {
      return { code: CloseCode.tooBig, reason: `message is larger than ${this.#maxMessageBytes} bytes` };
    }
    return null;
  }

  #frameDone(head: FrameHead, payload: Buffer): void {
    switch (head.opcode) {
      case Opcode.ping:
        this.#handler.ping(payload);
        return;
      case Opcode.pong:
        this.#handler.pong();
        return;
      case Opcode.close:
        this.#closeFrame(payload);
        return;
      default:
        this.#dataFrame(head, payload);
    }
  }

  #closeFrame(payload: Buffer): void {
    if (payload.length === 0) {
      this.#over = true;
      this.#handler.close(null, "");
      return;
    }
    const code = payload.length === 1 ? 0 : payload.readUInt16BE(0);
    if (!isCloseCode(code)) {
      this.#violated(
        CloseCode.protocolError,
        "a close frame must be empty, or hold a code that may be sent and then a reason",
      );
    } else if (!isUtf8(payload.subarray(2))) {
      this.#violated(CloseCode.invalidText, "the reason of a close is not UTF-8");
    } else {
      this.#over = true;
      this.#handler.close(code, payload.toString("utf8", 2));
    }
  }

  #dataFrame(head: FrameHead, payload: Buffer): void {
    if (head.opcode !== Opcode.continuation) this.#kind = head.opcode === Opcode.text ? "text" : "binary";
    this.#inMessage = !head.fin;
    if (head.fin && this.#partialBytes === 0) {
      this.#handler.message(payload, this.#kind);
      return;
    }
    this.#append(payload);
    if (!head.fin) return;
    const partial = this.#partial;
    const whole = partial.subarray(0, this.#partialBytes);
    this.#partial = EMPTY;
    this.#partialBytes = 0;
    this.#handler.message(whole, this.#kind);
    this.#giveBack(partial);
  }

  #append(fragment: Buffer): void {
    const bytes = this.#partialBytes + fragment.length;
    const passes = (limit: number) => this.#partialBytes <= limit && bytes > limit;
    if (passes(LARGE_MESSAGE_BYTES)) this.#handler.begun?.(this.#maxMessageBytes);
    else if (passes(WORTH_ASKING_BYTES)) this.#handler.begun?.(LARGE_MESSAGE_BYTES);
    if (bytes > this.#partial.length) {
      const larger = Buffer.allocUnsafe(Math.max(bytes, Math.min(2 * bytes, this.#maxMessageBytes)));
      larger.set(this.#partial.subarray(0, this.#partialBytes));
      this.#giveBack(this.#partial);
      this.#partial = larger;
    }
    this.#partial.set(fragment, this.#partialBytes);
    this.#partialBytes = bytes;
  }

  #violated(code: number, reason: string): void {
    this.#over = true;
    this.#handler.violated(code, reason);
  }
}

const EMPTY = Buffer.alloc(0);

/** Registered codes that may stand in a frame (1004 to 1006 and 1015 never do), and those left to libraries and users. */
function isCloseCode(code: number): boolean {
  if (code >= 3000) return code <= 4999;
  return (code >= 1000 && code <= 1003) || (code >= 1007 && code <= 1014);
}

function readHead(data: Buffer): FrameHead | "incomplete" {
  if (data.length < 2) return "incomplete";
  const first = data[0] ?? 0;
  const second = data[1] ?? 0;
  const masked = (second & 0x80) !== 0;
  const short = second & 0x7f;
  const lengthBytes = short === 126 ? 2 : short === 127 ? 8 : 0;
  const headBytes = 2 + lengthBytes + (masked ? 4 : 0);
  if (data.length < headBytes) return "incomplete";
  const payloadBytes =
    lengthBytes === 0 ? short : lengthBytes === 2 ? data.readUInt16BE(2) : Number(data.readBigUInt64BE(2));
  return {
    fin: (first & 0x80) !== 0,
    opcode: (first & 0x70) !== 0 ? -1 : first & 0x0f,
    masked,
    maskKey: masked ? data.readUInt32BE(2 + lengthBytes) : 0,
    payloadBytes,
    headBytes,
  };
}

/** Builds frames; a client's are masked with a key of its own each. */
export class FrameWriter {
  readonly #role: Role;
  readonly #codec: ByteCodec;
  readonly #randomKey: () => number;
  readonly #buffers: FrameBuffers;

  constructor(role: Role, codec: ByteCodec, buffers = new FrameBuffers(), randomKey = randomMaskKey) {
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

  /** A part of a text message that is sent in several frames. */
  part(payload: Buffer, place: { isFirst: boolean; isLast: boolean }): Buffer {
    const { frame, at } = this.#begin(place.isFirst ? Opcode.text : Opcode.continuation, payload.length);
    if (!place.isLast) frame[0] = (frame[0] ?? 0) & 0x7f;
    frame.set(payload, at);
    return this.#finish(frame, at);
  }

  /** A text frame whose middle is `bytes` as base64. */
  chunk(head: string, bytes: Uint8Array, tail: string): Buffer {
    const headBytes = Buffer.byteLength(head);
    const { frame, at } = this.#begin(Opcode.text, headBytes + base64Length(bytes.length) + tail.length);
    frame.write(head, at);
    const end = at + headBytes + this.#codec.base64Encode(bytes, frame, at + headBytes);
    frame.write(tail, end, "latin1");
    return this.#finish(frame, at);
  }

  ping(): Buffer {
    return this.#control(Opcode.ping, EMPTY);
  }

  pong(payload: Buffer): Buffer {
    return this.#control(Opcode.pong, payload);
  }

  close(code: number, reason: string): Buffer {
    const text = cutToWholeCharacters(Buffer.from(reason), MAX_CONTROL_BYTES - 2);
    const payload = Buffer.alloc(2 + text.length);
    payload.writeUInt16BE(code, 0);
    payload.set(text, 2);
    return this.#control(Opcode.close, payload);
  }

  #control(opcode: number, payload: Buffer): Buffer {
    const { frame, at } = this.#begin(opcode, payload.length);
    frame.set(payload, at);
    return this.#finish(frame, at);
  }

  #begin(opcode: number, payloadBytes: number): { frame: Buffer; at: number } {
    const maskBytes = this.#role === "client" ? 4 : 0;
    const lengthBytes = payloadBytes < 126 ? 0 : payloadBytes < 65536 ? 2 : 8;
    const frame = this.#buffers.take(2 + lengthBytes + maskBytes + payloadBytes);
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
      this.#codec.unmask(frame, at, frame.length - at, key);
    }
    return frame;
  }
}

/** At most `bytes` of a text, without half a character at its end. */
function cutToWholeCharacters(text: Buffer, bytes: number): Buffer {
  let end = Math.min(text.length, bytes);
  while (end > 0 && ((text[end] ?? 0) & 0xc0) === 0x80) end--;
  return text.subarray(0, end);
}

/** Mask keys keep proxies from being confused, not secrets: a cheap generator is enough, a constant is not. */
function randomMaskKey(): number {
  return (Math.random() * 0x1_0000_0000) >>> 0;
}
