import { type Clock, sleep, type Timer } from "../../async/clock.ts";
import { type BudgetLimits, JobBudget } from "../cost/job-budget.ts";
import type { Price } from "../cost/price-table.ts";
import {
  CANCELLED_BY_ROW_AGENT,
  INTERRUPTED,
  type ItemRecord,
  type JobCounts,
  type JobRecord,
  type JobStop,
  otherStop,
  type RunStopReason,
} from "../job.ts";
import type { ItemLease, JobLedger } from "../ledger/job-ledger.ts";
import type { RowRetry } from "../output/job-listener.ts";
import { hasFallbackLeft, usesFallback } from "../row/row-model.ts";
import type { ApiRejection, RowAgent } from "../row/row-outcome.ts";
import type { RateLimiter } from "./rate-limiter.ts";
import { type AttemptResult, type AttemptRunOptions, runAttempt } from "./run-attempt.ts";
import { SystemicFailureDetector } from "./systemic-failure.ts";

export type FailFast = { type: "count"; rows: number } | { type: "percent"; percent: number };

export interface SchedulerOptions {
  job: JobRecord;
  ledger: JobLedger;
  rowAgent: RowAgent;
  limiter: RateLimiter;
  concurrency: number;
  budget?: BudgetLimits | undefined;
  /** Price of the model; required for a budget in dollars. */
  price?: Price | null | undefined;
  /** Whether to begin with a single row, so that the server caches the common prompt prefix for the others. */
  warmFirst?: boolean | undefined;
  failFast?: FailFast | undefined;
  clock: Clock;
  random?: () => number;
  /** Aborts when the user interrupts the run. */
  signal: AbortSignal;
  /** Called when this process has completed or failed a row. */
  onFinished?: (item: ItemRecord) => void;
  onRetry?: (retry: RowRetry) => void;
  /** Interval at which the ledger is polled for rows and status changes. */
  pollMs?: number;
  /** Reports whether more rows may follow, because the table is still being read. */
  isReading?: (() => boolean) | undefined;
  /** Reports whether batches are at the provider. Then an exhausted budget does not pause the job yet. */
  keepsRunOpen?: (() => boolean) | undefined;
  /** Whether to end as soon as this process has no work, even if others still execute rows. */
  exitWhenIdle?: boolean;
}

/** Default poll interval: short enough that `jobs cancel` feels immediate. */
const DEFAULT_POLL_MS = 500;
/** Maximum time that the first row runs alone. */
const MAX_WARM_UP_MS = 10_000;

/** Fills the slots until no row is left or the job stops. Each free slot leases one row. */
export async function scheduleRows(options: SchedulerOptions): Promise<RunStopReason> {
  return new Scheduler(options).run();
}

class Scheduler {
  #options: SchedulerOptions;
  #slots = new Set<Promise<void>>();
  #rowAbort = new AbortController();
  #stop: Extract<RunStopReason, { type: "stopped" }> | null = null;
  #error: { cause: unknown } | null = null;
  #wake = Promise.withResolvers<void>();
  #attemptOptions: AttemptRunOptions;
  #budget: JobBudget;
  #systemicFailure = new SystemicFailureDetector();
  #failedInRun = 0;
  #total = 0;
  #failedBefore = 0;
  #isIdle = false;
  #isCold: boolean;
  #warmUpTimer: Timer | null = null;

  constructor(options: SchedulerOptions) {
    this.#options = options;
    this.#budget = new JobBudget(options.budget ?? {}, options.price ?? null);
    this.#isCold = options.warmFirst ?? false;
    this.#attemptOptions = {
      ...options,
      maxAttempts: options.job.settings.maxAttempts,
      hasFallbackLeft: (item) => hasFallbackLeft(options.job, item),
      usesFallback: (item) => usesFallback(options.job, item),
      random: options.random ?? Math.random,
      pause: (reason) => this.#halt("paused", otherStop(reason)),
    };
  }

  async run(): Promise<RunStopReason> {
    const { signal, ledger } = this.#options;
    const onAbort = () => this.#halt("paused", INTERRUPTED, { abortRows: true });
    if (signal.aborted) onAbort();
    else signal.addEventListener("abort", onAbort, { once: true });
    const polling = new AbortController();
    this.#poll(polling.signal).catch(() => undefined);
    try {
      const counts = await ledger.counts();
      this.#total = counts.total;
      this.#failedBefore = counts.failed;
      this.#budget.setUsed(counts.usage);
      await this.#fillSlots().catch((error: unknown) => this.#giveUp(error));
      await Promise.all(this.#slots);
      if (!this.#error) await this.#classifyRejected();
    } finally {
      polling.abort();
      this.#warmUpTimer?.cancel();
      signal.removeEventListener("abort", onAbort);
    }
    if (this.#error) throw this.#error.cause;
    return this.#stop ?? { type: this.#isIdle ? "idle" : "finished" };
  }

  async #fillSlots(): Promise<void> {
    const { concurrency, ledger } = this.#options;
    while (!this.#stop && !this.#error) {
      this.#wake = Promise.withResolvers();
      const slotCount = this.#slots.size;
      // Batches and slots share the budget.
      if (this.#options.keepsRunOpen) this.#budget.setUsed((await ledger.counts()).usage);
      // If several processes work on the job, the ledger enforces the budget in `lease`.
      const affordable = ledger.shared ? null : this.#budget.affordableRows(slotCount);
      const freeSlots = Math.min(concurrency - slotCount, affordable ?? concurrency);
      const leaseLimit = this.#isCold ? Math.min(freeSlots, 1 - slotCount) : freeSlots;
      const isUsedUp = leaseLimit <= 0 && this.#slots.size === 0;
      if (this.#stop) return;
      const leases = leaseLimit > 0 ? await ledger.lease(leaseLimit) : [];
      for (const lease of leases) this.#startSlot(lease);
      if (this.#isCold && leases.length > 0) this.#limitWarmUp();
      if (leases.length === leaseLimit && leaseLimit > 0) continue;
      if (this.#slots.size === 0 && leases.length === 0) {
        // Read this flag before the search for rows, so that rows appended in between are not missed.
        const isReading = this.#options.isReading?.() ?? false;
        const finished = (await ledger.isDone()) && !isReading;
        this.#isIdle = !finished;
        if (finished || this.#options.exitWhenIdle) return;
        if (isUsedUp && !this.#options.keepsRunOpen?.()) {
          this.#halt("paused", otherStop(this.#budget.usedUpReason()));
          return;
        }
      }
      const timer = await this.#wakeWhenDue(leaseLimit > 0 || isUsedUp);
      await this.#wake.promise;
      timer?.cancel();
    }
  }

  #startSlot(lease: ItemLease): void {
    const slot: Promise<void> = runAttempt(this.#attemptOptions, lease, this.#rowAbort.signal, this.#stop !== null)
      .then((end) => this.#recordResult(end))
      .catch((error: unknown) => this.#giveUp(error))
      .finally(() => {
        this.#slots.delete(slot);
        this.#wake.resolve();
      });
    this.#slots.add(slot);
  }

  /** Limits the time that the first row runs alone. By then, the server has cached the prompt prefix. */
  #limitWarmUp(): void {
    this.#warmUpTimer ??= this.#options.clock.after(MAX_WARM_UP_MS, () => {
      this.#isCold = false;
      this.#wake.resolve();
    });
  }

  /** Stops the run after a ledger error, because answers could not be stored. */
  #giveUp(error: unknown): void {
    this.#error ??= { cause: error };
    this.#rowAbort.abort(error);
  }

  /** Counts and reports the outcome of a row. */
  #recordResult(end: AttemptResult): void {
    this.#isCold = false;
    this.#budget.spend(end.usage);
    switch (end.type) {
      case "completed":
        this.#emitRejected(this.#systemicFailure.onSuccess());
        this.#options.onFinished?.(end.item);
        if (end.stop) this.#halt("cancelled", CANCELLED_BY_ROW_AGENT);
        return;
      case "failed":
        if (end.refusal) this.#addSuspect(end.item, end.refusal);
        else this.#emitFailure(end.item);
        return;
      case "retrying":
        this.#options.onRetry?.(end.retry);
        return;
      case "released":
        return;
    }
  }

  #addSuspect(item: ItemRecord, refusal: ApiRejection): void {
    this.#systemicFailure.add(item, refusal);
    const { reason } = this.#systemicFailure;
    if (reason !== null) this.#halt("paused", otherStop(`the API refuses every request: ${reason}`));
  }

  /** Decides at the end whether the rejected rows failed or a systemic failure was the cause. */
  async #classifyRejected(): Promise<void> {
    const suspects = this.#systemicFailure.takeRejected();
    if (this.#systemicFailure.reason === null) return this.#emitRejected(suspects);
    await this.#options.ledger.retryFailed({ itemIds: suspects.map((item) => item.itemId) });
  }

  #emitRejected(items: readonly ItemRecord[]): void {
    for (const item of items) this.#emitFailure(item);
  }

  #emitFailure(item: ItemRecord): void {
    this.#failedInRun++;
    this.#options.onFinished?.(item);
    this.#checkFailFast();
  }

  #checkFailFast(): void {
    const { failFast } = this.#options;
    if (!failFast) return;
    const limit =
      failFast.type === "count" ? failFast.rows : Math.max(1, Math.ceil((this.#total * failFast.percent) / 100));
    if (this.#failedInRun < limit) return;
    const flagValue = failFast.type === "count" ? `${failFast.rows}` : `${failFast.percent}%`;
    this.#halt("failed", otherStop(`${this.#failedInRun} rows failed (--fail-fast ${flagValue})`));
  }

  /** Stops the run; the first reason applies. Rows in flight run to their end, unless `abortRows` is set. */
  #halt(status: "paused" | "failed" | "cancelled", stop: JobStop, options: { abortRows?: boolean } = {}): void {
    this.#stop ??= { type: "stopped", status, ...stop };
    if (options.abortRows) this.#rowAbort.abort(new Error(stop.reason));
    this.#wake.resolve();
  }

  async #wakeWhenDue(hasFreeSlot: boolean): Promise<Timer | null> {
    if (!hasFreeSlot) return null;
    const { ledger, clock, pollMs = DEFAULT_POLL_MS } = this.#options;
    const dueAtMs = await ledger.nextDueAtMs();
    const waitMs = dueAtMs === null ? pollMs : Math.max(1, Math.min(pollMs, dueAtMs - clock.now()));
    return clock.after(waitMs, () => this.#wake.resolve());
  }

  /** Polls the ledger for `jobs cancel`, or for a stop by another process. Rejects when the signal aborts. */
  async #poll(signal: AbortSignal): Promise<void> {
    const { clock, pollMs = DEFAULT_POLL_MS } = this.#options;
    for (;;) {
      await sleep(clock, pollMs, signal);
      await this.#checkStatus().catch((error: unknown) => {
        this.#error ??= { cause: error };
        this.#wake.resolve();
      });
    }
  }

  async #checkStatus(): Promise<void> {
    const { ledger } = this.#options;
    const job = await ledger.job();
    if (job.status === "cancelled" || job.status === "paused" || job.status === "failed") {
      const stop = job.stop ?? otherStop(job.status);
      this.#halt(job.status, stop, { abortRows: stop.cause === "cancelled_by_user" });
    }
    if (!ledger.shared && !this.#options.isReading) return;
    // Other processes also use tokens and fail rows, and a table that is being read grows.
    const counts = await ledger.counts();
    this.#total = counts.total;
    // A single process counts its own usage when its rows end, which is later than their commits.
    if (ledger.shared) this.#budget.setUsed(counts.usage);
    await this.#checkFleetBudget(counts);
    this.#failedInRun = counts.failed - this.#failedBefore;
    this.#checkFailFast();
  }

  /** Pauses the job if the shared budget is exhausted. The last row that it allowed may belong to another process. */
  async #checkFleetBudget(counts: JobCounts): Promise<void> {
    const spending = await this.#options.ledger.spending();
    if (!spending || counts.running > 0 || counts.pending === 0 || this.#options.keepsRunOpen?.()) return;
    this.#budget.setSpending(spending);
    const affordable = this.#budget.affordableRows(0);
    if (affordable !== null && affordable <= 0) this.#halt("paused", otherStop(this.#budget.usedUpReason()));
  }
}
