/** Random numbers from a seed, identical on every host. */
export class Random {
  #state: number;

  constructor(seed: number) {
    // Adjacent seeds must produce different sequences.
    this.#state = Math.imul(seed ^ 0x9e3779b9, 0x85ebca6b) >>> 0;
    for (let round = 0; round < 4; round++) this.next();
  }

  /** Returns a number from 0 to below 1. */
  next(): number {
    this.#state = (this.#state + 0x6d2b79f5) >>> 0;
    let mixed = Math.imul(this.#state ^ (this.#state >>> 15), this.#state | 1);
    mixed ^= mixed + Math.imul(mixed ^ (mixed >>> 7), mixed | 61);
    return ((mixed ^ (mixed >>> 14)) >>> 0) / 2 ** 32;
  }

  /** Returns an integer from `low` to `high`, both included. */
  int(low: number, high: number): number {
    return low + Math.floor(this.next() * (high - low + 1));
  }

  /** Logarithmic distribution: every power of two in the range is equally likely. */
  scaled(low: number, high: number): number {
    return Math.min(high, Math.floor(low * (high / low + 1) ** this.next()));
  }

  chance(probability: number): boolean {
    return this.next() < probability;
  }

  pick<const T>(choices: readonly [T, ...T[]]): T {
    return choices[this.int(0, choices.length - 1)] ?? choices[0];
  }

  /** Returns an independent generator for a component, so that components do not affect each other. */
  fork(): Random {
    return new Random(Math.floor(this.next() * 2 ** 32));
  }
}
