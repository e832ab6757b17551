/** Random numbers from a seed: the same seed gives the same numbers, on every machine. */
export class Random {
  #state: number;

  constructor(seed: number) {
    // Neighbouring seeds must not begin alike.
    this.#state = Math.imul(seed ^ 0x9e3779b9, 0x85ebca6b) >>> 0;
    for (let round = 0; round < 4; round++) this.next();
  }

  /** From 0 to below 1. */
  next(): number {
    this.#state = (this.#state + 0x6d2b79f5) >>> 0;
    let mixed = Math.imul(this.#state ^ (this.#state >>> 15), this.#state | 1);
    mixed ^= mixed + Math.imul(mixed ^ (mixed >>> 7), mixed | 61);
    return ((mixed ^ (mixed >>> 14)) >>> 0) / 2 ** 32;
  }

  /** A whole number from `low` to `high`, both included. */
  int(low: number, high: number): number {
    return low + Math.floor(this.next() * (high - low + 1));
  }

  /** Small numbers as often as large ones: every power of two between the two is as likely. */
  scaled(low: number, high: number): number {
    return Math.min(high, Math.floor(low * (high / low + 1) ** this.next()));
  }

  chance(probability: number): boolean {
    return this.next() < probability;
  }

  pick<const T>(choices: readonly [T, ...T[]]): T {
    return choices[this.int(0, choices.length - 1)] ?? choices[0];
  }

  /** Numbers of its own for a part, so that what one part asks for does not change what another gets. */
  fork(): Random {
    return new Random(Math.floor(this.next() * 2 ** 32));
  }
}
