import type { ByteCodec } from "./byte-codec.ts";
import { base64Length } from "./byte-codec.ts";
import type { LongMessage } from "./long-message.ts";

/** Of the bytes of a long message, how many are made into base64 at a time; a multiple of three, so that the parts join. */
const PART_BYTES = 240 * 1024;
/** Parts are made while less than this waits to be sent. */
const PARTS_AHEAD_BYTES = 512 * 1024;

/** Where the parts go. */
export interface PartSink {
  readonly queuedBytes: number;
  sendPart(part: Buffer, place: { isFirst: boolean; isLast: boolean }): void;
  /** A long message has begun, or is over: in between nothing else may be sent. */
  held(isHeld: boolean): void;
}

type Current = LongMessage & { at: number; sent: () => void };
type Waiting = { bytes: number; send: () => void };

/**
 * Keeps messages in their order while a long one is sent in parts. Each part is made when there is room for it, so a
 * message of hundreds of megabytes costs neither its own length once more nor everybody else's time.
 */
export class PartedSender {
  readonly #sink: PartSink;
  readonly #codec: ByteCodec;
  #current: Current | null = null;
  #waiting: Waiting[] = [];
  #waitingBytes = 0;

  constructor(sink: PartSink, codec: ByteCodec) {
    this.#sink = sink;
    this.#codec = codec;
  }

  /** A long message is on its way: what is sent now has to wait. */
  get isBusy(): boolean {
    return this.#current !== null;
  }

  /** Bytes of messages that wait for a long one. */
  get waitingBytes(): number {
    return this.#waitingBytes;
  }

  wait(bytes: number, send: () => void): void {
    this.#waiting.push({ bytes, send });
    this.#waitingBytes += bytes;
  }

  /** Resolves when all of it was handed over, or nobody is there any more. */
  send(message: LongMessage): Promise<void> {
    return new Promise((resolve) => {
      const begin = () => {
        this.#current = { ...message, at: 0, sent: resolve };
        this.#sink.held(true);
        this.#sink.sendPart(Buffer.from(message.head), { isFirst: true, isLast: false });
      };
      if (this.#current) {
        this.wait(message.head.length, begin);
        return;
      }
      begin();
      this.proceed();
    });
  }

  /** Sends as much as there is room for; called when there is some again. */
  proceed(): void {
    while (this.#current && this.#sink.queuedBytes < PARTS_AHEAD_BYTES) this.#sendPart(this.#current);
  }

  /** The connection has ended: drops everything. */
  abandon(): void {
    this.#drop();
    // Each waiting sender is resolved in its turn, though nothing was sent.
    for (const { send } of this.#waiting.splice(0)) {
      send();
      this.#drop();
    }
    this.#waitingBytes = 0;
  }

  #drop(): void {
    this.#current?.sent();
    this.#current = null;
  }

  #sendPart(current: Current): void {
    const { bytes, tail, at } = current;
    const part = bytes.subarray(at, at + PART_BYTES);
    current.at += part.length;
    if (part.length > 0) {
      const text = Buffer.allocUnsafe(base64Length(part.length));
      this.#codec.base64Encode(part, text, 0);
      this.#sink.sendPart(text, { isFirst: false, isLast: false });
      return;
    }
    this.#sink.sendPart(Buffer.from(tail), { isFirst: false, isLast: true });
    this.#current = null;
    this.#sink.held(false);
    current.sent();
    while (!this.#current) {
      const next = this.#waiting.shift();
      if (!next) return;
      this.#waitingBytes -= next.bytes;
      next.send();
    }
  }
}
