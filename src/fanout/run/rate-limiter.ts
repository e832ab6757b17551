import type { CallEnd, CallGate, CallPermit } from "../../agent/call-gate.ts";
import { totalTokens } from "../../agent/token-usage.ts";
import { type Clock, systemClock, type Timer } from "../../async/clock.ts";
import { LearnedRate, type PacedCall } from "./adaptive-rate.ts";
import { exhaustedForMs } from "./rate-headers.ts";

export interface LimiterOptions {
  /** The most requests under way. */
  width: number;
  requestsPerMinute?: number | undefined;
  tokensPerMinute?: number | undefined;
  clock?: Clock;
}

/**
 * The gate that all lanes share. It starts at full width, narrows when the API says that it is overloaded, and widens again by
 * one for every round of answers. From rate-limit refusals it learns the rate that the API allows, and from then on keeps
 * to it. What one lane learns (Retry-After, an exhausted limit with its reset) applies to all.
 */
export class Limiter implements CallGate {
  readonly maxWidth: number;
  #width: number;
  #clock: Clock;
  #requests: Pacer | null;
  #tokens: Pacer | null;
  #inFlight = 0;
  #waiting = new Set<Waiter>();
  #heldUntilMs = 0;
  #timer: Timer | null = null;
  /** Incremented each time the width shrinks, so that one wave of refusals shrinks it once. */
  #wave = 0;
  #overloadedWaves = 0;
  #learned = new LearnedRate();
  #lastAnswerAtMs = 0;
  #outputTokens: number | null = null;

  constructor(options: LimiterOptions) {
    this.maxWidth = options.width;
    this.#width = options.width;
    this.#clock = options.clock ?? systemClock;
    this.#requests = options.requestsPerMinute ? new Pacer(options.requestsPerMinute) : null;
    this.#tokens = options.tokensPerMinute ? new Pacer(options.tokensPerMinute) : null;
  }

  get width(): number {
    return Math.floor(this.#width);
  }

  get inFlight(): number {
    return this.#inFlight;
  }

  /** When requests may be sent again; in the past while nothing delays them. */
  get heldUntilMs(): number {
    return this.#heldUntilMs;
  }

  /** When the API last gave a complete answer; 0: never. */
  get lastAnswerAtMs(): number {
    return this.#lastAnswerAtMs;
  }

  enter(estimateTokens: () => number, signal: AbortSignal): Promise<CallPermit> {
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
      if (this.#inFlight >= this.width) return;
      const now = this.#clock.monotonic();
      const readyAtMs = Math.max(
        this.#heldUntilMs,
        this.#requests?.nextAtMs ?? 0,
        this.#tokens?.nextAtMs ?? 0,
        this.#learned.nextAtMs,
      );
      if (readyAtMs > now) {
        this.#timer?.cancel();
        this.#timer = null;
        // While a probe is under way, its return lets the next call in.
        if (readyAtMs === Number.POSITIVE_INFINITY) return;
        this.#timer = this.#clock.after(readyAtMs - now, () => this.#admitWaiting());
        return;
      }
      this.#waiting.delete(waiter);
      waiter.admit(this.#permit(waiter.estimateTokens, now));
    }
  }

  #permit(estimateTokens: () => number, now: number): CallPermit {
    this.#inFlight++;
    this.#requests?.take(1, now);
    const paced = this.#learned.admitted(now);
    // Input can be counted; output is estimated by the length of recent answers.
    const estimate = this.#tokens ? estimateTokens() + (this.#outputTokens ?? FIRST_OUTPUT_TOKENS) : 0;
    this.#tokens?.take(estimate, now);
    const wave = this.#wave;
    let left = false;
    return {
      accepted: (headers) => {
        this.#learned.taken(paced, this.#clock.monotonic());
        this.#hold(exhaustedForMs(headers));
        this.#admitWaiting();
      },
      leave: (end) => {
        if (left) return;
        left = true;
        this.#inFlight--;
        this.#learn(end, paced, wave, estimate);
        this.#admitWaiting();
      },
    };
  }

  #learn(end: CallEnd, paced: PacedCall, wave: number, estimate: number): void {
    const now = this.#clock.monotonic();
    if (end.type === "failed" && end.error.kind === "rate_limit") {
      // A failed request has cost about nothing.
      this.#tokens?.correct(-estimate);
      const ownMs = this.#learned.refused(paced, now);
      this.#hold(end.error.retryAfterMs ?? ownMs);
      return;
    }
    this.#learned.taken(paced, now);
    if (end.type === "answered") {
      this.#tokens?.correct(totalTokens(end.usage) - estimate);
      const { outputTokens } = end.usage;
      this.#outputTokens =
        this.#outputTokens === null
          ? outputTokens
          : this.#outputTokens + (outputTokens - this.#outputTokens) * OUTPUT_WEIGHT;
      this.#lastAnswerAtMs = now;
      this.#overloadedWaves = 0;
      this.#width = Math.min(this.maxWidth, this.#width + 1 / Math.max(1, this.#width));
      return;
    }
    this.#tokens?.correct(-estimate);
    if (end.type === "failed" && end.error.kind === "overloaded") this.#narrow(wave, end.error.retryAfterMs);
  }

  #narrow(wave: number, retryAfterMs: number | undefined): void {
    if (wave === this.#wave) {
      this.#wave++;
      this.#overloadedWaves++;
      this.#width = Math.max(1, Math.floor(this.#width / 2));
    }
    this.#hold(retryAfterMs ?? Math.min(MAX_HOLD_MS, FIRST_HOLD_MS * 2 ** (this.#overloadedWaves - 1)));
  }

  #hold(ms: number): void {
    this.#heldUntilMs = Math.max(this.#heldUntilMs, this.#clock.monotonic() + ms);
  }
}

/** Estimated output before the first answer: a short report. */
const FIRST_OUTPUT_TOKENS = 200;
/** Weight of the newest answer in the estimate of output tokens. */
const OUTPUT_WEIGHT = 0.2;
/** The first wait for an overloaded API without a Retry-After; it doubles with every wave of refusals. */
const FIRST_HOLD_MS = 500;
/** The longest such wait. */
const MAX_HOLD_MS = 60_000;

interface Waiter {
  estimateTokens: () => number;
  admit: (permit: CallPermit) => void;
}

/** Spreads a rate evenly, so that no span of a minute exceeds its share, wherever it begins. */
class Pacer {
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
