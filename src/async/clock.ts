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
