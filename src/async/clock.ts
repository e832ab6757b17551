/** Time is injected as a Clock, so that tests advance it manually instead of sleeping. */

export interface Timer {
  /** Stops the timer. No-op after it fired. */
  cancel(): void;
}

export interface Clock {
  /** Milliseconds since the epoch, for display only, because the time of day can jump. */
  now(): number;
  /** Milliseconds since an arbitrary point, for durations. Independent of the time of day. */
  monotonic(): number;
  /** Calls `fn` once after `ms`. With `keepAlive: false`, the pending timer does not keep the process alive. */
  after(ms: number, fn: () => void, options?: { keepAlive?: boolean }): Timer;
}

/** Maximum delay of a Node timer. Node fires a timer with a longer delay immediately. */
export const MAX_TIMER_MS = 2 ** 31 - 1;

/** Uses `process.uptime`, because loading `performance` takes 2% of the server's start. Browsers have only `performance`. */
const elapsedMs =
  typeof globalThis.process?.uptime === "function" ? () => process.uptime() * 1000 : () => performance.now();

export const systemClock: Clock = {
  now: () => Date.now(),
  // Rounded, because remaining durations are sent over the wire as integers.
  monotonic: () => Math.floor(elapsedMs()),
  after(ms, fn, options) {
    const timeout = setTimeout(fn, Math.min(Math.max(0, ms), MAX_TIMER_MS));
    // Browser timers are numbers and have no `unref`.
    if (options?.keepAlive === false && typeof timeout === "object") timeout.unref();
    return { cancel: () => clearTimeout(timeout) };
  },
};

/** Resolves after `ms` on the given clock. Rejects with the signal's reason on abort. */
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
