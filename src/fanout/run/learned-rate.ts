/** Two refusals that are closer, or with fewer calls between them, tell little about the rate. */
const SHORTEST_SPAN_MS = 1_000;
const FEWEST_CALLS = 5;
/** A little below what was seen, so that what is saved up answers for what comes unevenly. */
const LEARNED_SHARE = 0.99;
/** Each second without a refusal the pace rises by this share: what the API gives now may be more than it gave then. */
const RISE_PER_SECOND = 0.002;
/** After so many seconds without a refusal it rises twice as fast, after twice as many three times, and so on. */
const FASTER_RISE_SECONDS = 5;
/** The pace after the first refusal, from which it grows until the next one. */
const FIRST_PACE_MS = 500;
/** How many times faster the pace gets in a second while it is looked for. */
const GROWTH_PER_SECOND = 1.5;

/** How much faster than what flows in the pace may be when its growth is refused. */
const OVERSHOOT = 1.1;

/**
 * The rate that the API was seen to allow. At each refusal for the rate its bucket is empty, so between two of them it gave
 * exactly what flows in, unless the bucket was full in between: the calls that were not refused. After the first refusal
 * the pace starts low and grows until it is refused; from then on it stays close to what was seen.
 */
export class LearnedRate {
  nextAtMs = 0;
  /** 0: nothing was ever refused. */
  msPerCall = 0;
  #isGrowing = false;
  #emptyAtMs: number | null = null;
  #given = 0;
  #risenAtMs = 0;
  #refusedAtMs = 0;

  admitted(now: number): void {
    this.#given++;
    if (this.msPerCall === 0) return;
    this.#rise(now);
    this.nextAtMs = Math.max(now, this.nextAtMs) + this.msPerCall;
  }

  refused(admittedAtMs: number): void {
    // Calls from before the last refusal met the same empty bucket.
    if (this.#emptyAtMs !== null && admittedAtMs <= this.#emptyAtMs) return;
    this.#given--;
    if (this.#emptyAtMs === null) {
      this.#isGrowing = true;
      this.#settle(admittedAtMs, FIRST_PACE_MS);
      return;
    }
    const spanMs = admittedAtMs - this.#emptyAtMs;
    if (spanMs < SHORTEST_SPAN_MS) return;
    if (this.#given < FEWEST_CALLS) {
      this.#slowDown();
      return;
    }
    const seenMs = spanMs / this.#given;
    // A bucket that saves little was full while the pace was slower than what flows in: then the pace tells more.
    const ms = this.#isGrowing ? Math.min(seenMs, this.msPerCall * OVERSHOOT) : seenMs;
    this.#isGrowing = false;
    this.#settle(admittedAtMs, ms / LEARNED_SHARE);
  }

  #settle(atMs: number, msPerCall: number): void {
    this.msPerCall = msPerCall;
    this.#emptyAtMs = atMs;
    this.#risenAtMs = atMs;
    this.#refusedAtMs = atMs;
    this.#given = 0;
  }

  /** Hardly anything was given in all that time: the pace is far too fast. */
  #slowDown(): void {
    this.msPerCall *= GROWTH_PER_SECOND;
    this.#isGrowing = false;
  }

  #rise(now: number): void {
    const seconds = Math.max(0, now - this.#risenAtMs) / 1000;
    this.#risenAtMs = now;
    if (this.#isGrowing) {
      this.msPerCall /= GROWTH_PER_SECOND ** seconds;
      return;
    }
    const quietSeconds = (now - this.#refusedAtMs) / 1000;
    this.msPerCall /= 1 + RISE_PER_SECOND * seconds * (1 + quietSeconds / FASTER_RISE_SECONDS);
  }
}
