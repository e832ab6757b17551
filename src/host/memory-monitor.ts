import type { Clock, Timer } from "../async/clock.ts";
import type { MemoryBudget } from "../async/memory-budget.ts";
import type { MemoryLimit } from "../local/tree/cgroup-memory.ts";

/** Largest default budget, and its share of a smaller memory limit. The rest is for the heap and the processes. */
const MAX_DEFAULT_BUDGET_BYTES = 512 * 1024 * 1024;
const BUDGET_SHARE = 0.4;

/** Returns the default memory budget of a server. `limitBytes` is null if nothing limits its memory. */
export function defaultMemoryBudget(limitBytes: number | null): number {
  if (limitBytes === null) return MAX_DEFAULT_BUDGET_BYTES;
  return Math.min(MAX_DEFAULT_BUDGET_BYTES, Math.floor(limitBytes * BUDGET_SHARE));
}

/** Share of the limit above which the monitor lowers the budget, and below which it raises the budget again. */
const HIGH_SHARE = 0.85;
const LOW_SHARE = 0.75;
/** The budget is never lower than this, so that requests still succeed. */
const MIN_BUDGET_BYTES = 8 * 1024 * 1024;
/** Growth between two checks: a quarter of the free memory, at least this. */
const MIN_GROWTH_BYTES = 1024 * 1024;
/** Interval of the checks while the budget is lowered. */
const CHECK_INTERVAL_MS = 1000;
/** Minimum interval of garbage collections, which block the event loop. */
const COLLECT_INTERVAL_MS = 2000;

export interface MemoryMonitorOptions {
  budget: MemoryBudget;
  limit: MemoryLimit & { usedBytes: () => number };
  clock: Clock;
  /** Returns free memory to the system; collects garbage first if `collects` is set. */
  releaseMemory: (collects: boolean) => void;
  /** Called when the budget is lowered for the first time, and when it is back at its maximum. */
  onChange: (isLowered: boolean) => void;
}

/**
 * Lowers the memory budget of a server while its container is nearly full, because the kernel would otherwise kill the
 * server. The budget then evicts retained output and pauses processes. The monitor checks after growth, and every second
 * while the budget is lowered, so an idle server has no wake-ups.
 */
export class MemoryMonitor {
  readonly #options: MemoryMonitorOptions;
  #timer: Timer | null = null;
  #isLowered = false;
  #collectedAtMs = Number.NEGATIVE_INFINITY;

  readonly #onGrowth = () => this.check();

  constructor(options: MemoryMonitorOptions) {
    this.#options = options;
    this.check();
  }

  check(): void {
    const { budget, limit } = this.#options;
    this.#timer?.cancel();
    this.#timer = null;
    const highBytes = limit.bytes * HIGH_SHARE;
    let used = limit.usedBytes();
    if (used > highBytes) {
      this.#lowerBy(used - highBytes);
      used = limit.usedBytes();
    } else if (this.#isLowered && used < limit.bytes * LOW_SHARE) this.#raiseBy(limit.bytes * LOW_SHARE - used);
    this.#setLowered(budget.isLowered);
    budget.afterGrowth(Math.max(MIN_GROWTH_BYTES, (highBytes - used) / 4), this.#onGrowth);
    if (this.#isLowered)
      this.#timer = this.#options.clock.after(CHECK_INTERVAL_MS, () => this.check(), { keepAlive: false });
  }

  #lowerBy(bytes: number): void {
    const { budget, releaseMemory, clock } = this.#options;
    // Unused budget must go too, because it could be used at any time.
    budget.setLimit(Math.max(MIN_BUDGET_BYTES, Math.min(budget.limitBytes, budget.bytes) - bytes));
    const now = clock.monotonic();
    const collects = now - this.#collectedAtMs >= COLLECT_INTERVAL_MS;
    if (collects) this.#collectedAtMs = now;
    releaseMemory(collects);
  }

  #raiseBy(bytes: number): void {
    const { budget } = this.#options;
    budget.setLimit(Math.max(budget.limitBytes, budget.bytes + bytes));
  }

  #setLowered(isLowered: boolean): void {
    if (isLowered === this.#isLowered) return;
    this.#isLowered = isLowered;
    this.#options.onChange(isLowered);
  }
}
