import type { Duplex } from "node:stream";
import { freeCopied } from "../base/free-buffer.ts";
import type { ByteCodec } from "./byte-codec.ts";
import { CROWDED_BYTES } from "./connection.ts";
import { frameBuffers } from "./frame-buffer-pool.ts";
import type { FrameSocket, FrameSocketEvents } from "./frame-socket.ts";
import { type Flushable, TurnFlusher } from "./tick-flusher.ts";
import { FrameWriter, type Role } from "./websocket-frames.ts";

/** Frames of one turn that are smaller than this together are copied into one buffer; larger ones are not worth a copy. */
const JOIN_BELOW_BYTES = 64 * 1024;

const turnFlusher = new TurnFlusher();

/** Frames over one of Node's own streams. */
export class StreamSocket implements FrameSocket, Flushable {
  readonly #stream: Duplex;
  readonly #head: Buffer | undefined;
  readonly #writer: FrameWriter;
  readonly #maxQueuedBytes: number;
  #onDrain: () => void = () => undefined;
  #receivedBytes = 0;
  #queuedEver = 0;
  /** Paused by its owner. */
  #paused = false;
  /** Paused because too much is queued to be sent. */
  #full = false;
  #destroyed = false;
  /** Frames of this turn, not yet handed to the stream. */
  #frames: Buffer[] = [];
  #frameBytes = 0;

  constructor(
    stream: Duplex,
    role: Role,
    codec: ByteCodec,
    { head, maxQueuedBytes = Number.POSITIVE_INFINITY }: { head?: Buffer; maxQueuedBytes?: number } = {},
  ) {
    this.#stream = stream;
    this.#head = head;
    this.#maxQueuedBytes = maxQueuedBytes;
    this.#writer = new FrameWriter(role, codec, frameBuffers);
  }

  open(events: FrameSocketEvents): void {
    const stream = this.#stream;
    const take = (chunk: Buffer) => {
      this.#receivedBytes += chunk.length;
      events.bytes(chunk);
    };
    let problem: string | null = null;
    stream.on("data", take);
    this.#onDrain = () => {
      this.#full = false;
      this.#flow();
      events.drain();
    };
    stream.on("drain", this.#onDrain);
    stream.on("end", () => events.end());
    stream.on("error", (error) => {
      problem = error.message;
    });
    stream.on("close", () => {
      if (!this.#destroyed) events.close(problem);
    });
    if (this.#head && this.#head.length > 0) take(this.#head);
  }

  sendText(text: string): void {
    this.sendFrame(this.#writer.text(text));
  }

  sendChunk(head: string, bytes: Uint8Array, tail: string): void {
    this.sendFrame(this.#writer.chunk(head, bytes, tail));
  }

  sendFrame(frame: Buffer): void {
    if (this.#frames.length === 0) turnFlusher.add(this);
    this.#frames.push(frame);
    this.#frameBytes += frame.length;
    this.#queuedEver += frame.length;
    if (this.#full || this.queuedBytes <= this.#maxQueuedBytes) return;
    this.#full = true;
    this.#flow();
  }

  get queuedBytes(): number {
    return this.#stream.writableLength + this.#frameBytes;
  }

  get sentBytes(): number {
    return this.#queuedEver - this.queuedBytes;
  }

  get receivedBytes(): number {
    return this.#receivedBytes;
  }

  pause(): void {
    this.#paused = true;
    this.#flow();
  }

  resume(): void {
    this.#paused = false;
    this.#flow();
  }

  #flow(): void {
    if (this.#paused || this.#full) this.#stream.pause();
    else this.#stream.resume();
  }

  end(): void {
    this.flush();
    if (!this.#stream.writableEnded) this.#stream.end();
    // Unread input would keep it from noticing the end.
    this.#stream.resume();
  }

  destroy(): void {
    this.#destroyed = true;
    this.#stream.destroy();
  }

  /** Hands this turn's frames to the stream. */
  flush(): void {
    const frames = this.#frames;
    const bytes = this.#frameBytes;
    this.#frames = [];
    this.#frameBytes = 0;
    const [only] = frames;
    if (only === undefined || this.#stream.destroyed || this.#stream.writableEnded) return;
    if (frames.length === 1) {
      this.#send(only);
    } else if (bytes <= JOIN_BELOW_BYTES) {
      this.#stream.write(Buffer.concat(frames, bytes));
    } else {
      this.#stream.cork();
      for (const frame of frames) this.#send(frame);
      this.#stream.uncork();
    }
    // The stream tells of no drain when the system takes all at once, but somebody may wait for this turn's frames to go.
    if (bytes >= CROWDED_BYTES && !this.#stream.writableNeedDrain) this.#onDrain();
  }

  #send(frame: Buffer): void {
    if (frameBuffers.isLent(frame)) this.#stream.write(frame, () => frameBuffers.give(frame));
    else this.#stream.write(frame, () => freeCopied(frame));
  }
}
