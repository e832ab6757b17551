import type { Clock, Timer } from "./clock.ts";
import type { MemoryBudget } from "./memory-budget.ts";

/** Share of the budget that must be charged or released before the resident memory is checked again. */
const CHECK_SHARE = 1 / 16;
/** Share of the budget by which the resident memory may exceed the charged bytes before a collection. */
const EXCESS_SHARE = 1 / 8;
/** Largest share of the budget that is charged for the excess, so that clients can always use the rest. */
const MAX_CHARGED_SHARE = 1 / 2;
/** Minimum time between collections: absolute, and relative to the duration of the last one, to bound their CPU time. */
const MIN_INTERVAL_MS = 1000;
const MIN_INTERVAL_FACTOR = 20;
/** Interval of checks without a collection, until nothing is charged. */
const RECHECK_INTERVAL_MS = 10_000;

export interface GarbagePressureOptions {
  budget: MemoryBudget;
  clock: Clock;
  /** Returns the resident memory of this process. */
  residentBytes: () => number;
  /** Collects garbage and returns free memory to the system. */
  collect: () => void;
}

/**
 * Keeps the resident memory near the charged bytes. V8 collects by the growth of its heap, so buffers that the budget no
 * longer counts could exceed it: this class then collects garbage. Memory that stays resident after a collection, such as
 * the objects of processes and connections, is charged to the budget, which evicts retained output in return. Clients
 * cause at most one collection per second, and at most 5% of the CPU time.
 */
export class GarbagePressure {
  readonly #options: GarbagePressureOptions;
  readonly #baseBytes: number;
  #chargedBytes = 0;
  #nextAtMs = Number.NEGATIVE_INFINITY;
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

  /** Checks in a separate turn, because a release may happen in the middle of an eviction. */
  readonly #checkSoon = () => this.#checkAfter(0, { collects: true });

  #checkAfter(ms: number, options: { collects: boolean }): void {
    this.#timer?.cancel();
    this.#timer = this.#options.clock.after(ms, () => this.#check(options), { keepAlive: false });
  }

  /** Resident memory without a charge, beyond an eighth of the budget. */
  #excessBytes(): number {
    const { budget, residentBytes } = this.#options;
    const charged = budget.bytes - this.#chargedBytes;
    return Math.max(0, residentBytes() - this.#baseBytes - charged - budget.maxBytes * EXCESS_SHARE);
  }

  #check({ collects }: { collects: boolean }): void {
    const { clock, collect } = this.#options;
    const startedAtMs = clock.monotonic();
    let excessBytes = this.#excessBytes();
    const isDue = startedAtMs >= this.#nextAtMs;
    const mustCollect = collects && excessBytes > 0;
    if (mustCollect && isDue) {
      collect();
      const endedAtMs = clock.monotonic();
      this.#nextAtMs = endedAtMs + Math.max(MIN_INTERVAL_MS, (endedAtMs - startedAtMs) * MIN_INTERVAL_FACTOR);
      excessBytes = this.#excessBytes();
      this.#charge(excessBytes);
    } else this.#charge(Math.min(excessBytes, this.#chargedBytes));
    this.#waitForChange();
    if (mustCollect && !isDue) this.#checkAfter(this.#nextAtMs - startedAtMs, { collects: true });
    // Without further changes, the charge would outlast the memory.
    else if (this.#chargedBytes > 0) this.#checkAfter(RECHECK_INTERVAL_MS, { collects: false });
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
