import { type Clock, sleep, systemClock } from "../../async/clock.ts";
import { CHARS_PER_TOKEN, type TokenUsage } from "../token-usage.ts";
import { ApiHealth } from "./api-health.ts";
import type { ModelApi, ModelRequest } from "./model-api.ts";
import { errorFromEvent, ModelError } from "./model-error.ts";
import { type RequestGate, unlimitedGate } from "./request-gate.ts";
import type { OutputItem, ResponseEvent } from "./response-events.ts";

export interface ModelAnswer {
  items: OutputItem[];
  usage: TokenUsage;
}

export interface RetryPolicy {
  /** Maximum number of retries after 5xx, a reset, a truncated stream or an idle timeout. */
  transportRetries: number;
  /** Maximum number of retries after 429 or 503. */
  rateLimitRetries: number;
  /** First backoff delay; it doubles with each retry. */
  baseDelayMs: number;
  maxDelayMs: number;
  /** A longer Retry-After is treated as a quota, not as a rate limit: the call does not wait. */
  maxRetryAfterMs: number;
  /** Retries are not counted for this long while the API answers no call. Default: retries always count. */
  outageTimeoutMs?: number | undefined;
}

/** For one agent with a waiting user: about six seconds of transport errors, some minutes of rate limits. */
export const DEFAULT_RETRY_POLICY: RetryPolicy = {
  transportRetries: 5,
  rateLimitRetries: 10,
  baseDelayMs: 200,
  maxDelayMs: 30_000,
  maxRetryAfterMs: 15 * 60_000,
};

/** Maximum relative change of a delay, so that many callers do not retry at the same time. */
const MAX_JITTER = 0.1;

export interface CallHooks {
  onRetry?: (error: ModelError, delayMs: number, tries: RetryState) => void;
  /**
   * Called with each complete item during streaming. Items of a stream that breaks later are not withdrawn: see
   * `beforeRetry`.
   */
  onItem?: (item: OutputItem) => void;
  /** Awaited before a retry. The caller may add the items of the broken stream to the request. */
  beforeRetry?: () => Promise<void>;
  /** Called with true when the call starts to wait for the gate or a backoff, with false when it stops. */
  onWaiting?: (waiting: boolean) => void;
}

/** Number of the next retry and the maximum; null while retries are not counted. */
export interface RetryState {
  count: number;
  of: number | null;
}

export interface ModelCallerOptions {
  api: ModelApi;
  gate?: RequestGate;
  retry?: RetryPolicy;
  clock?: Clock;
  random?: () => number;
  /** Availability of the API; the progress line reads it too. */
  health?: ApiHealth;
}

export type CallModel = (request: ModelRequest, signal: AbortSignal, hooks?: CallHooks) => Promise<ModelAnswer>;

/**
 * Returns a function that calls the model and retries failures. No other module retries model calls.
 * An answer is accepted as a whole, so a stream that breaks has no effect, unless the caller uses `onItem`. Rejects
 * with a `ModelError`, or with the signal's reason.
 */
export function createModelCaller(options: ModelCallerOptions): CallModel {
  const {
    api,
    gate = unlimitedGate,
    retry = DEFAULT_RETRY_POLICY,
    clock = systemClock,
    random = Math.random,
    health = new ApiHealth(),
  } = options;

  return async (request, signal, hooks = {}) => {
    const tries = new RetryCounter(retry, health, clock, random);
    for (let count = 1; ; count++) {
      const result = await tryOnce(api, gate, retry, request, signal, hooks);
      if (!(result instanceof ModelError)) {
        health.onSuccess();
        return result;
      }
      // The server had closed the connection before the request arrived, so this is not a retry.
      if (result.staleConnection && count === 1) continue;
      // The API rejected a droppable parameter; the next request omits it.
      if (result.retryImmediately) continue;
      const { delayMs, ...next } = tries.next(result);
      hooks.onRetry?.(result, delayMs, next);
      await hooks.beforeRetry?.();
      await reportWaiting(hooks, () => sleep(clock, delayMs, signal));
    }
  };
}

async function tryOnce(
  api: ModelApi,
  gate: RequestGate,
  retry: RetryPolicy,
  request: ModelRequest,
  signal: AbortSignal,
  hooks: CallHooks,
): Promise<ModelAnswer | ModelError> {
  const permit = await reportWaiting(hooks, () => gate.enter(() => estimateTokens(request), signal));
  const collector = new AnswerCollector(hooks);
  try {
    await api.send(request, signal, {
      onAccepted: (headers) => permit.onAccepted(headers),
      onEvent: (event) => collector.take(event),
    });
    const answer = collector.end();
    if (answer instanceof ModelError) throw answer;
    permit.release({ type: "answered", usage: answer.usage });
    return answer;
  } catch (error) {
    if (error instanceof ModelError) {
      // The gate gets the converted error: a Retry-After of hours must not delay the calls that wait at the gate.
      const failure = quotaIfLongWait(error, retry);
      permit.release({ type: "failed", error: failure });
      return failure;
    }
    permit.release({ type: "abandoned" });
    throw error;
  }
}

/** Returns a quota error if the API asks for a longer wait than the policy allows, otherwise the error. */
function quotaIfLongWait(error: ModelError, { maxRetryAfterMs }: RetryPolicy): ModelError {
  const { retryable, retryAfterMs, message, code } = error;
  if (!retryable || retryAfterMs === undefined || retryAfterMs <= maxRetryAfterMs) return error;
  return new ModelError("quota", `${message} (asked to wait ${Math.round(retryAfterMs / 1000)} s)`, {
    cause: error,
    retryAfterMs,
    code,
  });
}

/** Builds one answer from its events. */
class AnswerCollector {
  #hooks: CallHooks;
  #items: OutputItem[] = [];
  #end: ModelAnswer | ModelError | null = null;

  constructor(hooks: CallHooks) {
    this.#hooks = hooks;
  }

  take(event: ResponseEvent): void {
    switch (event.type) {
      case "itemDone":
        this.#items.push(event.item);
        this.#hooks.onItem?.(event.item);
        break;
      case "completed":
        this.#end = {
          items: this.#items.length > 0 ? this.#items : event.output,
          usage: event.usage,
        };
        break;
      case "failed":
        this.#end = errorFromEvent(event.code, event.message);
        break;
      case "incomplete":
        this.#end = new ModelError(
          event.reason === "content_filter" ? "refused" : "invalid_request",
          `the answer is incomplete: ${event.reason}`,
          { code: event.reason, usage: event.usage },
        );
        break;
    }
  }

  /** Returns the answer, or the error if the events contain none. */
  end(): ModelAnswer | ModelError {
    return this.#end ?? new ModelError("transport", "the stream was closed before its end");
  }
}

/** Returns the answer that the events contain, or the error if they contain none. */
export function collectAnswer(events: Iterable<ResponseEvent>): ModelAnswer | ModelError {
  const collector = new AnswerCollector({});
  for (const event of events) collector.take(event);
  return collector.end();
}

/** Maximum delay during an outage, so that the caller notices its end soon. */
const OUTAGE_MAX_DELAY_MS = 5_000;
/** After this many failures while other calls succeed, the request itself is considered the cause. */
const MAX_FAILURES_AMONG_ANSWERS = 3;

/** Counts the retries of one call. */
class RetryCounter {
  #retry: RetryPolicy;
  #health: ApiHealth;
  #clock: Clock;
  #random: () => number;
  #transportLeft: number;
  #rateLimitLeft: number;
  #uncounted = 0;
  #answersSeen: number | null = null;
  #failuresAmongAnswers = 0;

  constructor(retry: RetryPolicy, health: ApiHealth, clock: Clock, random: () => number) {
    this.#retry = retry;
    this.#health = health;
    this.#clock = clock;
    this.#random = random;
    this.#transportLeft = retry.transportRetries;
    this.#rateLimitLeft = retry.rateLimitRetries;
  }

  /** Returns the delay and the number of the next retry. Throws the error if no retry is left. */
  next(error: ModelError): RetryState & { delayMs: number } {
    if (!error.retryable) throw error;
    const { outageTimeoutMs = 0 } = this.#retry;
    if (this.#answersSeen !== null && this.#health.successCount > this.#answersSeen) this.#failuresAmongAnswers++;
    this.#answersSeen = this.#health.successCount;
    const now = this.#clock.monotonic();
    const outageSinceMs = this.#health.onFailure(this, error, now);
    if (outageSinceMs === null || outageTimeoutMs === 0 || this.#failuresAmongAnswers >= MAX_FAILURES_AMONG_ANSWERS) {
      return this.#countRetry(error);
    }
    if (now - outageSinceMs >= outageTimeoutMs) throw error.asOutage();
    const count = ++this.#uncounted;
    const backoffMs = Math.min(OUTAGE_MAX_DELAY_MS, this.#backoff(count - 1));
    return { count, of: null, delayMs: this.#addJitter(error, backoffMs) };
  }

  #countRetry(error: ModelError): RetryState & { delayMs: number } {
    const isRateLimited = error.kind === "rate_limit" || error.kind === "overloaded";
    const left = isRateLimited ? this.#rateLimitLeft-- : this.#transportLeft--;
    if (left <= 0) throw error;
    const total = isRateLimited ? this.#retry.rateLimitRetries : this.#retry.transportRetries;
    const delayMs = this.#addJitter(error, this.#backoff(total - left));
    return { count: total - left + 1, of: total, delayMs };
  }

  #backoff(tries: number): number {
    return Math.min(this.#retry.maxDelayMs, this.#retry.baseDelayMs * 2 ** tries);
  }

  /** Adds jitter to a backoff. A delay that the API requested is never shortened. */
  #addJitter({ retryAfterMs }: ModelError, backoffMs: number): number {
    return retryAfterMs !== undefined
      ? retryAfterMs * (1 + MAX_JITTER * this.#random())
      : backoffMs * (1 + MAX_JITTER * (2 * this.#random() - 1));
  }
}

async function reportWaiting<T>(hooks: CallHooks, task: () => Promise<T>): Promise<T> {
  hooks.onWaiting?.(true);
  try {
    return await task();
  } finally {
    hooks.onWaiting?.(false);
  }
}

export function estimateTokens(request: ModelRequest): number {
  const chars =
    request.instructions.length + JSON.stringify(request.input).length + JSON.stringify(request.tools).length;
  return Math.ceil(chars / CHARS_PER_TOKEN);
}
