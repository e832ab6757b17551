/**
 * Time comes in through a Clock, so that tests move it by hand instead of sleeping.
 */

export interface Timer {
  /** Stops the timer; harmless after it has fired. */
  cancel(): void;
}

export interface Clock {
  /** Milliseconds since the epoch, for display. The time of day can be set, so durations are never measured by it. */
  now(): number;
  /** Milliseconds since some moment, for durations: it runs evenly whatever the time of day is set to. */
  monotonic(): number;
  /** Calls `fn` once, `ms` from now. A pending timer does not keep the program alive when `keepAlive` is false. */
  after(ms: number, fn: () => void, options?: { keepAlive?: boolean }): Timer;
}

/** The longest delay Node's timers take; a longer one would fire at once. */
const MAX_TIMER_MS = 2 ** 31 - 1;

/** Node loads a library of its own at the first look at `performance`: a fiftieth of a server's start. A browser has no uptime. */
const elapsedMs =
  typeof globalThis.process?.uptime === "function" ? () => process.uptime() * 1000 : () => performance.now();

export const systemClock: Clock = {
  now: () => Date.now(),
  // Whole numbers: what is left of a duration goes over the wire.
  monotonic: () => Math.floor(elapsedMs()),
  after(ms, fn, options) {
    const handle = setTimeout(fn, Math.min(Math.max(0, ms), MAX_TIMER_MS));
    // In a browser a timer is a number and has nothing to unref.
    if (options?.keepAlive === false && typeof handle === "object") handle.unref();
    return { cancel: () => clearTimeout(handle) };
  },
};

interface ManualTimer {
  readonly at: number;
  readonly order: number;
  readonly fn: () => void;
}

/** A clock that stands still until `advance` is called. Timers fire in time order, ties in the order they were set. */
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

  /** Sets the time of day forward or back by this much; the monotonic clock does not move. */
  setForward(ms: number): void {
    this.#setBy += ms;
  }

  after(ms: number, fn: () => void): Timer {
    const timer = { at: this.#now + Math.max(0, ms), order: this.#order++, fn };
    this.#timers.add(timer);
    return { cancel: () => void this.#timers.delete(timer) };
  }

  /** Moves time forward, firing what falls due on the way, and lets promise reactions run between timers. */
  async advance(ms: number): Promise<void> {
    const until = this.#now + ms;
    for (;;) {
      await settle();
      const next = this.#firstTimer();
      if (!next || next.at > until) break;
      this.#timers.delete(next);
      this.#now = Math.max(this.#now, next.at);
      next.fn();
    }
    this.#now = until;
    await settle();
  }

  #firstTimer(): ManualTimer | null {
    let first: ManualTimer | null = null;
    for (const timer of this.#timers) {
      if (!first || timer.at < first.at || (timer.at === first.at && timer.order < first.order))
        first = timer;
    }
    return first;
  }

  get pendingTimers(): number {
    return this.#timers.size;
  }
}

async function settle(): Promise<void> {
  for (let turn = 0; turn < 10; turn++) await Promise.resolve();
}

/** Resolves after `ms` on the given clock. */
export function sleep(clock: Clock, ms: number, signal?: AbortSignal): Promise<void> {
  return new Promise((resolve, reject) => {
    if (signal?.aborted) return reject(signal.reason);
    const onAbort = () => {
      timer.cancel();
      reject(signal?.reason);
    };
    const timer = clock.after(ms, () => {
      signal?.removeEventListener("abort", onAbort);
      resolve();
    });
    signal?.addEventListener("abort", onAbort, { once: true });
  });
}
