import { type Clock, sleep, systemClock } from "../../async/clock.ts";
import { type CallGate, openGate } from "../call-gate.ts";
import type { TokenUsage } from "../token-usage.ts";
import { ApiHealth } from "./api-health.ts";
import type { ModelApi, ModelRequest } from "./model-api.ts";
import { errorFromEvent, ModelError } from "./model-error.ts";
import type { OutputItem, ResponseEvent } from "./response-events.ts";

export interface ModelAnswer {
  items: OutputItem[];
  usage: TokenUsage;
  responseId: string;
}

export interface RetryPolicy {
  /** How often a call is sent again after 5xx, a cut, a reset or silence. */
  transportRetries: number;
  /** How often it is sent again after 429 or 503. */
  rateLimitRetries: number;
  /** The first delay; it doubles each time. */
  baseDelayMs: number;
  maxDelayMs: number;
  /** A Retry-After beyond this is no rate limit but a quota: a call does not wait for it. */
  maxRetryAfterMs: number;
  /** While the API answers no call at all, tries are not counted for this long. Default: they always are. */
  outagePatienceMs?: number | undefined;
}

/** For one agent with a user waiting: about six seconds of transport trouble, some minutes of rate limits. */
export const DEFAULT_RETRY_POLICY: RetryPolicy = {
  transportRetries: 5,
  rateLimitRetries: 10,
  baseDelayMs: 200,
  maxDelayMs: 30_000,
  maxRetryAfterMs: 15 * 60_000,
};

/** How much earlier or later a delay may fall, so that many callers do not come back at once. */
const JITTER = 0.1;

export interface CallHooks {
  onRetry?: (error: ModelError, delayMs: number, tries: Tries) => void;
  /** An item has come whole. What a stream brings that breaks later is not taken back: see `beforeRetry`. */
  onItem?: (item: OutputItem) => void;
  /** Awaited before a call is sent again; the request may have grown meanwhile by what came before the break. */
  beforeRetry?: () => Promise<void>;
  onTextDelta?: (delta: string) => void;
  /** True while the call waits for its turn or for a back-off, not for the model. */
  onWaiting?: (waiting: boolean) => void;
}

/** Which try comes next, and how many there are; null while they are not counted. */
export interface Tries {
  count: number;
  of: number | null;
}

export interface ModelCallerOptions {
  api: ModelApi;
  gate?: CallGate;
  retry?: RetryPolicy;
  clock?: Clock;
  random?: () => number;
  /** What is known about the API; shared with the progress line. */
  health?: ApiHealth;
}

export type CallModel = (
  request: ModelRequest,
  signal: AbortSignal,
  hooks?: CallHooks,
) => Promise<ModelAnswer>;

/**
 * Asks the model until it has answered or asking again is pointless. This is the only place that retries. An answer is taken
 * whole or not at all, so a stream that breaks in the middle leaves nothing behind, unless the caller takes items as they
 * come. Rejects with a ModelError, or with the signal's reason.
 */
export function createModelCaller(options: ModelCallerOptions): CallModel {
  const {
    api,
    gate = openGate,
    retry = DEFAULT_RETRY_POLICY,
    clock = systemClock,
    random = Math.random,
    health = new ApiHealth(),
  } = options;

  return async (request, signal, hooks = {}) => {
    const tries = new CallTries(retry, health, clock, random);
    for (let count = 1; ; count++) {
      const error = await tryOnce(api, gate, request, signal, hooks);
      if (!(error instanceof ModelError)) {
        health.answered();
        return error;
      }
      // The connection had been closed before the request arrived: nothing was tried yet.
      if (error.staleConnection && count === 1) continue;
      // The API does not take a parameter that can be spared; what is sent next goes without.
      if (error.sendAgain) continue;
      const { delayMs, ...next } = tries.next(error);
      hooks.onRetry?.(error, delayMs, next);
      await hooks.beforeRetry?.();
      await waiting(hooks, () => sleep(clock, delayMs, signal));
    }
  };
}

async function tryOnce(
  api: ModelApi,
  gate: CallGate,
  request: ModelRequest,
  signal: AbortSignal,
  hooks: CallHooks,
): Promise<ModelAnswer | ModelError> {
  const permit = await waiting(hooks, () => gate.enter(() => estimateTokens(request), signal));
  const collector = new AnswerCollector(hooks);
  try {
    await api.send(request, signal, {
      onAccepted: (headers) => permit.accepted(headers),
      onEvent: (event) => collector.take(event),
    });
    const answer = collector.answer();
    permit.leave({ type: "answered", usage: answer.usage });
    return answer;
  } catch (error) {
    if (error instanceof ModelError) {
      permit.leave({ type: "failed", error });
      return error;
    }
    permit.leave({ type: "abandoned" });
    throw error;
  }
}

/** Puts the pieces of one answer together. */
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
      case "textDelta":
        this.#hooks.onTextDelta?.(event.delta);
        break;
      case "completed":
        this.#end = {
          items: this.#items.length > 0 ? this.#items : event.output,
          usage: event.usage,
          responseId: event.responseId,
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

  answer(): ModelAnswer {
    if (this.#end instanceof ModelError) throw this.#end;
    if (!this.#end) throw new ModelError("transport", "the stream was closed before its end");
    return this.#end;
  }
}

/** The answer that these events make, or why they make none. */
export function answerOf(events: Iterable<ResponseEvent>): ModelAnswer | ModelError {
  const collector = new AnswerCollector({});
  for (const event of events) collector.take(event);
  try {
    return collector.answer();
  } catch (error) {
    if (error instanceof ModelError) return error;
    throw error;
  }
}

/** In an outage the API is asked at least this often, so that its return is noticed soon. */
const OUTAGE_MAX_DELAY_MS = 5_000;
/** A call that failed so often while others were answered has a fault of its own. */
const OWN_FAULT_AFTER = 3;

/** How often one call may still be tried. */
class CallTries {
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

  /** The wait before the next try and its number; throws when no try is left. */
  next(error: ModelError): Tries & { delayMs: number } {
    if (!error.retryable) throw error;
    const { maxRetryAfterMs, outagePatienceMs = 0 } = this.#retry;
    if (error.retryAfterMs !== undefined && error.retryAfterMs > maxRetryAfterMs) {
      throw new ModelError(
        "quota",
        `${error.message} (asked to wait ${Math.round(error.retryAfterMs / 1000)} s)`,
        { cause: error, retryAfterMs: error.retryAfterMs, code: error.code },
      );
    }
    if (this.#answersSeen !== null && this.#health.answers > this.#answersSeen) this.#failuresAmongAnswers++;
    this.#answersSeen = this.#health.answers;
    const now = this.#clock.monotonic();
    const awaySinceMs = this.#health.failed(this, error, now);
    if (awaySinceMs === null || outagePatienceMs === 0 || this.#failuresAmongAnswers >= OWN_FAULT_AFTER) {
      return this.#counted(error);
    }
    if (now - awaySinceMs >= outagePatienceMs) throw error.asOutage();
    const count = ++this.#uncounted;
    const backoffMs = Math.min(OUTAGE_MAX_DELAY_MS, this.#backoff(count - 1));
    return { count, of: null, delayMs: this.#jittered(error, backoffMs) };
  }

  #counted(error: ModelError): Tries & { delayMs: number } {
    const limited = error.kind === "rate_limit" || error.kind === "overloaded";
    const left = limited ? this.#rateLimitLeft-- : this.#transportLeft--;
    if (left <= 0) throw error;
    const total = limited ? this.#retry.rateLimitRetries : this.#retry.transportRetries;
    const delayMs = this.#jittered(error, this.#backoff(total - left));
    return { count: total - left + 1, of: total, delayMs };
  }

  #backoff(tries: number): number {
    return Math.min(this.#retry.maxDelayMs, this.#retry.baseDelayMs * 2 ** tries);
  }

  /** A delay that was asked for is never cut short; an own one may fall a little to either side. */
  #jittered({ retryAfterMs }: ModelError, backoffMs: number): number {
    return retryAfterMs !== undefined
      ? retryAfterMs * (1 + JITTER * this.#random())
      : backoffMs * (1 + JITTER * (2 * this.#random() - 1));
  }
}

async function waiting<T>(hooks: CallHooks, task: () => Promise<T>): Promise<T> {
  hooks.onWaiting?.(true);
  try {
    return await task();
  } finally {
    hooks.onWaiting?.(false);
  }
}

/** Bytes of text that make a token, roughly, in English; good enough for pacing. */
const CHARS_PER_TOKEN = 4;

export function estimateTokens(request: ModelRequest): number {
  const chars =
    request.instructions.length + JSON.stringify(request.input).length + JSON.stringify(request.tools).length;
  return Math.ceil(chars / CHARS_PER_TOKEN);
}
