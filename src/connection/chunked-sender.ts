import { errorMessage } from "../base/error-message.ts";
import type { ChunkedMessage } from "./connection.ts";
import { FrameOpening } from "./frame-socket.ts";

/** Reading pauses while at least this many bytes are queued. */
const PARTS_AHEAD_BYTES = 512 * 1024;
const NO_BYTES = new Uint8Array(0);

/** Destination of the parts. */
export interface ChunkSink {
  readonly queuedBytes: number;
  /** Sends `head`, `bytes` as base64 and `tail` as a part of a message. */
  sendPart(head: string, bytes: Uint8Array, tail: string, opening: FrameOpening): void;
  /** Called with `true` when a chunked message starts, `false` when it ends. No other message may be sent between. */
  setPaused(isPaused: boolean): void;
  /** Closes the connection, because the rest of a message is missing. */
  fail(reason: string): void;
}

type Current = ChunkedMessage & { isReading: boolean; sent: () => void };
type Waiting = { bytes: number; send: () => void };

/**
 * Sends long messages in parts and keeps the order of all messages. It reads each part only when the queue has
 * capacity. A message of hundreds of megabytes is therefore never in memory as a whole and does not block other
 * connections.
 */
export class ChunkedSender {
  readonly #sink: ChunkSink;
  #current: Current | null = null;
  #waiting: Waiting[] = [];
  #waitingBytes = 0;

  constructor(sink: ChunkSink) {
    this.#sink = sink;
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
        this.#current = { ...message, isReading: false, sent: resolve };
        this.#sink.setPaused(true);
        this.#sink.sendPart(message.head, NO_BYTES, "", FrameOpening.first);
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
    for (;;) {
      const current = this.#current;
      if (!current || current.isReading || this.#sink.queuedBytes >= PARTS_AHEAD_BYTES) return;
      const part = current.source.next();
      if (part instanceof Uint8Array) this.#sendPart(current, part);
      else void this.#sendWhenRead(current, part);
    }
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
    dropped?.sent();
  }

  async #sendWhenRead(current: Current, reading: Promise<Uint8Array>): Promise<void> {
    current.isReading = true;
    try {
      const part = await reading;
      current.isReading = false;
      // The connection may have ended meanwhile.
      if (this.#current !== current) return;
      this.#sendPart(current, part);
      this.sendNext();
    } catch (error) {
      if (this.#current === current) this.#sink.fail(`cannot read the rest of a response: ${errorMessage(error)}`);
    }
  }

  #sendPart(current: Current, part: Uint8Array): void {
    if (part.length > 0) {
      this.#sink.sendPart("", part, "", FrameOpening.middle);
      return;
    }
    this.#sink.sendPart("", NO_BYTES, current.tail, FrameOpening.last);
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
