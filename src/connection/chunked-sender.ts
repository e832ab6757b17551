import { type ByteCodec, base64Length } from "./byte-codec.ts";
import type { ChunkedMessage } from "./connection.ts";

/** Bytes per part before base64. A multiple of three, so that the encoded parts concatenate without padding. */
const PART_BYTES = 240 * 1024;
/** Bytes of a dropped message that are released at once. Takes about two milliseconds. */
const RELEASE_BYTES = 8 * 1024 * 1024;
/** Encoding pauses while at least this many bytes are queued. */
const PARTS_AHEAD_BYTES = 512 * 1024;

/** Destination of the parts. */
export interface ChunkSink {
  readonly queuedBytes: number;
  sendChunk(part: Buffer, position: { isFirst: boolean; isLast: boolean }): void;
  /** Called with `true` when a chunked message starts, `false` when it ends. No other message may be sent between. */
  setPaused(isPaused: boolean): void;
}

type Current = ChunkedMessage & { at: number; sent: () => void };
type Waiting = { bytes: number; send: () => void };

/**
 * Sends long messages in parts and keeps the order of all messages. It encodes each part only when the queue has
 * capacity. A message of hundreds of megabytes is therefore never copied as a whole and does not block other connections.
 */
export class ChunkedSender {
  readonly #sink: ChunkSink;
  readonly #codec: ByteCodec;
  #current: Current | null = null;
  #waiting: Waiting[] = [];
  #waitingBytes = 0;

  constructor(sink: ChunkSink, codec: ByteCodec) {
    this.#sink = sink;
    this.#codec = codec;
  }

  /** Whether a chunked message is being sent. Other messages must then be enqueued. */
  get isBusy(): boolean {
    return this.#current !== null;
  }

  /** Bytes of messages that wait for the current chunked message. */
  get waitingBytes(): number {
    return this.#waitingBytes;
  }

  enqueue(bytes: number, send: () => void): void {
    this.#waiting.push({ bytes, send });
    this.#waitingBytes += bytes;
  }

  /** Resolves when the sink has all parts, or when the connection ends. */
  send(message: ChunkedMessage): Promise<void> {
    return new Promise((resolve) => {
      const begin = () => {
        this.#current = { ...message, at: 0, sent: resolve };
        this.#sink.setPaused(true);
        this.#sink.sendChunk(Buffer.from(message.head), { isFirst: true, isLast: false });
      };
      if (this.#current) {
        this.enqueue(message.head.length, begin);
        return;
      }
      begin();
      this.sendNext();
    });
  }

  /** Sends parts until the queue is full. Called when the queue drains. */
  sendNext(): void {
    while (this.#current && this.#sink.queuedBytes < PARTS_AHEAD_BYTES) this.#sendChunk(this.#current);
  }

  /** Drops all messages. Called when the connection ends. */
  discard(): void {
    this.#drop();
    // Resolves each waiting sender, although nothing is sent.
    for (const { send } of this.#waiting.splice(0)) {
      send();
      this.#drop();
    }
    this.#waitingBytes = 0;
  }

  #drop(): void {
    const dropped = this.#current;
    this.#current = null;
    if (dropped) void this.#release(dropped).then(dropped.sent);
  }

  async #release({ bytes, at }: Current): Promise<void> {
    for (let from = at; from < bytes.length && this.#codec.releasePages; from += RELEASE_BYTES) {
      this.#codec.releasePages(bytes.subarray(from, from + RELEASE_BYTES));
      await new Promise((resolve) => void setImmediate(resolve));
    }
  }

  #sendChunk(current: Current): void {
    const { bytes, tail, at } = current;
    const part = bytes.subarray(at, at + PART_BYTES);
    current.at += part.length;
    if (part.length > 0) {
      const text = Buffer.allocUnsafe(base64Length(part.length));
      this.#codec.base64Encode(part, text, 0);
      this.#codec.releasePages?.(part);
      this.#sink.sendChunk(text, { isFirst: false, isLast: false });
      return;
    }
    this.#sink.sendChunk(Buffer.from(tail), { isFirst: false, isLast: true });
    this.#current = null;
    this.#sink.setPaused(false);
    current.sent();
    while (!this.#current) {
      const next = this.#waiting.shift();
      if (!next) return;
      this.#waitingBytes -= next.bytes;
      next.send();
    }
  }
}
