import type { Clock, Timer } from "../../async/clock.ts";

/** The timeout of an attempt. Waits for the rate limiter or a backoff do not count. */
export class RowDeadline {
  expired = false;
  #clock: Clock;
  #leftMs: number;
  #onExpire: () => void;
  #timer: Timer | null = null;
  #resumedAtMs = 0;
  #pauses = 0;

  constructor(ms: number, clock: Clock, onExpire: () => void) {
    this.#leftMs = ms;
    this.#clock = clock;
    this.#onExpire = onExpire;
    this.#start();
  }

  pause(): void {
    if (this.#pauses++ > 0 || this.#timer === null) return;
    this.#timer.cancel();
    this.#timer = null;
    this.#leftMs -= this.#clock.monotonic() - this.#resumedAtMs;
  }

  resume(): void {
    if (--this.#pauses === 0 && !this.expired) this.#start();
  }

  /** Pauses for good: a `resume` that follows belongs to an earlier `pause`. */
  cancel(): void {
    this.pause();
  }

  #start(): void {
    this.#resumedAtMs = this.#clock.monotonic();
    this.#timer = this.#clock.after(this.#leftMs, () => {
      this.expired = true;
      this.#timer = null;
      this.#onExpire();
    });
  }
}
