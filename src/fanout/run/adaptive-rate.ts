/**
 * A wave: at least `WAVE_REFUSALS` of the newest `RECENT_CALLS` calls were rejected, so the API accepts almost nothing.
 * Stray rejections, which the rate does not cause, are never so dense.
 */
const RECENT_CALLS = 16;
const WAVE_REFUSALS = 12;
/** Time after a wave during which a rate limit is assumed to exist. */
const WAVE_REMEMBERED_MS = 120_000;
/** Pause after a wave without a Retry-After; it doubles with every rejected probe. */
const FIRST_HOLD_MS = 500;
/** Maximum pause, so that the end of a per-minute limit is noticed soon. */
const MAX_HOLD_MS = 10_000;

/** Call interval after a first wave. The rate then grows every second until a call is rejected. */
const SEARCH_MS_PER_CALL = 500;
const SEARCH_GROWTH_PER_SECOND = 1.3;
/** Factor by which the rate may exceed the limit at the first rejection. */
const OVERSHOOT = 1.1;

/** Minimum of a measurement: one second with this many calls or rejections, or ten seconds with a few calls. */
const MEASURED_MS = 1_000;
const MEASURED_CALLS = 20;
const MEASURED_REFUSALS = 4;
const LONG_MEASURED_MS = 10_000;
const FEW_MEASURED_CALLS = 5;
/** Number of calls after which a cut is judged; fewer suffice if none of them is rejected. */
const JUDGED_CALLS = 60;
const CLEAN_CALLS = 30;
/** Tolerated share of rejections. */
const TOLERATED_SHARE = 0.02;
/** Share of the measured rate that is used, so that the API's token bucket has reserves for uneven calls. */
const USED_RATE_SHARE = 0.99;

/** Growth of the rate per second without rejections, because the limit may have been raised. */
const RISE_PER_SECOND = 0.0005;
/**
 * After this many seconds the growth doubles, after twice as many it is fivefold, after three times as many tenfold …
 */
const FASTER_RISE_SECONDS = 10;

/** Cuts within this time form an episode. If they do not help, all of them are undone. */
const EPISODE_MS = 30_000;
/** Weight of one call in the moving average of the share of rejections. */
const BASELINE_WEIGHT = 0.005;
/** Time during which rejections that a lower rate did not prevent count as strays. Then a cut is tried again. */
const STRAYS_ASSUMED_MS = 60_000;
/** Maximum plausible share of stray rejections. If a limit is known to exist, it causes most rejections. */
const MAX_STRAY_SHARE = 0.3;
const MAX_STRAY_SHARE_AT_LIMIT = 0.05;

/** One call in the rate measurement. */
export interface PacedCall {
  readonly window: CallWindow | null;
  isRefused: boolean;
}

/** Calls sent in an interval, and how many of them were rejected. */
interface CallWindow {
  readonly sinceMs: number;
  calls: number;
  refused: number;
  /** Share of rejections before the cut that began this window; null if no cut did. */
  readonly shareBefore: number | null;
}

/**
 * The rate that the API allows, learned from its rejections.
 *
 * For a second after a rejection, accepted calls are counted: while the API's token bucket is empty, they equal its
 * refill rate. If the current rate clearly exceeds the refill rate, the rate is cut to it, and the next second is
 * measured. If a limit caused the rejections, they stop at the lower rate. If as many calls are rejected as before, the
 * rejections were strays, and the cut is undone.
 * If nearly every call is rejected, there is nothing to count: one call at a time is sent until one is accepted, and
 * the rate grows from a low value.
 */
export class AdaptiveRate {
  /** Interval between calls; 0: no limit is known. */
  #msPerCall = 0;
  #nextAtMs = 0;
  #isGrowing = false;
  #risenAtMs = 0;
  #limitSeenAtMs = Number.NEGATIVE_INFINITY;
  /** Interval before the cuts of this episode. */
  #msPerCallBefore = 0;
  #baselineRejectionShare = 0;
  /** Calls accepted since the limit was last reached, when its bucket was empty. */
  #acceptedSinceLimit = 0;
  #waveAtMs = Number.NEGATIVE_INFINITY;
  #recent: PacedCall[] = [];
  #window: CallWindow | null = null;
  #strays = { share: 0, untilMs: 0 };
  /** Set after a wave: one call at a time, until one is accepted. */
  #probing: { call: PacedCall | null; refused: number } | null = null;

  /** When the next call may be sent, unless a probe is in flight. */
  get nextAtMs(): number {
    return this.#nextAtMs;
  }

  /** True while one call probes the limit. No other call may be sent. */
  get isProbeInFlight(): boolean {
    return (this.#probing?.call ?? null) !== null;
  }

  /** Records a call that is sent now. */
  recordCall(now: number): PacedCall {
    this.#evaluateWindow(now);
    const call: PacedCall = { window: this.#window, isRefused: false };
    if (this.#probing) this.#probing.call = call;
    if (this.#window) this.#window.calls++;
    this.#acceptedSinceLimit++;
    this.#baselineRejectionShare *= 1 - BASELINE_WEIGHT;
    this.#recent.push(call);
    if (this.#recent.length > RECENT_CALLS) this.#recent.shift();
    if (this.#msPerCall > 0) {
      this.#rise(now);
      this.#nextAtMs = Math.max(now, this.#nextAtMs) + this.#msPerCall;
    }
    return call;
  }

  /** Called when the API accepted the call, or when it ended in another way than by a rate limit. */
  onSent(call: PacedCall, now: number): void {
    if (this.#probing?.call !== call) return;
    this.#probing = null;
    this.#recent = [];
    this.#risenAtMs = now;
  }

  /**
   * Called when the API rejected the call for its rate. Returns how long to send nothing; 0: other calls may continue.
   */
  onRateLimited(call: PacedCall, now: number): number {
    call.isRefused = true;
    if (call.window) call.window.refused++;
    this.#acceptedSinceLimit--;
    this.#baselineRejectionShare += BASELINE_WEIGHT;
    if (this.#probing) {
      if (this.#probing.call !== call) return 0;
      this.#probing.call = null;
      this.#probing.refused++;
      return this.#probeDelayMs(this.#probing.refused);
    }
    if (this.#recent.filter(({ isRefused }) => isRefused).length >= WAVE_REFUSALS) return this.#startProbing(now);
    this.#window ??= { sinceMs: now, calls: 0, refused: 0, shareBefore: null };
    this.#evaluateWindow(now);
    return 0;
  }

  #startProbing(now: number): number {
    const window = this.#window;
    const isMeasured = window && window.shareBefore === null && now - window.sinceMs >= MEASURED_MS / 2;
    const accepted = window ? window.calls - window.refused : 0;
    if (isMeasured && accepted >= FEW_MEASURED_CALLS) this.#msPerCall = (now - window.sinceMs) / accepted;
    else if (this.#msPerCall > 0) this.#msPerCall *= 2;
    else this.#msPerCall = SEARCH_MS_PER_CALL;
    this.#isGrowing = true;
    this.#risenAtMs = now;
    this.#onLimit(now);
    this.#waveAtMs = now;
    this.#window = null;
    this.#nextAtMs = now;
    this.#probing = { call: null, refused: 0 };
    return this.#probeDelayMs(0);
  }

  #probeDelayMs(refused: number): number {
    return Math.min(MAX_HOLD_MS, FIRST_HOLD_MS * 2 ** refused);
  }

  #evaluateWindow(now: number): void {
    const window = this.#window;
    if (!window) return;
    const { calls, refused, shareBefore } = window;
    const spanMs = now - window.sinceMs;
    const enoughCalls = shareBefore === null ? MEASURED_CALLS : refused === 0 ? CLEAN_CALLS : JUDGED_CALLS;
    const enoughRefusals = shareBefore === null ? MEASURED_REFUSALS : 2 * MEASURED_REFUSALS;
    const isComplete =
      (spanMs >= MEASURED_MS && (calls >= enoughCalls || refused >= enoughRefusals)) ||
      (spanMs >= LONG_MEASURED_MS && calls >= FEW_MEASURED_CALLS);
    if (!isComplete) return;
    this.#window = null;
    this.#risenAtMs = now;
    // No call was accepted, so there is no rate to measure. The next rejections decide whether this is a wave.
    if (refused === calls) return;
    if (shareBefore === null) this.#evaluateRejections(window, spanMs, now);
    else this.#evaluateCut(window, shareBefore, spanMs, now);
  }

  /** Sets the rate to that of accepted calls if too many calls were rejected. */
  #evaluateRejections({ calls, refused }: CallWindow, spanMs: number, now: number): void {
    const strays = this.#strayShare(now);
    // Strays come in clusters too: only clearly more rejections than they explain count as a limit.
    const explained = calls * (strays + TOLERATED_SHARE) + 2 * Math.sqrt(calls * strays);
    if (refused <= explained) return;
    // Each value is a lower bound of the refill rate: a bucket without reserves rejects half the calls of a slightly
    // excessive rate.
    const callsPerMs = Math.max(
      (calls - refused) / spanMs,
      this.#acceptedSinceLimit / (now - this.#limitSeenAtMs),
      this.#isGrowing ? 1 / (this.#msPerCall * OVERSHOOT) : 0,
    );
    const firmShare = Math.max(this.#baselineRejectionShare, (refused - Math.sqrt(refused)) / calls);
    if (refused - 2 * Math.sqrt(refused) > MAX_STRAY_SHARE * calls) this.#waveAtMs = now;
    this.#cut(callsPerMs / (1 - strays), firmShare, now);
  }

  /** Checks whether the cut helped. If not, the rate did not cause the rejections. */
  #evaluateCut({ calls, refused }: CallWindow, shareBefore: number, spanMs: number, now: number): void {
    const strays = this.#strayShare(now);
    const share = refused / calls;
    if (refused === 0 || share - strays < ((shareBefore - strays) * 2) / 3) return;
    const isLimited = now - this.#waveAtMs < WAVE_REMEMBERED_MS;
    if (isLimited && share > MAX_STRAY_SHARE_AT_LIMIT) {
      this.#cut((calls - refused) / spanMs, shareBefore, now);
      return;
    }
    this.#strays = { share: Math.min(share, MAX_STRAY_SHARE), untilMs: now + STRAYS_ASSUMED_MS };
    if (isLimited) return;
    this.#msPerCall = this.#msPerCallBefore;
    this.#nextAtMs = now;
    this.#isGrowing = false;
  }

  #strayShare(now: number): number {
    return now < this.#strays.untilMs ? this.#strays.share : 0;
  }

  #cut(callsPerMs: number, shareBefore: number, now: number): void {
    if (now - this.#limitSeenAtMs > EPISODE_MS) this.#msPerCallBefore = this.#msPerCall;
    this.#isGrowing = false;
    this.#msPerCall = Math.max(this.#msPerCall, 1 / callsPerMs / USED_RATE_SHARE);
    this.#onLimit(now);
    this.#window = { sinceMs: now, calls: 0, refused: 0, shareBefore };
  }

  #onLimit(now: number): void {
    this.#limitSeenAtMs = now;
    this.#acceptedSinceLimit = 0;
  }

  #rise(now: number): void {
    // While measuring or probing, the rate does not change.
    if (this.#window || this.#probing) {
      this.#risenAtMs = now;
      return;
    }
    const seconds = Math.max(0, now - this.#risenAtMs) / 1_000;
    this.#risenAtMs = now;
    if (this.#isGrowing) {
      this.#msPerCall /= SEARCH_GROWTH_PER_SECOND ** seconds;
      return;
    }
    const quietSeconds = (now - this.#limitSeenAtMs) / 1_000;
    this.#msPerCall /= 1 + RISE_PER_SECOND * seconds * (1 + (quietSeconds / FASTER_RISE_SECONDS) ** 2);
  }
}
