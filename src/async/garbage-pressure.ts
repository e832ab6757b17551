import type { Clock } from "./clock.ts";
import type { MemoryBudget } from "./memory-budget.ts";

/** Share of the budget that must be released before the resident memory is checked again. */
const CHECK_SHARE = 1 / 16;
/** Share of the budget by which the resident memory may exceed the charged bytes before a collection. */
const EXCESS_SHARE = 1 / 8;
/** Minimum time between collections: absolute, and relative to the duration of the last one, to bound their CPU time. */
const MIN_INTERVAL_MS = 1000;
const MIN_INTERVAL_FACTOR = 20;

export interface GarbagePressureOptions {
  budget: MemoryBudget;
  clock: Clock;
  /** Returns the resident memory of this process. */
  residentBytes: () => number;
  /** Collects garbage and returns free memory to the system. */
  collect: () => void;
}

/**
 * Collects garbage when released bytes stay resident. V8 collects by the growth of its heap, so buffers that the budget no
 * longer counts could exceed it. Clients cause at most one collection per second, and at most 5% of the CPU time.
 */
export class GarbagePressure {
  readonly #options: GarbagePressureOptions;
  readonly #baseBytes: number;
  #nextAtMs = Number.NEGATIVE_INFINITY;

  constructor(options: GarbagePressureOptions) {
    this.#options = options;
    this.#baseBytes = options.residentBytes();
    this.#waitForReleases();
  }

  #waitForReleases(): void {
    const { budget, clock } = this.#options;
    // Collects in a separate turn: a release may happen in the middle of an eviction.
    const check = () => void clock.after(0, () => this.#check(), { keepAlive: false });
    budget.afterRelease(budget.maxBytes * CHECK_SHARE, check);
  }

  #check(): void {
    const { budget, clock, residentBytes, collect } = this.#options;
    const startedAtMs = clock.monotonic();
    const excessBytes = residentBytes() - this.#baseBytes - budget.bytes;
    if (startedAtMs >= this.#nextAtMs && excessBytes > budget.maxBytes * EXCESS_SHARE) {
      collect();
      const endedAtMs = clock.monotonic();
      this.#nextAtMs = endedAtMs + Math.max(MIN_INTERVAL_MS, (endedAtMs - startedAtMs) * MIN_INTERVAL_FACTOR);
    }
    this.#waitForReleases();
  }
}
