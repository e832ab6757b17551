/** Time is injected as a Clock, so that tests advance it manually instead of sleeping. */

export interface Timer {
  /** Stops the timer. No-op after it fired. */
  cancel(): void;
}

export interface Clock {
  /** Milliseconds since the epoch, for display only: the time of day can be changed. */
  now(): number;
  /** Milliseconds since an arbitrary point, for durations. Independent of the time of day. */
  monotonic(): number;
  /** Calls `fn` once after `ms`. With `keepAlive: false`, the pending timer does not keep the process alive. */
  after(ms: number, fn: () => void, options?: { keepAlive?: boolean }): Timer;
}

/** Maximum delay of a Node timer. A longer one would fire immediately. */
const MAX_TIMER_MS = 2 ** 31 - 1;

/** Uses `process.uptime`, because loading `performance` takes 2% of the server's start. Browsers have only `performance`. */
const elapsedMs =
  typeof globalThis.process?.uptime === "function" ? () => process.uptime() * 1000 : () => performance.now();

export const systemClock: Clock = {
  now: () => Date.now(),
  // Rounded, because remaining durations are sent over the wire as integers.
  monotonic: () => Math.floor(elapsedMs()),
  after(ms, fn, options) {
    const handle = setTimeout(fn, Math.min(Math.max(0, ms), MAX_TIMER_MS));
    // Browser timers are numbers and have no `unref`.
    if (options?.keepAlive === false && typeof handle === "object") handle.unref();
    return { cancel: () => clearTimeout(handle) };
  },
};

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
      if (!first || timer.at < first.at || (timer.at === first.at && timer.order < first.order)) first = timer;
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
