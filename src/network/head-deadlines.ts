import type { Socket } from "node:net";
import type { Clock, Timer } from "../async/clock.ts";

/** A client sends a complete request head or SOCKS5 handshake within this time. */
const HEAD_TIMEOUT_MS = 60_000;

/** Closes connections that send no complete request in time. One timer serves all, and exists only while one waits. */
export class HeadDeadlines {
  /** Deadlines in the order in which they elapse. */
  readonly #waiting = new Map<Socket, number>();
  readonly #clock: Clock;
  #timer: Timer | null = null;

  constructor(clock: Clock) {
    this.#clock = clock;
  }

  /** Starts the deadline of a connection. `complete` or the close of the socket ends it. */
  start(socket: Socket): void {
    this.#waiting.delete(socket);
    this.#waiting.set(socket, this.#clock.monotonic() + HEAD_TIMEOUT_MS);
    this.#schedule();
  }

  /** The request is complete, or the connection has closed. */
  complete(socket: Socket): void {
    this.#waiting.delete(socket);
    if (this.#waiting.size > 0 || this.#timer === null) return;
    this.#timer.cancel();
    this.#timer = null;
  }

  #schedule(): void {
    const [earliest] = this.#waiting.values();
    if (this.#timer !== null || earliest === undefined) return;
    const ms = Math.max(1, earliest - this.#clock.monotonic());
    this.#timer = this.#clock.after(ms, () => this.#closeLate(), { keepAlive: false });
  }

  #closeLate(): void {
    this.#timer = null;
    const now = this.#clock.monotonic();
    for (const [socket, deadline] of this.#waiting) {
      if (deadline > now) break;
      this.#waiting.delete(socket);
      socket.destroy();
    }
    this.#schedule();
  }
}
