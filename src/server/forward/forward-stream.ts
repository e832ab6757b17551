import type { ByteStream, ByteStreamEvents } from "../../forward/byte-stream.ts";
import { invalidRequest } from "../../protocol/errors.ts";
import { FORWARD_WINDOW_BYTES, MAX_FORWARD_CHUNK_BYTES } from "../../protocol/forward-schemas.ts";
import type { Peer } from "../rpc/peer.ts";

/** The client's end of a forwarded stream. Written data counts as received when the client acknowledges it. */
export class ForwardStream implements ByteStream {
  readonly #streamId: string;
  readonly #peer: Peer;
  readonly #onClosed: () => void;
  #events: ByteStreamEvents | null = null;
  #isClosed = false;
  /** Data to send, in order. */
  readonly #queue: { chunk: Uint8Array; done: () => void; fail: (error: Error) => void }[] = [];
  /** Data sent but not acknowledged, in order. */
  readonly #unacknowledged: { bytes: number; done: () => void; fail: (error: Error) => void }[] = [];
  #acknowledgedBytes = 0;
  #isEnding = false;
  #stopWaiting: (() => void) | null = null;
  /** Bytes received from the client that the target has not accepted yet. */
  #receivedBytes = 0;
  readonly #received: { bytes: number; done: () => void; fail: (error: Error) => void }[] = [];
  #acceptedBytes = 0;

  constructor(streamId: string, peer: Peer, onClosed: () => void) {
    this.#streamId = streamId;
    this.#peer = peer;
    this.#onClosed = onClosed;
  }

  open(events: ByteStreamEvents): void {
    this.#events = events;
  }

  write(chunk: Uint8Array): Promise<void> {
    if (this.#isClosed) return Promise.reject(new Error("the stream is closed"));
    return new Promise((done, fail) => {
      this.#queue.push({ chunk, done, fail });
      this.#notify();
    });
  }

  end(): void {
    this.#isEnding = true;
    this.#notify();
  }

  acknowledge(bytes: number): void {
    this.#receivedBytes -= bytes;
    this.#acceptedBytes += bytes;
    this.#acceptedBytes = resolveAcknowledged(this.#received, this.#acceptedBytes);
  }

  close(reason: string | null): void {
    if (this.#isClosed) return;
    // After an orderly end, send all data before `forward/closed`.
    if (reason === null) while (this.#queue.length > 0) this.#notifyNext();
    this.#peer.notify({
      method: "forward/closed",
      params: { streamId: this.#streamId, reason: reason ?? undefined },
    });
    this.#finish();
  }

  /** Receives data from the client. Resolves when the target has accepted it. */
  receive(chunk: Uint8Array): Promise<void> {
    if (chunk.length > MAX_FORWARD_CHUNK_BYTES)
      throw invalidRequest(`chunk of ${chunk.length} bytes is too large; the limit is ${MAX_FORWARD_CHUNK_BYTES}`);
    // A client that does not wait for responses would fill the server's memory.
    if (this.#receivedBytes > FORWARD_WINDOW_BYTES)
      throw invalidRequest(
        `stream ${this.#streamId} has ${this.#receivedBytes} pending bytes, the limit is ${FORWARD_WINDOW_BYTES}; await the responses to earlier writes first`,
      );
    if (chunk.length === 0) return Promise.resolve();
    return new Promise((done, fail) => {
      this.#receivedBytes += chunk.length;
      this.#received.push({ bytes: chunk.length, done, fail });
      this.#events?.data(chunk);
    });
  }

  /** Records that the client ended its direction. */
  receiveEnd(): void {
    this.#events?.end();
  }

  /** Records that the client has processed `bytes` more bytes. */
  onAck(bytes: number): void {
    this.#acknowledgedBytes += bytes;
    this.#acknowledgedBytes = resolveAcknowledged(this.#unacknowledged, this.#acknowledgedBytes);
  }

  /** Closes the stream and its target without a notification: the client closed it or is disconnected. */
  discard(reason: string | null): void {
    if (this.#isClosed) return;
    const events = this.#events;
    this.#finish();
    events?.close(reason);
  }

  /** Sends queued data while the peer is below its bulk limit, so that one stream does not starve the others. */
  #notify(): void {
    while (this.#queue.length > 0 && !this.#peer.isAboveBulkLimit) this.#notifyNext();
    if (this.#queue.length > 0) this.#stopWaiting ??= this.#peer.onDrain(() => this.#onDrained());
    else if (this.#isEnding && !this.#isClosed) {
      this.#isEnding = false;
      this.#peer.notify({ method: "forward/ended", params: { streamId: this.#streamId } });
    }
  }

  #notifyNext(): void {
    const next = this.#queue.shift();
    if (!next) return;
    const { chunk, done, fail } = next;
    this.#peer.notify({ method: "forward/data", params: { streamId: this.#streamId, chunk } });
    this.#unacknowledged.push({ bytes: chunk.length, done, fail });
  }

  #onDrained(): void {
    this.#notify();
    if (this.#queue.length > 0) return;
    this.#stopWaiting?.();
    this.#stopWaiting = null;
  }

  #finish(): void {
    this.#isClosed = true;
    this.#events = null;
    this.#stopWaiting?.();
    this.#stopWaiting = null;
    const error = invalidRequest(`stream ${this.#streamId} is closed`);
    for (const list of [this.#queue, this.#unacknowledged, this.#received])
      for (const { fail } of list.splice(0)) fail(error);
    this.#onClosed();
  }
}

/** Resolves the writes whose bytes are covered. Returns the remainder, for the next write. */
function resolveAcknowledged(waiting: { bytes: number; done: () => void }[], covered: number): number {
  let rest = covered;
  for (let next = waiting[0]; next && next.bytes <= rest; next = waiting[0]) {
    rest -= next.bytes;
    waiting.shift();
    next.done();
  }
  return rest;
}
