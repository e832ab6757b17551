import { isUtf8 } from "node:buffer";
import type { ByteCodec } from "./byte-codec.ts";
import { FrameBufferPool } from "./frame-buffer-pool.ts";

/**
 * WebSocket frames (RFC 6455) for server and client, without extensions.
 *
 * Not a library, for three reasons: output frames and their base64 are built in one buffer; the native codec unmasks
 * input; and the common library loads TLS and zlib before the first byte is served.
 */

export type EndpointRole = "server" | "client";
export type MessageKind = "text" | "binary";

export const Opcode = { continuation: 0, text: 1, binary: 2, close: 8, ping: 9, pong: 10 } as const;

export const CloseCode = {
  normal: 1000,
  protocolError: 1002,
  invalidText: 1007,
  policy: 1008,
  tooBig: 1009,
  internalError: 1011,
} as const;

/** Maximum payload of a control frame (RFC 6455). */
export const MAX_CONTROL_BYTES = 125;

/** Initial buffer of an incomplete frame, which grows with the payload. A claimed length alone must not cost memory. */
const FIRST_PAYLOAD_BYTES = 256 * 1024;

/** The reader calls `messageStarted` for incomplete messages above this size, because many connections may have one. */
const MIN_RESERVED_BYTES = 64 * 1024;
/** Messages above this size count against the limit of large messages, of which only few fit. */
export const LARGE_MESSAGE_BYTES = 2 * 1024 * 1024;

export interface FrameHandler {
  /** Called with a complete message. The reader reuses the buffer afterwards, unless `retainPayload` is called. */
  message(payload: Buffer, kind: MessageKind): void;
  /**
   * Called when a message of up to `bytes` bytes starts, and again if it turns out larger. A handler without memory for it
   * pauses the source of this reader.
   */
  messageStarted?(bytes: number): void;
  ping(payload: Buffer): void;
  pong(): void;
  close(code: number | null, reason: string): void;
  /** Called on a protocol violation. The reader ignores all further bytes. */
  protocolError(code: number, reason: string): void;
}

interface FrameHeader {
  fin: boolean;
  hasReservedBits: boolean;
  opcode: number;
  masked: boolean;
  maskKey: number;
  payloadBytes: number;
  headBytes: number;
}

interface UnfinishedFrame {
  head: FrameHeader;
  /** Holds the received bytes; may be smaller than the complete payload. */
  payload: Buffer;
  filled: number;
}

function missingBytes({ head, filled }: UnfinishedFrame): number {
  return head.payloadBytes - filled;
}

/** Parses a byte stream, split at any position, into complete messages. */
export class FrameReader {
  readonly #role: EndpointRole;
  readonly #codec: ByteCodec;
  readonly #maxMessageBytes: number;
  readonly #handler: FrameHandler;
  readonly #buffers: FrameBufferPool;
  /** Bytes of an incomplete frame header. */
  #pending: Buffer = EMPTY;
  /** The frame whose payload is incomplete. */
  #frame: UnfinishedFrame | null = null;
  /** Received fragments of a message, in a buffer that doubles, so that tiny fragments need no object each. */
  #partial: Buffer = EMPTY;
  #partialBytes = 0;
  #inMessage = false;
  #kind: MessageKind = "text";
  #hasFailed = false;
  #isRetained = false;

  constructor(
    role: EndpointRole,
    codec: ByteCodec,
    maxMessageBytes: number,
    handler: FrameHandler,
    buffers = new FrameBufferPool(),
  ) {
    this.#buffers = buffers;
    this.#role = role;
    this.#codec = codec;
    this.#maxMessageBytes = maxMessageBytes;
    this.#handler = handler;
  }

  /** Parses the next bytes. Returns "copied" if the reader no longer references the memory of `chunk`. */
  push(chunk: Buffer): "retained" | "copied" {
    const isWithinFrame = this.#frame !== null && chunk.length <= missingBytes(this.#frame);
    this.#parse(chunk);
    return isWithinFrame ? "copied" : "retained";
  }

  /** Leaves the payload of the current message to the handler. */
  retainPayload(): void {
    this.#isRetained = true;
  }

  #release(buffer: Buffer): void {
    if (!this.#isRetained) this.#buffers.release(buffer);
    this.#isRetained = false;
  }

  #parse(chunk: Buffer): void {
    let data = this.#pending.length === 0 ? chunk : Buffer.concat([this.#pending, chunk]);
    this.#pending = EMPTY;
    while (data.length > 0 && !this.#hasFailed) {
      if (this.#frame) {
        data = this.#fill(this.#frame, data);
        continue;
      }
      const head = readHead(data);
      if (head === "incomplete") {
        this.#pending = data;
        return;
      }
      const problem = this.#findViolation(head);
      if (problem) {
        this.#fail(problem.code, problem.reason);
        return;
      }
      data = data.subarray(head.headBytes);
      if (data.length >= head.payloadBytes) {
        // The complete payload is in `data`: unmask it in place, without a copy.
        const payload = data.subarray(0, head.payloadBytes);
        data = data.subarray(head.payloadBytes);
        this.#unmask(head, payload, 0, payload.length);
        this.#frameDone(head, payload);
        this.#isRetained = false;
      } else {
        this.#frame = { head, payload: this.#initialCapacity(head), filled: 0 };
      }
    }
  }

  #fill(frame: UnfinishedFrame, data: Buffer): Buffer {
    const { head } = frame;
    const part = data.subarray(0, missingBytes(frame));
    this.#growBuffer(frame, frame.filled + part.length);
    frame.payload.set(part, frame.filled);
    // Part by part, because a whole large frame takes long.
    this.#unmask(head, frame.payload, frame.filled, part.length);
    frame.filled += part.length;
    if (frame.filled === head.payloadBytes) {
      this.#frame = null;
      this.#frameDone(head, frame.payload);
      this.#release(frame.payload);
    }
    return data.subarray(part.length);
  }

  /** Allocates all of a large, admitted frame at once. The kernel provides the memory only as it is filled. */
  #initialCapacity({ fin, payloadBytes }: FrameHeader): Buffer {
    const isLarge = payloadBytes > LARGE_MESSAGE_BYTES;
    const isWhole = fin && !this.#inMessage;
    const reservedBytes = isLarge ? this.#maxMessageBytes : LARGE_MESSAGE_BYTES;
    if (payloadBytes > MIN_RESERVED_BYTES) this.#handler.messageStarted?.(isWhole ? payloadBytes : reservedBytes);
    if (isLarge && this.#handler.messageStarted) return Buffer.allocUnsafeSlow(payloadBytes);
    // A client trusts its one server: responses of this size are file blocks that it requested.
    const isRequested = this.#role === "client" && !isLarge;
    return this.#buffers.acquire(isRequested ? payloadBytes : Math.min(payloadBytes, FIRST_PAYLOAD_BYTES));
  }

  #growBuffer(frame: UnfinishedFrame, bytes: number): void {
    const { head, payload, filled } = frame;
    if (bytes <= payload.length) return;
    frame.payload = this.#buffers.acquire(Math.min(head.payloadBytes, Math.max(bytes, 2 * payload.length)));
    frame.payload.set(payload.subarray(0, filled));
    this.#buffers.release(payload);
  }

  #unmask({ masked, maskKey }: FrameHeader, payload: Buffer, offset: number, length: number): void {
    if (!masked || maskKey === 0) return;
    // The mask has four bytes; the part begins with the one at its offset.
    const shift = (offset % 4) * 8;
    const key = shift === 0 ? maskKey : ((maskKey << shift) | (maskKey >>> (32 - shift))) >>> 0;
    this.#codec.unmask(payload, offset, length, key);
  }

  #findViolation(head: FrameHeader): { code: number; reason: string } | null {
    const violation = (reason: string) => ({ code: CloseCode.protocolError, reason });
    if (head.hasReservedBits) return violation("reserved bits must be zero: no extension was negotiated");
    if (head.masked !== (this.#role === "server")) {
      return violation(this.#role === "server" ? "client frames must be masked" : "server frames must not be masked");
    }
    if (head.opcode >= Opcode.close) {
      if (!head.fin || head.payloadBytes > MAX_CONTROL_BYTES)
        return violation("a control frame has at most 125 bytes and is not fragmented");
      return head.opcode <= Opcode.pong ? null : violation(`unknown opcode ${head.opcode}`);
    }
    if (head.opcode > Opcode.binary) return violation(`unknown opcode ${head.opcode}`);
    if (this.#inMessage !== (head.opcode === Opcode.continuation)) {
      return violation(this.#inMessage ? "expected a continuation frame" : "unexpected continuation frame");
    }
    if (this.#partialBytes + head.payloadBytes > this.#maxMessageBytes) {
      return { code: CloseCode.tooBig, reason: `message is larger than ${this.#maxMessageBytes} bytes` };
    }
    return null;
  }

  #frameDone(head: FrameHeader, payload: Buffer): void {
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
      this.#hasFailed = true;
      this.#handler.close(null, "");
      return;
    }
    const code = payload.length === 1 ? 0 : payload.readUInt16BE(0);
    if (!isCloseCode(code)) {
      this.#fail(CloseCode.protocolError, "a close frame must be empty or contain a valid code and a reason");
    } else if (!isUtf8(payload.subarray(2))) {
      this.#fail(CloseCode.invalidText, "the close reason is not UTF-8");
    } else {
      this.#hasFailed = true;
      this.#handler.close(code, payload.toString("utf8", 2));
    }
  }

  #dataFrame(head: FrameHeader, payload: Buffer): void {
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
    this.#release(partial);
  }

  #append(fragment: Buffer): void {
    const bytes = this.#partialBytes + fragment.length;
    const crosses = (limit: number) => this.#partialBytes <= limit && bytes > limit;
    if (crosses(LARGE_MESSAGE_BYTES)) this.#handler.messageStarted?.(this.#maxMessageBytes);
    else if (crosses(MIN_RESERVED_BYTES)) this.#handler.messageStarted?.(LARGE_MESSAGE_BYTES);
    if (bytes > this.#partial.length) {
      // The kernel provides the memory only as it is filled, and no copy of a large message is needed.
      const isReserved = bytes > LARGE_MESSAGE_BYTES && this.#handler.messageStarted !== undefined;
      const doubled = Math.min(2 * bytes, this.#maxMessageBytes);
      const larger = Buffer.allocUnsafe(Math.max(bytes, isReserved ? this.#maxMessageBytes : doubled));
      larger.set(this.#partial.subarray(0, this.#partialBytes));
      this.#buffers.release(this.#partial);
      this.#partial = larger;
    }
    this.#partial.set(fragment, this.#partialBytes);
    this.#partialBytes = bytes;
  }

  #fail(code: number, reason: string): void {
    this.#hasFailed = true;
    this.#handler.protocolError(code, reason);
  }
}

export const EMPTY: Buffer = Buffer.alloc(0);

/** Accepts codes for libraries and users, and registered codes except 1004 to 1006 and 1015, which are never sent. */
function isCloseCode(code: number): boolean {
  if (code >= 3000) return code <= 4999;
  return (code >= 1000 && code <= 1003) || (code >= 1007 && code <= 1014);
}

function readHead(data: Buffer): FrameHeader | "incomplete" {
  if (data.length < 2) return "incomplete";
  const first = data[0] ?? 0;
  const second = data[1] ?? 0;
  const masked = (second & 0x80) !== 0;
  const lengthCode = second & 0x7f;
  const lengthBytes = lengthCode === 126 ? 2 : lengthCode === 127 ? 8 : 0;
  const headBytes = 2 + lengthBytes + (masked ? 4 : 0);
  if (data.length < headBytes) return "incomplete";
  const payloadBytes =
    lengthBytes === 0 ? lengthCode : lengthBytes === 2 ? data.readUInt16BE(2) : Number(data.readBigUInt64BE(2));
  return {
    fin: (first & 0x80) !== 0,
    hasReservedBits: (first & 0x70) !== 0,
    opcode: first & 0x0f,
    masked,
    maskKey: masked ? data.readUInt32BE(2 + lengthBytes) : 0,
    payloadBytes,
    headBytes,
  };
}
