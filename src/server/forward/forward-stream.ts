import type { ByteStream, ByteStreamEvents } from "../../forward/byte-stream.ts";
import { invalidRequest } from "../../protocol/errors.ts";
import { FORWARD_WINDOW_BYTES, MAX_FORWARD_CHUNK_BYTES } from "../../protocol/forward-schemas.ts";
import type { Peer } from "../rpc/peer.ts";

/**
 * The client's end of a forwarded stream. What is written to it is told when the peer has room, in turn with everything
 * else that is told, and counts as taken when the client confirms it.
 */
export class ForwardStream implements ByteStream {
  readonly #streamId: string;
  readonly #peer: Peer;
  readonly #onClosed: () => void;
  #events: ByteStreamEvents | null = null;
  #isOver = false;
  /** To be told, in order. */
  readonly #queue: { chunk: Uint8Array; done: () => void; fail: (error: Error) => void }[] = [];
  /** Told and not confirmed, in order. */
  readonly #unconfirmed: { bytes: number; done: () => void; fail: (error: Error) => void }[] = [];
  #confirmedBytes = 0;
  #isEnding = false;
  #stopWaiting: (() => void) | null = null;
  /** From the client and not taken yet. */
  #receivedBytes = 0;
  readonly #received: { bytes: number; done: () => void; fail: (error: Error) => void }[] = [];
  #takenBytes = 0;

  constructor(streamId: string, peer: Peer, onClosed: () => void) {
    this.#streamId = streamId;
    this.#peer = peer;
    this.#onClosed = onClosed;
  }

  open(events: ByteStreamEvents): void {
    this.#events = events;
  }

  write(chunk: Uint8Array): Promise<void> {
    if (this.#isOver) return Promise.reject(new Error("the stream is closed"));
    return new Promise((done, fail) => {
      this.#queue.push({ chunk, done, fail });
      this.#tell();
    });
  }

  end(): void {
    this.#isEnding = true;
    this.#tell();
  }

  taken(bytes: number): void {
    this.#receivedBytes -= bytes;
    this.#takenBytes += bytes;
    settleCovered(this.#received, this.#takenBytes, (rest) => {
      this.#takenBytes = rest;
    });
  }

  close(reason: string | null): void {
    if (this.#isOver) return;
    // What was read of an orderly end goes out before its word does.
    if (reason === null) while (this.#queue.length > 0) this.#tellNext();
    this.#peer.notify({
      method: "forward/closed",
      params: { streamId: this.#streamId, reason: reason ?? undefined },
    });
    this.#finish();
  }

  /** The client has written: resolves when the other end has taken it. */
  receive(chunk: Uint8Array): Promise<void> {
    if (chunk.length > MAX_FORWARD_CHUNK_BYTES)
      throw invalidRequest(`a piece of a stream has at most ${MAX_FORWARD_CHUNK_BYTES} bytes`);
    // One that does not wait for its answers would have this server keep its bytes.
    if (this.#receivedBytes > FORWARD_WINDOW_BYTES)
      throw invalidRequest(
        `stream ${this.#streamId} has ${this.#receivedBytes} bytes under way, and at most ${FORWARD_WINDOW_BYTES} may be; await the answers to some first`,
      );
    if (chunk.length === 0) return Promise.resolve();
    return new Promise((done, fail) => {
      this.#receivedBytes += chunk.length;
      this.#received.push({ bytes: chunk.length, done, fail });
      this.#events?.data(chunk);
    });
  }

  /** The client will write no more. */
  receiveEnd(): void {
    this.#events?.ended();
  }

  /** The client has dealt with so many bytes more. */
  confirm(bytes: number): void {
    this.#confirmedBytes += bytes;
    settleCovered(this.#unconfirmed, this.#confirmedBytes, (rest) => {
      this.#confirmedBytes = rest;
    });
  }

  /** The client closes it, or its connection is gone: nobody is told but the other end. */
  abandon(reason: string | null): void {
    if (this.#isOver) return;
    const events = this.#events;
    this.#finish();
    events?.closed(reason);
  }

  /** As long as the peer has room, like every bulk of output: one flood does not starve the others. */
  #tell(): void {
    while (this.#queue.length > 0 && !this.#peer.crowded) this.#tellNext();
    if (this.#queue.length > 0) this.#stopWaiting ??= this.#peer.onDrain(() => this.#drained());
    else if (this.#isEnding && !this.#isOver) {
      this.#isEnding = false;
      this.#peer.notify({ method: "forward/ended", params: { streamId: this.#streamId } });
    }
  }

  #tellNext(): void {
    const next = this.#queue.shift();
    if (!next) return;
    const { chunk, done, fail } = next;
    this.#peer.notify({ method: "forward/data", params: { streamId: this.#streamId, chunk } });
    this.#unconfirmed.push({ bytes: chunk.length, done, fail });
  }

  #drained(): void {
    this.#tell();
    if (this.#queue.length > 0) return;
    this.#stopWaiting?.();
    this.#stopWaiting = null;
  }

  #finish(): void {
    this.#isOver = true;
    this.#events = null;
    this.#stopWaiting?.();
    this.#stopWaiting = null;
    const error = invalidRequest(`stream ${this.#streamId} is closed`);
    for (const list of [this.#queue, this.#unconfirmed, this.#received])
      for (const { fail } of list.splice(0)) fail(error);
    this.#onClosed();
  }
}

/** Those whose bytes are covered are done; what is left over covers the next one partly. */
function settleCovered(
  waiting: { bytes: number; done: () => void }[],
  covered: number,
  keep: (rest: number) => void,
): void {
  let rest = covered;
  for (let next = waiting[0]; next && next.bytes <= rest; next = waiting[0]) {
    rest -= next.bytes;
    waiting.shift();
    next.done();
  }
  keep(rest);
}
