import type { ByteStream } from "../../forward/byte-stream.ts";
import { invalidRequest } from "../../protocol/errors.ts";

/** Maximum incoming connections that wait while the session is detached. Further ones are closed. */
const MAX_WAITING = 64;

type AcceptHandler = (listenId: string, stream: ByteStream, peer: string) => void;

/**
 * Forward listeners of one session. They survive its connection: incoming connections wait until the session resumes.
 */
export class ForwardListeners {
  readonly #listeners = new Map<string, { close: () => void }>();
  #waiting: { listenId: string; stream: ByteStream; peer: string }[] = [];
  #onAccept: AcceptHandler | null = null;
  #isClosed = false;

  /**
   * Adds a listener. `open` creates it and passes incoming connections to its argument. Returns its port, or null for a
   * Unix socket.
   */
  async listen(
    listenId: string,
    open: (
      onStream: (stream: ByteStream, peer: string) => void,
    ) => Promise<{ readonly port: number | null; close(): void }>,
  ): Promise<number | null> {
    if (this.#listeners.has(listenId)) throw invalidRequest(`listener ${listenId} already exists`);
    const entry: { close: () => void } = { close: () => undefined };
    this.#listeners.set(listenId, entry);
    try {
      const listener = await open((stream, peer) => this.#onConnection(listenId, stream, peer));
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

  /** Closes a listener. No-op if it does not exist. Accepted streams stay open. */
  unlisten(listenId: string): void {
    this.#listeners.get(listenId)?.close();
    this.#listeners.delete(listenId);
    const removed = this.#waiting.filter((waiting) => waiting.listenId === listenId);
    this.#waiting = this.#waiting.filter((waiting) => waiting.listenId !== listenId);
    for (const { stream } of removed) stream.close("the listener was closed");
  }

  /** Passes waiting and future connections to a connection of the session. */
  attach(onAccept: AcceptHandler): void {
    this.#onAccept = onAccept;
    const waiting = this.#waiting;
    this.#waiting = [];
    for (const { listenId, stream, peer } of waiting) onAccept(listenId, stream, peer);
  }

  detach(onAccept: AcceptHandler): void {
    if (this.#onAccept === onAccept) this.#onAccept = null;
  }

  /** Closes all listeners when the session ends. */
  close(): void {
    this.#isClosed = true;
    for (const listenId of [...this.#listeners.keys()]) this.unlisten(listenId);
  }

  #onConnection(listenId: string, stream: ByteStream, peer: string): void {
    if (this.#onAccept) this.#onAccept(listenId, stream, peer);
    else if (this.#isClosed || this.#waiting.length >= MAX_WAITING) stream.close("the session has no connection");
    else this.#waiting.push({ listenId, stream, peer });
  }
}
