import type { Duplex } from "node:stream";
import { type Flushable, flushAfterTick } from "../async/tick-flusher.ts";
import type { ByteCodec } from "./byte-codec.ts";
import { BULK_QUEUE_LIMIT_BYTES } from "./connection.ts";
import { frameBufferPool } from "./frame-buffer-pool.ts";
import type { ClientSocket, ClientSocketEvents, FrameOpening, FrameSocket, FrameSocketEvents } from "./frame-socket.ts";
import { FrameWriter } from "./frame-writer.ts";
import type { EndpointRole } from "./websocket-frames.ts";

/** Maximum total size of one tick's frames that are copied into one buffer. A copy of larger frames does not pay off. */
const JOIN_BELOW_BYTES = 64 * 1024;

export interface StreamSocketOptions {
  /** Bytes of frames that arrived with the handshake. */
  head?: Buffer;
  /** Queue limit. Above it, the socket stops reading. Default: unlimited. */
  maxQueuedBytes?: number;
  /** Returns the mask key of a client frame. Default: a random key. */
  maskKey?: (() => number) | undefined;
}

/** A FrameSocket over a Node stream. */
export class StreamSocket implements FrameSocket, Flushable {
  readonly #stream: Duplex;
  readonly #head: Buffer | undefined;
  readonly #writer: FrameWriter;
  readonly #maxQueuedBytes: number;
  #onDrain: () => void = () => undefined;
  receivedBytes = 0;
  #totalQueuedBytes = 0;
  /** Paused by the owner. */
  #isPaused = false;
  /** Paused because the send queue is full. */
  #isFull = false;
  #isDestroyed = false;
  /** Frames of this tick that are not written to the stream yet. */
  #frames: Buffer[] = [];
  #frameBytes = 0;

  constructor(
    stream: Duplex,
    role: EndpointRole,
    codec: ByteCodec,
    { head, maxQueuedBytes = Number.POSITIVE_INFINITY, maskKey }: StreamSocketOptions = {},
  ) {
    this.#stream = stream;
    this.#head = head;
    this.#maxQueuedBytes = maxQueuedBytes;
    this.#writer = new FrameWriter(role, codec, frameBufferPool, maskKey);
  }

  open(events: FrameSocketEvents): void {
    const stream = this.#stream;
    const receive = (chunk: Buffer) => {
      this.receivedBytes += chunk.length;
      events.bytes(chunk);
    };
    let problem: string | null = null;
    stream.on("data", receive);
    this.#onDrain = () => {
      this.#isFull = false;
      this.#updateReading();
      events.drain();
    };
    stream.on("drain", this.#onDrain);
    stream.on("end", () => events.end());
    stream.on("error", (error) => {
      problem = error.message;
    });
    stream.on("close", () => {
      if (!this.#isDestroyed) events.close(problem);
    });
    if (this.#head && this.#head.length > 0) receive(this.#head);
    // The handshake leaves the stream paused.
    this.#updateReading();
  }

  sendText(text: string): void {
    this.sendFrame(this.#writer.text(text));
  }

  sendChunk(head: string, bytes: Uint8Array, tail: string, opening?: FrameOpening): void {
    this.sendFrame(this.#writer.chunk(head, bytes, tail, opening));
  }

  sendBlock(text: string, bytes: Uint8Array): void {
    this.sendFrame(this.#writer.block(text, bytes));
  }

  sendFrame(frame: Buffer): void {
    if (this.#frames.length === 0) flushAfterTick(this);
    this.#frames.push(frame);
    this.#frameBytes += frame.length;
    this.#totalQueuedBytes += frame.length;
    if (this.#isFull || this.queuedBytes <= this.#maxQueuedBytes) return;
    this.#isFull = true;
    this.#updateReading();
  }

  get queuedBytes(): number {
    return this.#stream.writableLength + this.#frameBytes;
  }

  get sentBytes(): number {
    return this.#totalQueuedBytes - this.queuedBytes;
  }

  pause(): void {
    this.#isPaused = true;
    this.#updateReading();
  }

  resume(): void {
    this.#isPaused = false;
    this.#updateReading();
  }

  #updateReading(): void {
    if (this.#isPaused || this.#isFull) this.#stream.pause();
    else this.#stream.resume();
  }

  end(): void {
    this.flush();
    if (!this.#stream.writableEnded) this.#stream.end();
    // Once everything is sent, a process that has nothing else to do exits without waiting for the peer.
    this.#stream.once("finish", () => {
      if ("unref" in this.#stream && typeof this.#stream.unref === "function") this.#stream.unref();
    });
    // With unread input, the stream would not notice the end.
    this.#stream.resume();
  }

  destroy(): void {
    this.#isDestroyed = true;
    this.#stream.destroy();
  }

  /** Writes the frames of this tick to the stream. */
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
    // The stream emits no `drain` if the kernel accepts everything at once, but bulk output may wait for a drain.
    if (bytes >= BULK_QUEUE_LIMIT_BYTES && !this.#stream.writableNeedDrain) this.#onDrain();
  }

  #send(frame: Buffer): void {
    this.#stream.write(frame, () => frameBufferPool.release(frame));
  }
}

/** A ClientSocket over a Node stream. */
export class StreamClientSocket implements ClientSocket {
  readonly #stream: Duplex;
  readonly #codec: ByteCodec;
  readonly #maskKey: (() => number) | undefined;
  #stopEvents = () => {};

  constructor(stream: Duplex, codec: ByteCodec, maskKey?: () => number) {
    this.#stream = stream;
    this.#codec = codec;
    this.#maskKey = maskKey;
  }

  start(request: string, { bytes, end }: ClientSocketEvents): void {
    const stream = this.#stream;
    const onEnd = () => end();
    // An error of the stream must have a listener until its next owner adds one.
    stream.on("data", bytes).on("error", end).on("end", onEnd).on("close", onEnd);
    this.#stopEvents = () => void stream.off("data", bytes).off("end", onEnd).off("close", onEnd);
    stream.write(request, "latin1");
  }

  upgrade(head: Buffer): FrameSocket {
    this.#stream.pause();
    this.#stopEvents();
    return new StreamSocket(this.#stream, "client", this.#codec, { head, maskKey: this.#maskKey });
  }

  destroy(): void {
    this.#stream.destroy();
  }
}
