import type { RequestGate, RequestOutcome, RequestPermit } from "../../agent/api/request-gate.ts";
import { totalTokens } from "../../agent/token-usage.ts";
import { type Clock, systemClock, type Timer } from "../../async/clock.ts";
import { AdaptiveRate, type PacedCall } from "./adaptive-rate.ts";
import { exhaustedForMs } from "./rate-headers.ts";

export interface LimiterOptions {
  /** Maximum number of requests in flight. */
  width: number;
  requestsPerMinute?: number | undefined;
  tokensPerMinute?: number | undefined;
  clock?: Clock;
}

/**
 * The request gate that all slots share. It starts at full concurrency, reduces it if the API is overloaded, and raises
 * it by one for every round of answers. From rate-limit rejections it learns the rate that the API allows and keeps to
 * it. A Retry-After or an exhausted limit delays all slots.
 */
export class RateLimiter implements RequestGate {
  readonly maxConcurrency: number;
  inFlight = 0;
  /** When requests may be sent again; in the past if nothing delays them. */
  pausedUntilMs = 0;
  /** When the API last completed an answer; null: never. */
  lastAnswerAtMs: number | null = null;
  #currentConcurrency: number;
  #clock: Clock;
  #requests: TokenBucketPacer | null;
  #tokens: TokenBucketPacer | null;
  #waiting = new Set<Waiter>();
  #timer: Timer | null = null;
  /** Incremented with each reduction, so that one wave of rejections reduces concurrency once. */
  #wave = 0;
  #overloadedWaves = 0;
  #adaptiveRate = new AdaptiveRate();
  #outputTokens: number | null = null;

  constructor(options: LimiterOptions) {
    this.maxConcurrency = options.width;
    this.#currentConcurrency = options.width;
    this.#clock = options.clock ?? systemClock;
    this.#requests = options.requestsPerMinute ? new TokenBucketPacer(options.requestsPerMinute) : null;
    this.#tokens = options.tokensPerMinute ? new TokenBucketPacer(options.tokensPerMinute) : null;
  }

  get concurrency(): number {
    return Math.floor(this.#currentConcurrency);
  }

  enter(estimateTokens: () => number, signal: AbortSignal): Promise<RequestPermit> {
    signal.throwIfAborted();
    return new Promise((resolve, reject) => {
      const onAbort = () => {
        this.#waiting.delete(waiter);
        reject(signal.reason);
      };
      const waiter: Waiter = {
        estimateTokens,
        admit: (permit) => {
          signal.removeEventListener("abort", onAbort);
          resolve(permit);
        },
      };
      signal.addEventListener("abort", onAbort, { once: true });
      this.#waiting.add(waiter);
      this.#admitWaiting();
    });
  }

  #admitWaiting(): void {
    for (const waiter of this.#waiting) {
      if (this.inFlight >= this.concurrency) return;
      const now = this.#clock.monotonic();
      const readyAtMs = Math.max(
        this.pausedUntilMs,
        this.#requests?.nextAtMs ?? 0,
        this.#tokens?.nextAtMs ?? 0,
        this.#adaptiveRate.nextAtMs,
      );
      const { isProbeInFlight } = this.#adaptiveRate;
      if (isProbeInFlight || readyAtMs > now) {
        this.#timer?.cancel();
        this.#timer = null;
        // The end of the probe admits the next call.
        if (isProbeInFlight) return;
        this.#timer = this.#clock.after(readyAtMs - now, () => this.#admitWaiting());
        return;
      }
      this.#waiting.delete(waiter);
      waiter.admit(this.#permit(waiter.estimateTokens, now));
    }
  }

  #permit(estimateTokens: () => number, now: number): RequestPermit {
    this.inFlight++;
    this.#requests?.take(1, now);
    const paced = this.#adaptiveRate.recordCall(now);
    // Input can be counted. Output is estimated by the length of recent answers.
    const estimate = this.#tokens ? estimateTokens() + (this.#outputTokens ?? FIRST_OUTPUT_TOKENS) : 0;
    this.#tokens?.take(estimate, now);
    const wave = this.#wave;
    let isReleased = false;
    return {
      onAccepted: (headers) => {
        this.#adaptiveRate.onSent(paced, this.#clock.monotonic());
        this.#pauseFor(exhaustedForMs(headers));
        this.#admitWaiting();
      },
      release: (end) => {
        if (isReleased) return;
        isReleased = true;
        this.inFlight--;
        this.#learn(end, paced, wave, estimate);
        this.#admitWaiting();
      },
    };
  }

  #learn(end: RequestOutcome, paced: PacedCall, wave: number, estimate: number): void {
    const now = this.#clock.monotonic();
    if (end.type === "failed" && end.error.kind === "rate_limit") {
      // A failed request uses almost no tokens.
      this.#tokens?.correct(-estimate);
      const delayMs = this.#adaptiveRate.onRateLimited(paced, now);
      this.#pauseFor(end.error.retryAfterMs ?? delayMs);
      return;
    }
    this.#adaptiveRate.onSent(paced, now);
    if (end.type === "answered") {
      this.#tokens?.correct(totalTokens(end.usage) - estimate);
      const { outputTokens } = end.usage;
      this.#outputTokens =
        this.#outputTokens === null
          ? outputTokens
          : this.#outputTokens + (outputTokens - this.#outputTokens) * OUTPUT_WEIGHT;
      this.lastAnswerAtMs = now;
      this.#overloadedWaves = 0;
      this.#currentConcurrency = Math.min(
        this.maxConcurrency,
        this.#currentConcurrency + 1 / Math.max(1, this.#currentConcurrency),
      );
      return;
    }
    this.#tokens?.correct(-estimate);
    if (end.type === "failed" && end.error.kind === "overloaded") this.#reduceConcurrency(wave, end.error.retryAfterMs);
  }

  #reduceConcurrency(wave: number, retryAfterMs: number | undefined): void {
    if (wave === this.#wave) {
      this.#wave++;
      this.#overloadedWaves++;
      this.#currentConcurrency = Math.max(1, Math.floor(this.#currentConcurrency / 2));
    }
    this.#pauseFor(retryAfterMs ?? Math.min(MAX_HOLD_MS, FIRST_HOLD_MS * 2 ** (this.#overloadedWaves - 1)));
  }

  #pauseFor(ms: number): void {
    this.pausedUntilMs = Math.max(this.pausedUntilMs, this.#clock.monotonic() + ms);
  }
}

/** Estimated output tokens before the first answer: a short report. */
const FIRST_OUTPUT_TOKENS = 200;
/** Weight of the newest answer in the estimate of output tokens. */
const OUTPUT_WEIGHT = 0.2;
/** First pause for an overloaded API without a Retry-After; it doubles with every wave. */
const FIRST_HOLD_MS = 500;
/** Maximum pause. */
const MAX_HOLD_MS = 60_000;

interface Waiter {
  estimateTokens: () => number;
  admit: (permit: RequestPermit) => void;
}

/** Spreads a per-minute rate evenly, so that no interval of a minute exceeds it. */
class TokenBucketPacer {
  nextAtMs = 0;
  #msPerUnit: number;

  constructor(perMinute: number) {
    this.#msPerUnit = 60_000 / perMinute;
  }

  take(units: number, now: number): void {
    this.nextAtMs = Math.max(now, this.nextAtMs) + units * this.#msPerUnit;
  }

  correct(units: number): void {
    this.nextAtMs += units * this.#msPerUnit;
  }
}
