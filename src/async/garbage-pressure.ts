import type { Clock, Timer } from "./clock.ts";
import type { MemoryBudget } from "./memory-budget.ts";

/** Minimum time between two trims of the allocator, and between two collections, which block the event loop. */
const MIN_TRIM_INTERVAL_MS = 100;
const MIN_COLLECTION_INTERVAL_MS = 1000;
/** Minimum time between two, relative to the duration of the last one, to bound their CPU time. */
const MIN_INTERVAL_FACTOR = 20;
/** Interval of checks without a collection, until nothing is charged. */
const RECHECK_INTERVAL_MS = 10_000;
/** Share of the budget that must be charged or released before the resident memory is checked again. */
const CHECK_SHARE = 1 / 32;
/** Share of the budget by which the resident memory may exceed the charged bytes before a collection. */
const EXCESS_SHARE = 1 / 16;
/** Largest share of the budget that is charged for the excess, so that clients can always use the rest. */
const MAX_CHARGED_SHARE = 1 / 2;

export interface GarbagePressureOptions {
  budget: MemoryBudget;
  clock: Clock;
  /** Returns the resident memory of this process. */
  residentBytes: () => number;
  /** Returns free memory to the system, after a garbage collection if `collects` is set. */
  releaseMemory: (collects: boolean) => void;
}

/**
 * Keeps the resident memory near the charged bytes. V8 collects by the growth of its heap, so buffers that the budget no
 * longer counts could exceed it: this class then returns free memory to the system, and collects garbage if that is not
 * enough. Memory that stays resident, such as the objects of processes and connections, is charged to the budget, which
 * evicts retained output in return. Clients cause at most one collection per second, and at most 5% of the CPU time.
 */
export class GarbagePressure {
  readonly #options: GarbagePressureOptions;
  readonly #baseBytes: number;
  #chargedBytes = 0;
  #nextTrimAtMs = Number.NEGATIVE_INFINITY;
  #nextCollectionAtMs = Number.NEGATIVE_INFINITY;
  #timer: Timer | null = null;

  constructor(options: GarbagePressureOptions) {
    this.#options = options;
    this.#baseBytes = options.residentBytes();
    this.#waitForChange();
  }

  #waitForChange(): void {
    const { budget } = this.#options;
    budget.afterRelease(budget.maxBytes * CHECK_SHARE, this.#checkSoon);
    budget.afterGrowth(budget.maxBytes * CHECK_SHARE, this.#checkSoon);
  }

  /** Checks in a separate tick, because a release may happen in the middle of an eviction. */
  readonly #checkSoon = () => this.#checkAfter(0, { collects: true });

  #checkAfter(ms: number, options: { collects: boolean }): void {
    this.#timer?.cancel();
    this.#timer = this.#options.clock.after(ms, () => this.#check(options), { keepAlive: false });
  }

  /** Resident memory without a charge, beyond a sixteenth of the budget. */
  #excessBytes(): number {
    const { budget, residentBytes } = this.#options;
    const charged = budget.bytes - this.#chargedBytes;
    return Math.max(0, residentBytes() - this.#baseBytes - charged - budget.maxBytes * EXCESS_SHARE);
  }

  #check({ collects }: { collects: boolean }): void {
    const nowMs = this.#options.clock.monotonic();
    const excessBytes = this.#excessBytes();
    let waitMs: number | null = null;
    if (!collects || excessBytes === 0) this.#charge(Math.min(excessBytes, this.#chargedBytes));
    else if (nowMs < this.#nextTrimAtMs) waitMs = this.#nextTrimAtMs - nowMs;
    else {
      this.#trim();
      const isDue = nowMs >= this.#nextCollectionAtMs;
      if (isDue && this.#excessBytes() > 0) this.#collect();
      this.#charge(this.#excessBytes());
      if (!isDue && this.#chargedBytes > 0) waitMs = this.#nextCollectionAtMs - nowMs;
    }
    this.#waitForChange();
    if (waitMs !== null) this.#checkAfter(waitMs, { collects: true });
    // Without further changes, the charge would outlast the memory.
    else if (this.#chargedBytes > 0) this.#checkAfter(RECHECK_INTERVAL_MS, { collects: false });
  }

  #trim(): void {
    this.#nextTrimAtMs = this.#release(false, MIN_TRIM_INTERVAL_MS);
  }

  #collect(): void {
    this.#nextCollectionAtMs = this.#release(true, MIN_COLLECTION_INTERVAL_MS);
  }

  /** Releases memory. Returns the time of the next release. */
  #release(collects: boolean, minIntervalMs: number): number {
    const { clock, releaseMemory } = this.#options;
    const startedAtMs = clock.monotonic();
    releaseMemory(collects);
    const endedAtMs = clock.monotonic();
    return endedAtMs + Math.max(minIntervalMs, (endedAtMs - startedAtMs) * MIN_INTERVAL_FACTOR);
  }

  #charge(excessBytes: number): void {
    const { budget } = this.#options;
    const bytes = Math.min(excessBytes, budget.maxBytes * MAX_CHARGED_SHARE);
    const growth = bytes - this.#chargedBytes;
    this.#chargedBytes = bytes;
    if (growth > 0) budget.charge(growth);
    else budget.release(-growth);
  }
}
