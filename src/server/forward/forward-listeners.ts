import type { ByteStream } from "../../forward/byte-stream.ts";
import { invalidRequest } from "../../protocol/errors.ts";

/** Connections that came in while the session has none of its own wait for it; more are closed. */
const MAX_WAITING = 64;

export interface HeldListener {
  readonly port: number;
  close(): void;
}

type Taker = (listenId: string, stream: ByteStream, peer: string) => void;

/** The listeners of one session. They outlive its connection: what comes in meanwhile waits for the next one. */
export class ForwardListeners {
  readonly #listeners = new Map<string, { close: () => void }>();
  #waiting: { listenId: string; stream: ByteStream; peer: string }[] = [];
  #taker: Taker | null = null;
  #isOver = false;

  /** `open` gives the listener that tells what comes in by the function it is given. */
  async listen(
    listenId: string,
    open: (onStream: (stream: ByteStream, peer: string) => void) => Promise<HeldListener>,
  ): Promise<number> {
    if (this.#listeners.has(listenId)) throw invalidRequest(`listener ${listenId} already exists`);
    const entry: { close: () => void } = { close: () => undefined };
    this.#listeners.set(listenId, entry);
    try {
      const listener = await open((stream, peer) => this.#came(listenId, stream, peer));
      if (this.#listeners.get(listenId) !== entry) {
        listener.close();
        throw invalidRequest(`listener ${listenId} was closed before it listened`);
      }
      entry.close = () => listener.close();
      return listener.port;
    } catch (error) {
      if (this.#listeners.get(listenId) === entry) this.#listeners.delete(listenId);
      throw error;
    }
  }

  /** Fine for one that is not there. Streams that came in by it go on. */
  unlisten(listenId: string): void {
    this.#listeners.get(listenId)?.close();
    this.#listeners.delete(listenId);
    const [gone, kept] = [true, false].map((isGone) =>
      this.#waiting.filter((one) => (one.listenId === listenId) === isGone),
    );
    this.#waiting = kept ?? [];
    for (const { stream } of gone ?? []) stream.close("the listener was closed");
  }

  /** A connection of the session takes what comes in, and what has waited. */
  attach(taker: Taker): void {
    this.#taker = taker;
    const waiting = this.#waiting;
    this.#waiting = [];
    for (const { listenId, stream, peer } of waiting) taker(listenId, stream, peer);
  }

  detach(taker: Taker): void {
    if (this.#taker === taker) this.#taker = null;
  }

  /** The session is over. */
  close(): void {
    this.#isOver = true;
    for (const listenId of [...this.#listeners.keys()]) this.unlisten(listenId);
  }

  #came(listenId: string, stream: ByteStream, peer: string): void {
    if (this.#taker) this.#taker(listenId, stream, peer);
    else if (this.#isOver || this.#waiting.length >= MAX_WAITING) stream.close("nobody takes it");
    else this.#waiting.push({ listenId, stream, peer });
  }
}
