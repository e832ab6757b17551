import type { Clock } from "../../async/clock.ts";
import { sleep } from "../../async/clock.ts";
import { DisconnectedError, ErrorCode, isTakenOver, RequestError } from "../../protocol/errors.ts";

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

/**
 * How many connections are tried for a new session. A server that is being replaced takes its last connections with it;
 * the next one has the same address and takes those that come after.
 */
const FIRST_CONNECTIONS = 3;

/**
 * Tries again when a connection was made and lost before it was answered: nothing has been done by then. One that could
 * not be made at all is final: nobody may ever listen there. Rejects with the last error.
 */
export async function retryUntilAnswered<T>(
  attempt: () => Promise<T>,
  { firstDelayMs }: ReconnectPolicy,
  clock: Clock,
  signal: AbortSignal,
): Promise<T> {
  for (let connections = 1; ; connections++) {
    try {
      return await attempt();
    } catch (error) {
      if (signal.aborted || connections === FIRST_CONNECTIONS || !isLost(error)) throw error;
    }
    await sleep(clock, firstDelayMs, signal);
  }
}

/** The peer was there and has gone away. */
function isLost(error: unknown): boolean {
  return causes(error).some(
    (cause) => cause instanceof DisconnectedError || ("code" in cause && cause.code === "ECONNRESET"),
  );
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
