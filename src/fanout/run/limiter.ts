import type { CallEnd, CallGate, CallPermit } from "../../agent/call-gate.ts";
import type { ResponseHeaders } from "../../agent/model-api.ts";
import { totalTokens } from "../../agent/usage.ts";
import { type Clock, systemClock, type Timer } from "../../async/clock.ts";

export interface LimiterOptions {
  /** Requests under way at most. */
  width: number;
  requestsPerMinute?: number | undefined;
  tokensPerMinute?: number | undefined;
  clock?: Clock;
}

/**
 * The one gate of all lanes. It starts at full width and narrows only when the API says that it is too much; it widens
 * again by one for every round of answers. Refusals teach it the rate that the API allows, and from then on it keeps to it. What one lane learns (Retry-After, nothing left until …) holds for all.
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
  /** Rises each time the width shrinks, so that one wave of refusals shrinks it once. */
  #wave = 0;
  #refusedWaves = 0;
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

  /** When requests may be sent again; in the past while nothing holds them. */
  get heldUntilMs(): number {
    return this.#heldUntilMs;
  }

  /** When the API last gave a whole answer; 0: never. */
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
    this.#learned.admitted(now);
    // What is sent can be counted; what comes back is taken to be as long as of late.
    const estimate = this.#tokens ? estimateTokens() + (this.#outputTokens ?? FIRST_OUTPUT_TOKENS) : 0;
    this.#tokens?.take(estimate, now);
    const wave = this.#wave;
    let left = false;
    return {
      accepted: (headers) => this.#readHeaders(headers),
      leave: (end) => {
        if (left) return;
        left = true;
        this.#inFlight--;
        this.#learn(end, wave, estimate, now);
        this.#admitWaiting();
      },
    };
  }

  #learn(end: CallEnd, wave: number, estimate: number, admittedAtMs: number): void {
    if (end.type === "answered") {
      this.#tokens?.correct(totalTokens(end.usage) - estimate);
      const { outputTokens } = end.usage;
      this.#outputTokens =
        this.#outputTokens === null
          ? outputTokens
          : this.#outputTokens + (outputTokens - this.#outputTokens) * OUTPUT_WEIGHT;
      this.#lastAnswerAtMs = this.#clock.monotonic();
      this.#refusedWaves = 0;
      this.#width = Math.min(this.maxWidth, this.#width + 1 / Math.max(1, this.#width));
      return;
    }
    // A request that came to nothing has cost about nothing.
    this.#tokens?.correct(-estimate);
    if (end.type !== "failed") return;
    const { kind, retryAfterMs } = end.error;
    if (kind !== "rate_limit" && kind !== "overloaded") return;
    if (kind === "rate_limit") this.#learnRate(admittedAtMs);
    if (wave === this.#wave) {
      this.#wave++;
      this.#refusedWaves++;
      // Once the rate is known it is the rate that keeps within the limit; slow answers still need the width.
      if (kind !== "rate_limit" || !this.#learned.isKnown) {
        this.#width = Math.max(1, Math.floor(this.#width / 2));
      }
    }
    const firstMs = this.#learned.isKnown ? this.#learned.msPerCall : FIRST_HOLD_MS;
    const ownMs = Math.min(MAX_HOLD_MS, firstMs * 2 ** (this.#refusedWaves - 1));
    this.#hold(retryAfterMs ?? ownMs);
  }

  #learnRate(admittedAtMs: number): void {
    const wasKnown = this.#learned.isKnown;
    this.#learned.refused(admittedAtMs);
    // The width was narrowed for want of knowing better.
    if (!wasKnown && this.#learned.isKnown) this.#width = this.maxWidth;
  }

  #readHeaders(headers: ResponseHeaders): void {
    for (const what of ["requests", "tokens"]) {
      if (headerText(headers[`x-ratelimit-remaining-${what}`]) !== "0") continue;
      const resetMs = parseDuration(headerText(headers[`x-ratelimit-reset-${what}`]));
      if (resetMs !== undefined) this.#hold(Math.min(resetMs, MAX_HOLD_MS));
    }
  }

  #hold(ms: number): void {
    this.#heldUntilMs = Math.max(this.#heldUntilMs, this.#clock.monotonic() + ms);
  }
}

/** The output of a call before any call has told: a short report. */
const FIRST_OUTPUT_TOKENS = 200;
/** How much the newest answer moves the estimate of the next one's output. */
const OUTPUT_WEIGHT = 0.2;
/** The first wait after a refusal that names none; it doubles with every wave of refusals. */
const FIRST_HOLD_MS = 500;
/** The longest one; also the longest that a header about what is left is believed. */
const MAX_HOLD_MS = 60_000;

interface Waiter {
  estimateTokens: () => number;
  admit: (permit: CallPermit) => void;
}

/** Two refusals that are closer, or with fewer calls between them, tell little about the rate. */
const SHORTEST_SPAN_MS = 1_000;
const FEWEST_CALLS = 5;
/** A little below what was seen, so that what is saved up answers for what comes unevenly. */
const LEARNED_SHARE = 0.99;
/** Each second without a refusal the pace rises by this share: what the API gives now may be more than it gave then. */
const RISE_PER_SECOND = 0.002;
/** After so many seconds without a refusal it rises twice as fast, after twice as many three times, and so on. */
const FASTER_RISE_SECONDS = 5;

/**
 * The rate that the API was seen to allow. At each refusal for the rate its bucket is empty, so between two of them it gave
 * exactly what flows in: the calls in between that were not refused.
 */
class LearnedRate {
  nextAtMs = 0;
  msPerCall = 0;
  #emptyAtMs: number | null = null;
  #given = 0;
  #risenAtMs = 0;
  #refusedAtMs = 0;

  get isKnown(): boolean {
    return this.msPerCall > 0;
  }

  admitted(now: number): void {
    this.#given++;
    if (!this.isKnown) return;
    const quietSeconds = (now - this.#refusedAtMs) / 1000;
    const seconds = (now - this.#risenAtMs) / 1000;
    this.#risenAtMs = now;
    this.msPerCall /= 1 + RISE_PER_SECOND * seconds * (1 + quietSeconds / FASTER_RISE_SECONDS);
    this.nextAtMs = Math.max(now, this.nextAtMs) + this.msPerCall;
  }

  refused(admittedAtMs: number): void {
    // Calls from before the last refusal met the same empty bucket.
    if (this.#emptyAtMs !== null && admittedAtMs <= this.#emptyAtMs) return;
    this.#given--;
    if (this.#emptyAtMs === null) {
      this.#emptyAtMs = admittedAtMs;
      this.#given = 0;
      return;
    }
    const spanMs = admittedAtMs - this.#emptyAtMs;
    if (spanMs < SHORTEST_SPAN_MS || this.#given < FEWEST_CALLS) return;
    this.msPerCall = spanMs / this.#given / LEARNED_SHARE;
    this.#risenAtMs = admittedAtMs;
    this.#refusedAtMs = admittedAtMs;
    this.#emptyAtMs = admittedAtMs;
    this.#given = 0;
  }
}

/** Spreads a rate evenly, so that no minute ever holds more than its share, wherever it begins. */
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

function headerText(value: string | string[] | undefined): string {
  return (Array.isArray(value) ? value[0] : value) ?? "";
}

const UNIT_MS: Readonly<Record<string, number>> = { ms: 1, s: 1_000, m: 60_000, h: 3_600_000, d: 86_400_000 };

/** `120ms`, `1.5s`, `6m0s`, `1h2m3s`, or plain seconds. */
export function parseDuration(text: string): number | undefined {
  if (/^\d+(\.\d+)?$/.test(text)) return Number(text) * 1_000;
  if (!/^(\d+(\.\d+)?(ms|s|m|h|d))+$/.test(text)) return undefined;
  let total = 0;
  for (const [, amount, unit] of text.matchAll(/(\d+(?:\.\d+)?)(ms|s|m|h|d)/g)) {
    total += Number(amount) * (UNIT_MS[unit ?? ""] ?? 0);
  }
  return total;
}
