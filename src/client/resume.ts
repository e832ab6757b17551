import type { Clock } from "../async/clock.ts";
import { sleep } from "../async/clock.ts";
import { ErrorCode, isTakenOver, RequestError } from "../protocol/errors.ts";

/** How long and how often a client tries to reconnect. */
export interface ReconnectPolicy {
  /** From the loss until everything fails. Below the 30 s a server keeps a detached session, so that coming back late never finds it half ended. */
  deadlineMs: number;
  /** The first try is made at once; this long after it the second, then doubling. */
  firstDelayMs: number;
  maxDelayMs: number;
}

export const DEFAULT_RECONNECT_POLICY: ReconnectPolicy = {
  deadlineMs: 25_000,
  firstDelayMs: 100,
  maxDelayMs: 2000,
};

/**
 * Tries until it works, until it is clear that it never will, or until the deadline. Rejects with the last error. A session
 * that is still attached elsewhere counts as "not yet": a server may take a while to notice a dead peer. So does a listener
 * that refuses or is missing: a server that is restarted or replaced has its sessions back a moment later.
 */
export async function retryUntilResumed<T>(
  attempt: (remainingMs: number) => Promise<T>,
  policy: ReconnectPolicy,
  clock: Clock,
  signal: AbortSignal,
): Promise<T> {
  const deadline = clock.monotonic() + policy.deadlineMs;
  let delayMs = policy.firstDelayMs;
  for (;;) {
    try {
      return await attempt(deadline - clock.monotonic());
    } catch (error) {
      const now = clock.monotonic();
      if (signal.aborted || isHopeless(error) || now + delayMs >= deadline) throw error;
    }
    await sleep(clock, delayMs, signal);
    delayMs = Math.min(delayMs * 2, policy.maxDelayMs);
  }
}

/** The server no longer knows the session, or knows it as somebody else's, or wants nobody: waiting would change nothing. */
function isHopeless(error: unknown): boolean {
  if (error instanceof RequestError)
    return error.code !== ErrorCode.sessionAttached || isTakenOver(error.message);
  return causes(error).some(
    (cause) => "status" in cause && (cause.status === 401 || cause.status === 403 || cause.status === 404),
  );
}

function causes(error: unknown): Error[] {
  const found: Error[] = [];
  for (let cause = error; cause instanceof Error; cause = cause.cause) found.push(cause);
  return found;
}
