import { shareInstances } from "../base/shared-class.ts";
import { type Clock, systemClock } from "./clock.ts";

/** The error of a wait that exceeded its timeout. */
export class TimeoutError extends Error {
  static {
    shareInstances(TimeoutError, "procwire.TimeoutError");
  }

  override readonly name = "TimeoutError";
  readonly what: string;
  readonly timeoutMs: number;

  constructor(what: string, timeoutMs: number) {
    super(`timed out waiting for ${what} after ${timeoutMs} ms`);
    this.what = what;
    this.timeoutMs = timeoutMs;
  }
}

/** Waits at most `timeoutMs` for `promise`. Does not cancel the promise; ignores its late rejection. */
export async function withDeadline<T>(
  promise: Promise<T>,
  timeoutMs: number,
  what: string,
  clock: Clock = systemClock,
): Promise<T> {
  const late = Promise.withResolvers<never>();
  const timer = clock.after(timeoutMs, () => late.reject(new TimeoutError(what, timeoutMs)));
  promise.catch(() => undefined);
  try {
    return await Promise.race([promise, late.promise]);
  } finally {
    timer.cancel();
  }
}
