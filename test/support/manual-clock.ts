import type { Clock, Timer } from "../../src/async/clock.ts";
import { runPromiseReactions } from "./system/promise-reactions.ts";

interface ManualTimer {
  readonly at: number;
  readonly order: number;
  readonly fn: () => void;
}

/** A clock that moves only with `advance`. Timers fire in order of time, then in order of creation. */
export class ManualClock implements Clock {
  #now: number;
  #setBy = 0;
  #order = 0;
  #timers = new Set<ManualTimer>();

  constructor(startMs = 1_700_000_000_000) {
    this.#now = startMs;
  }

  now(): number {
    return this.#now + this.#setBy;
  }

  monotonic(): number {
    return this.#now;
  }

  /** Moves the time of day forward or, if negative, back. Does not change the monotonic clock. */
  setForward(ms: number): void {
    this.#setBy += ms;
  }

  after(ms: number, fn: () => void): Timer {
    const timer = { at: this.#now + Math.max(0, ms), order: this.#order++, fn };
    this.#timers.add(timer);
    return { cancel: () => void this.#timers.delete(timer) };
  }

  /** Moves time forward, fires due timers, and runs promise reactions between timers. */
  async advance(ms: number): Promise<void> {
    const until = this.#now + ms;
    for (;;) {
      await runPromiseReactions(10);
      const next = this.#firstTimer();
      if (!next || next.at > until) break;
      this.#timers.delete(next);
      this.#now = Math.max(this.#now, next.at);
      next.fn();
    }
    this.#now = until;
    await runPromiseReactions(10);
  }

  #firstTimer(): ManualTimer | null {
    let first: ManualTimer | null = null;
    for (const timer of this.#timers) {
      if (!first || timer.at < first.at || (timer.at === first.at && timer.order < first.order)) first = timer;
    }
    return first;
  }

  get pendingTimers(): number {
    return this.#timers.size;
  }
}
