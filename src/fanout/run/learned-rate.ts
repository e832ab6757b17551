/** A wave: so many of the newest calls were refused that the API takes next to nothing. Strays never come so close. */
const RECENT_CALLS = 16;
const WAVE_REFUSALS = 12;
/** So long after a wave it is certain that there is a limit. */
const WAVE_REMEMBERED_MS = 120_000;
/** After a wave without a Retry-After nothing is sent for so long; it doubles with every probe that is refused. */
const FIRST_HOLD_MS = 500;
/** The longest of those waits: a limit by the minute is noticed soon after its minute is over. */
const MAX_HOLD_MS = 10_000;

/** The pace after a first wave, and how much faster it gets in a second until it is refused. */
const SEARCH_MS_PER_CALL = 500;
const SEARCH_GROWTH_PER_SECOND = 1.3;
/** How much too fast it may be when it is refused for the first time. */
const OVERSHOOT = 1.1;

/** A share of refusals is measured over so many calls, over so many refusals, or over the few that come in a long time. */
const MEASURED_MS = 1_000;
const MEASURED_CALLS = 20;
const TELLING_REFUSALS = 4;
const LONG_MEASURED_MS = 10_000;
const FEW_MEASURED_CALLS = 5;
/** Whether a cut has helped is judged over more, or over fewer of which none is refused. */
const JUDGED_CALLS = 60;
const CLEAN_CALLS = 30;
/** Refusals up to this share are no reason to slow down. */
const TOLERATED_SHARE = 0.02;
/** A little below what was seen, so that calls that come unevenly find something saved up. */
const KEPT_SHARE = 0.99;

/** Each second without a limit in sight the pace rises by this share: the API may give more now than it gave then. */
const RISE_PER_SECOND = 0.0005;
/** After so many seconds it rises twice as fast, after twice as many five times, after three times as many ten times … */
const FASTER_RISE_SECONDS = 10;

/** Cuts that follow each other within this time belong together: where they turn out to be no use, all are taken back. */
const EPISODE_MS = 30_000;
/** How much one call moves the share of calls that are usually refused. */
const USUAL_WEIGHT = 0.005;
/** So long refusals that no slower pace prevented count as strays; then it is tried again. */
const STRAYS_BELIEVED_MS = 60_000;
/** No API refuses more than this for no reason and is still worth asking; where there is a limit, it is to blame for most. */
const MOST_STRAYS = 0.3;
const MOST_STRAYS_AT_LIMIT = 0.05;

/** One call, as the pace sees it. */
export interface PacedCall {
  readonly window: CallWindow | null;
  isRefused: boolean;
}

/** Calls that were sent in a stretch of time, and how many of them were refused. */
interface CallWindow {
  readonly sinceMs: number;
  calls: number;
  refused: number;
  /** Set when the pace was cut at the beginning: the share that was refused before. Did the cut help? */
  readonly shareBefore: number | null;
}

/**
 * The rate that the API was seen to allow, learned from what it refuses.
 *
 * From a refusal on, for a second, the calls are counted that get through: of a bucket that is empty these are exactly what
 * flows in. That becomes the pace, if it was exceeded by more than a little. Then the next second is looked at. A limit
 * refuses nothing at the slower pace; where as many are refused as before, they were strays, and the pace is taken back.
 * Where nearly everything is refused nothing can be counted: one call at a time is sent until one gets through, and the pace
 * grows from low.
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
  /** Calls since the limit was last seen that were not refused: its bucket was empty then. */
  #givenSinceLimit = 0;
  #waveAtMs = Number.NEGATIVE_INFINITY;
  #recent: PacedCall[] = [];
  #window: CallWindow | null = null;
  #strays = { share: 0, untilMs: 0 };
  /** After a wave: one call at a time, until one gets through. */
  #probing: { call: PacedCall | null; refused: number } | null = null;

  /** When the next call may be sent; infinite while one has to come back first. */
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

  /** The API has taken the call, or it ended otherwise than by a refusal for the rate. */
  taken(call: PacedCall, now: number): void {
    if (this.#probing?.call !== call) return;
    this.#probing = null;
    this.#recent = [];
    this.#risenAtMs = now;
  }

  /** The API has refused the call for the rate. Tells for how long nothing should be sent; 0: the others may go on. */
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
    // Nothing got through: that tells no rate, and what comes next is a wave or none.
    if (refused === calls) return;
    if (shareBefore === null) this.#judgeRefusals(window, spanMs, now);
    else this.#judgeCut(window, shareBefore, spanMs, now);
  }

  /** Is too much refused? Then the pace becomes what gets through. */
  #judgeRefusals({ calls, refused }: CallWindow, spanMs: number, now: number): void {
    const strays = this.#believedStrays(now);
    // Strays come in clusters too: what is not clearly more than they are is theirs.
    const explained = calls * (strays + TOLERATED_SHARE) + 2 * Math.sqrt(calls * strays);
    if (refused <= explained) return;
    // All of these are lower bounds of what flows in: a bucket that saves nothing refuses half of a pace a little too fast.
    const callsPerMs = Math.max(
      (calls - refused) / spanMs,
      this.#givenSinceLimit / (now - this.#limitSeenAtMs),
      this.#isGrowing ? 1 / (this.#msPerCall * OVERSHOOT) : 0,
    );
    const firmShare = Math.max(this.#usualShare, (refused - Math.sqrt(refused)) / calls);
    if (refused - 2 * Math.sqrt(refused) > MOST_STRAYS * calls) this.#waveAtMs = now;
    this.#cut(callsPerMs / (1 - strays), firmShare, now);
  }

  /** Has the cut helped? Where it has not, the pace was not to blame. */
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
    // While something is being measured or probed, the pace stays.
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
