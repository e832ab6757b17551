import { type Clock, sleep } from "../../async/clock.ts";
import { hasErrorCode } from "../../base/error-code.ts";
import { isTakeoverError } from "../../exec/compat.ts";
import { DisconnectedError, ErrorCode, RequestError } from "../../protocol/errors.ts";

export interface ReconnectPolicy {
  /**
   * Time from the loss until all calls fail. Below the 30 s that a server keeps a detached session, so that a late
   * client never resumes a session that is expiring.
   */
  deadlineMs: number;
  /** Delay of the second attempt; it doubles with each further one. The first attempt has no delay. */
  firstDelayMs: number;
  maxDelayMs: number;
  /** Opens a new session for the next call after the session was lost. Default: true. */
  newSession: boolean;
}

export const DEFAULT_RECONNECT_POLICY: ReconnectPolicy = {
  deadlineMs: 25_000,
  firstDelayMs: 100,
  maxDelayMs: 2000,
  newSession: true,
};

/** Minimum time for an attempt that starts before the deadline, so that the last one can report the server's reason. */
const MIN_ATTEMPT_MS = 1000;

/**
 * Retries until the session is resumed, the failure is permanent, or the deadline passes. Rejects with the last
 * error. Retries while the session still has a connection, because a server may notice a dead peer late. Also
 * retries while no server listens, because a restarted server restores its sessions a moment later.
 */
export async function retryUntilResumed<T>(
  attempt: (timeoutMs: number) => Promise<T>,
  policy: ReconnectPolicy,
  clock: Clock,
  signal: AbortSignal,
): Promise<T> {
  const deadline = clock.monotonic() + policy.deadlineMs;
  let delayMs = policy.firstDelayMs;
  for (;;) {
    try {
      return await attempt(Math.max(deadline - clock.monotonic(), MIN_ATTEMPT_MS));
    } catch (error) {
      const now = clock.monotonic();
      if (signal.aborted || isPermanent(error) || now + delayMs >= deadline) throw error;
    }
    await sleep(clock, delayMs, signal);
    delayMs = Math.min(delayMs * 2, policy.maxDelayMs);
  }
}

/**
 * Maximum connections for a new session. A server that is being replaced closes its last connections; the next server
 * accepts later ones at the same address.
 */
const MAX_FIRST_CONNECTIONS = 3;

/**
 * Retries if a connection was lost before the first response: the server has done nothing by then. A connection that
 * could not be opened is final, because there may never be a listener. Rejects with the last error.
 */
export async function retryUntilResponse<T>(
  attempt: () => Promise<T>,
  { firstDelayMs }: ReconnectPolicy,
  clock: Clock,
  signal: AbortSignal,
): Promise<T> {
  for (let connections = 1; ; connections++) {
    try {
      return await attempt();
    } catch (error) {
      if (signal.aborted || connections === MAX_FIRST_CONNECTIONS || !isConnectionLost(error)) throw error;
    }
    await sleep(clock, firstDelayMs, signal);
  }
}

/** Reports whether the peer accepted the connection and then closed it. A write to a Unix socket that the peer closed fails with EPIPE. */
function isConnectionLost(error: unknown): boolean {
  return causes(error).some(
    (cause) => cause instanceof DisconnectedError || hasErrorCode(cause, "ECONNRESET", "EPIPE"),
  );
}

/** Reports whether retrying is useless: the session is unknown or taken over, or the server rejects this client. */
export function isPermanent(error: unknown): boolean {
  if (error instanceof RequestError) return error.code !== ErrorCode.sessionAttached || isTakeoverError(error);
  return hasStatus(error, 401, 403, 404);
}

/** Reports whether the server rejects the credentials of this client. */
export function isUnauthorized(error: unknown): boolean {
  return hasStatus(error, 401, 403);
}

/** Reports whether the error or one of its causes has one of these HTTP statuses. */
export function hasStatus(error: unknown, ...statuses: number[]): boolean {
  return causes(error).some((cause) => "status" in cause && statuses.some((status) => status === cause.status));
}

function causes(error: unknown): Error[] {
  const found: Error[] = [];
  for (let cause = error; cause instanceof Error; cause = cause.cause) found.push(cause);
  return found;
}
