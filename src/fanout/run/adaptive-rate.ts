/** A wave: this many of the newest calls were refused, so the API accepts almost nothing. Stray refusals are never so dense. */
const RECENT_CALLS = 16;
const WAVE_REFUSALS = 12;
/** For this long after a wave a rate limit is assumed to exist. */
const WAVE_REMEMBERED_MS = 120_000;
/** Pause after a wave without a Retry-After; it doubles with every refused probe. */
const FIRST_HOLD_MS = 500;
/** The longest such pause, so that the end of a per-minute limit is noticed soon after its minute is over. */
const MAX_HOLD_MS = 10_000;

/** The pace after a first wave, and its growth per second until a call is refused. */
const SEARCH_MS_PER_CALL = 500;
const SEARCH_GROWTH_PER_SECOND = 1.3;
/** How far the pace may exceed the limit at the first refusal. */
const OVERSHOOT = 1.1;

/** The share of refusals is measured over this many calls or refusals, or over fewer calls in a longer time. */
const MEASURED_MS = 1_000;
const MEASURED_CALLS = 20;
const TELLING_REFUSALS = 4;
const LONG_MEASURED_MS = 10_000;
const FEW_MEASURED_CALLS = 5;
/** Whether a cut has helped is judged over more calls, or over fewer if none of them is refused. */
const JUDGED_CALLS = 60;
const CLEAN_CALLS = 30;
/** Refusals up to this share are no reason to slow down. */
const TOLERATED_SHARE = 0.02;
/** The pace is set slightly below the measured rate, so that the bucket has reserves for uneven calls. */
const KEPT_SHARE = 0.99;

/** Each second without refusals the pace rises by this share: the API's limit may have been raised. */
const RISE_PER_SECOND = 0.0005;
/** After this many seconds it rises twice as fast, after twice as many five times, after three times as many ten times … */
const FASTER_RISE_SECONDS = 10;

/** Cuts within this time of each other form an episode: if they do not help, all of them are undone. */
const EPISODE_MS = 30_000;
/** Weight of one call in the moving average of the usual share of refusals. */
const USUAL_WEIGHT = 0.005;
/** For this long, refusals that a slower pace did not prevent count as strays; then a cut is tried again. */
const STRAYS_BELIEVED_MS = 60_000;
/** The largest believable share of stray refusals; where a limit is known to exist, it causes most refusals. */
const MOST_STRAYS = 0.3;
const MOST_STRAYS_AT_LIMIT = 0.05;

/** One call, as the rate measurement sees it. */
export interface PacedCall {
  readonly window: CallWindow | null;
  isRefused: boolean;
}

/** Calls sent in a span of time, and how many of them were refused. */
interface CallWindow {
  readonly sinceMs: number;
  calls: number;
  refused: number;
  /** Set when the window began with a cut: the share refused before, to judge whether the cut helped. */
  readonly shareBefore: number | null;
}

/**
 * The rate that the API allows, learned from its refusals.
 *
 * For a second after a refusal the accepted calls are counted: while the API's bucket is empty, they are exactly what
 * flows in. That rate becomes the pace, if it was exceeded by more than a little. Then the next second is measured. A limit
 * refuses nothing at the slower pace; if as many are refused as before, they were strays, and the cut is undone.
 * When nearly everything is refused there is nothing to count: one call at a time is sent until one is accepted, and the pace
 * grows from a low value.
 */
export class LearnedRate {
  /** 0: no limit is known. */
  #msPerCall = 0;
  #nextAtMs = 0;
  #isGrowing = false;
  #risenAtMs = 0;
  #limitSeenAtMs = Number.NEGATIVE_INFINITY;
  /** The pace before the cuts of this episode. */
  #msPerCallBefore = 0;
  #usualShare = 0;
  /** Calls accepted since the limit was last seen, when its bucket was empty. */
  #givenSinceLimit = 0;
  #waveAtMs = Number.NEGATIVE_INFINITY;
  #recent: PacedCall[] = [];
  #window: CallWindow | null = null;
  #strays = { share: 0, untilMs: 0 };
  /** After a wave: one call at a time, until one is accepted. */
  #probing: { call: PacedCall | null; refused: number } | null = null;

  /** When the next call may be sent; infinite while a probe has to return first. */
  get nextAtMs(): number {
    return this.#probing?.call ? Number.POSITIVE_INFINITY : this.#nextAtMs;
  }

  admitted(now: number): PacedCall {
    this.#judgeWindow(now);
    const call: PacedCall = { window: this.#window, isRefused: false };
    if (this.#probing) this.#probing.call = call;
    if (this.#window) this.#window.calls++;
    this.#givenSinceLimit++;
    this.#usualShare *= 1 - USUAL_WEIGHT;
    this.#recent.push(call);
    if (this.#recent.length > RECENT_CALLS) this.#recent.shift();
    if (this.#msPerCall > 0) {
      this.#rise(now);
      this.#nextAtMs = Math.max(now, this.#nextAtMs) + this.#msPerCall;
    }
    return call;
  }

  /** The API accepted the call, or it ended in another way than by a rate-limit refusal. */
  taken(call: PacedCall, now: number): void {
    if (this.#probing?.call !== call) return;
    this.#probing = null;
    this.#recent = [];
    this.#risenAtMs = now;
  }

  /** The API refused the call for its rate. Returns for how long nothing should be sent; 0: other calls may continue. */
  refused(call: PacedCall, now: number): number {
    call.isRefused = true;
    if (call.window) call.window.refused++;
    this.#givenSinceLimit--;
    this.#usualShare += USUAL_WEIGHT;
    if (this.#probing) {
      if (this.#probing.call !== call) return 0;
      this.#probing.call = null;
      this.#probing.refused++;
      return this.#probeHoldMs(this.#probing.refused);
    }
    if (this.#recent.filter(({ isRefused }) => isRefused).length >= WAVE_REFUSALS) return this.#stop(now);
    this.#window ??= { sinceMs: now, calls: 0, refused: 0, shareBefore: null };
    this.#judgeWindow(now);
    return 0;
  }

  #stop(now: number): number {
    const window = this.#window;
    const isMeasured = window && window.shareBefore === null && now - window.sinceMs >= MEASURED_MS / 2;
    const given = window ? window.calls - window.refused : 0;
    if (isMeasured && given >= FEW_MEASURED_CALLS) this.#msPerCall = (now - window.sinceMs) / given;
    else if (this.#msPerCall > 0) this.#msPerCall *= 2;
    else this.#msPerCall = SEARCH_MS_PER_CALL;
    this.#isGrowing = true;
    this.#risenAtMs = now;
    this.#sawLimit(now);
    this.#waveAtMs = now;
    this.#window = null;
    this.#nextAtMs = now;
    this.#probing = { call: null, refused: 0 };
    return this.#probeHoldMs(0);
  }

  #probeHoldMs(refused: number): number {
    return Math.min(MAX_HOLD_MS, FIRST_HOLD_MS * 2 ** refused);
  }

  #judgeWindow(now: number): void {
    const window = this.#window;
    if (!window) return;
    const { calls, refused, shareBefore } = window;
    const spanMs = now - window.sinceMs;
    const enough = shareBefore === null ? MEASURED_CALLS : refused === 0 ? CLEAN_CALLS : JUDGED_CALLS;
    const telling = shareBefore === null ? TELLING_REFUSALS : 2 * TELLING_REFUSALS;
    const isWhole =
      (spanMs >= MEASURED_MS && (calls >= enough || refused >= telling)) ||
      (spanMs >= LONG_MEASURED_MS && calls >= FEW_MEASURED_CALLS);
    if (!isWhole) return;
    this.#window = null;
    this.#risenAtMs = now;
    // No call was accepted, so there is no rate to measure; the next refusals decide whether it is a wave.
    if (refused === calls) return;
    if (shareBefore === null) this.#judgeRefusals(window, spanMs, now);
    else this.#judgeCut(window, shareBefore, spanMs, now);
  }

  /** If too many calls are refused, the pace becomes the rate of accepted calls. */
  #judgeRefusals({ calls, refused }: CallWindow, spanMs: number, now: number): void {
    const strays = this.#believedStrays(now);
    // Strays come in clusters too: only clearly more refusals than they explain count as a limit.
    const explained = calls * (strays + TOLERATED_SHARE) + 2 * Math.sqrt(calls * strays);
    if (refused <= explained) return;
    // Each is a lower bound of the inflow: a bucket without reserves refuses half the calls of a pace slightly too fast.
    const callsPerMs = Math.max(
      (calls - refused) / spanMs,
      this.#givenSinceLimit / (now - this.#limitSeenAtMs),
      this.#isGrowing ? 1 / (this.#msPerCall * OVERSHOOT) : 0,
    );
    const firmShare = Math.max(this.#usualShare, (refused - Math.sqrt(refused)) / calls);
    if (refused - 2 * Math.sqrt(refused) > MOST_STRAYS * calls) this.#waveAtMs = now;
    this.#cut(callsPerMs / (1 - strays), firmShare, now);
  }

  /** Judges whether the cut helped. If it did not, the pace was not the cause of the refusals. */
  #judgeCut({ calls, refused }: CallWindow, shareBefore: number, spanMs: number, now: number): void {
    const strays = this.#believedStrays(now);
    const share = refused / calls;
    if (refused === 0 || share - strays < ((shareBefore - strays) * 2) / 3) return;
    const isLimited = now - this.#waveAtMs < WAVE_REMEMBERED_MS;
    if (isLimited && share > MOST_STRAYS_AT_LIMIT) {
      this.#cut((calls - refused) / spanMs, shareBefore, now);
      return;
    }
    this.#strays = { share: Math.min(share, MOST_STRAYS), untilMs: now + STRAYS_BELIEVED_MS };
    if (isLimited) return;
    this.#msPerCall = this.#msPerCallBefore;
    this.#nextAtMs = now;
    this.#isGrowing = false;
  }

  #believedStrays(now: number): number {
    return now < this.#strays.untilMs ? this.#strays.share : 0;
  }

  #cut(callsPerMs: number, shareBefore: number, now: number): void {
    if (now - this.#limitSeenAtMs > EPISODE_MS) this.#msPerCallBefore = this.#msPerCall;
    this.#isGrowing = false;
    this.#msPerCall = Math.max(this.#msPerCall, 1 / callsPerMs / KEPT_SHARE);
    this.#sawLimit(now);
    this.#window = { sinceMs: now, calls: 0, refused: 0, shareBefore };
  }

  #sawLimit(now: number): void {
    this.#limitSeenAtMs = now;
    this.#givenSinceLimit = 0;
  }

  #rise(now: number): void {
    // While measuring or probing, the pace does not change.
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
