import type { Clock, Timer } from "../../async/clock.ts";
import { type BudgetLimits, JobBudget } from "../cost/job-budget.ts";
import type { Price } from "../cost/price-table.ts";
import {
  CANCELLED_BY_ROW_AGENT,
  CANCELLED_BY_USER,
  INTERRUPTED,
  type ItemRecord,
  type JobCounts,
  type JobRecord,
  type JobStatus,
  type ScheduleEnd,
} from "../job.ts";
import type { Claim, JobLedger } from "../ledger/job-ledger.ts";
import type { RowRetry } from "../output/job-listener.ts";
import { hasFallbackLeft } from "../row/row-model.ts";
import type { Refusal, RowAgent } from "../row/row-outcome.ts";
import type { Limiter } from "./rate-limiter.ts";
import { type LaneEnd, type LaneOptions, workRow } from "./run-attempt.ts";
import { CommonFault } from "./systemic-failure.ts";

export type FailFast = { type: "count"; rows: number } | { type: "percent"; percent: number };

export interface SchedulerOptions {
  job: JobRecord;
  ledger: JobLedger;
  rowAgent: RowAgent;
  limiter: Limiter;
  concurrency: number;
  budget?: BudgetLimits | undefined;
  /** What the job's model costs; needed for a budget in dollars. */
  price?: Price | null | undefined;
  /** Begin with a single row, so that the server has cached the common prompt prefix when the others follow. */
  warmFirst?: boolean | undefined;
  failFast?: FailFast | undefined;
  clock: Clock;
  random?: () => number;
  /** Aborted when the user interrupts the run. */
  signal: AbortSignal;
  /** Called when this process has completed a row, or failed it for good. */
  onSettled?: (item: ItemRecord) => void;
  onRetry?: (retry: RowRetry) => void;
  /** How often the ledger is polled for rows and orders from other processes. */
  pollMs?: number;
  /** Whether more rows may follow, because the table is still being read. */
  isReading?: (() => boolean) | undefined;
  /** Whether answers from batches are outstanding: then a used-up budget does not pause the job yet. */
  holdsOpen?: (() => boolean) | undefined;
  /** End as soon as there is nothing to do here, although other processes still work on rows. */
  leaveWhenIdle?: boolean;
}

/** Soon enough for `jobs cancel` to feel immediate. */
const DEFAULT_POLL_MS = 500;
/** The longest time that the first row runs alone. */
const WARM_MS = 10_000;

/** Keeps the lanes full until no row is left or the job is stopped. Rows are claimed one by one as lanes become free. */
export async function scheduleRows(options: SchedulerOptions): Promise<ScheduleEnd> {
  return new Scheduler(options).run();
}

class Scheduler {
  #options: SchedulerOptions;
  #lanes = new Set<Promise<void>>();
  #rows = new AbortController();
  #stop: Extract<ScheduleEnd, { type: "stopped" }> | null = null;
  #error: { cause: unknown } | null = null;
  #wake = Promise.withResolvers<void>();
  #laneOptions: LaneOptions;
  #budget: JobBudget;
  #commonFault = new CommonFault();
  #failedHere = 0;
  #total = 0;
  #failedBefore = 0;
  #idle = false;
  #isCold: boolean;
  #warming: Timer | null = null;

  constructor(options: SchedulerOptions) {
    this.#options = options;
    this.#budget = new JobBudget(options.budget ?? {}, options.price ?? null);
    this.#isCold = options.warmFirst ?? false;
    this.#laneOptions = {
      ledger: options.ledger,
      rowAgent: options.rowAgent,
      limiter: options.limiter,
      maxAttempts: options.job.settings.maxAttempts,
      hasFallbackLeft: (item) => hasFallbackLeft(options.job, item),
      clock: options.clock,
      random: options.random ?? Math.random,
      pause: (reason) => this.#halt("paused", reason),
    };
  }

  async run(): Promise<ScheduleEnd> {
    const { signal, ledger } = this.#options;
    const onAbort = () => this.#halt("paused", INTERRUPTED, { abortRows: true });
    if (signal.aborted) onAbort();
    else signal.addEventListener("abort", onAbort, { once: true });
    const polling = this.#poll();
    try {
      const counts = await ledger.counts();
      this.#total = counts.total;
      this.#failedBefore = counts.failed;
      this.#budget.setUsed(counts.usage);
      await this.#fillLanes().catch((error: unknown) => this.#giveUp(error));
      await Promise.all(this.#lanes);
      if (!this.#error) await this.#judgeSuspects();
    } finally {
      polling.cancel();
      this.#warming?.cancel();
      signal.removeEventListener("abort", onAbort);
    }
    if (this.#error) throw this.#error.cause;
    return this.#stop ?? { type: this.#idle ? "idle" : "finished" };
  }

  async #fillLanes(): Promise<void> {
    const { concurrency, ledger } = this.#options;
    while (!this.#stop && !this.#error) {
      this.#wake = Promise.withResolvers();
      const lanes = this.#lanes.size;
      // Batches spend from the same budget as the lanes.
      if (this.#options.holdsOpen) this.#budget.setUsed((await ledger.counts()).usage);
      // Where several processes work on the job, the ledger's `claim` enforces the budget.
      const affordable = ledger.shared ? Number.POSITIVE_INFINITY : this.#budget.affordableRows(lanes);
      const wanted = Math.min(concurrency - lanes, affordable);
      const free = this.#isCold ? Math.min(wanted, 1 - lanes) : wanted;
      const isUsedUp = free <= 0 && this.#lanes.size === 0;
      if (isUsedUp && !this.#options.holdsOpen?.()) this.#halt("paused", this.#budget.usedUpReason());
      if (this.#stop) return;
      const claims = free > 0 ? await ledger.claim(free) : [];
      for (const claim of claims) this.#startLane(claim);
      if (this.#isCold && claims.length > 0) this.#warmLater();
      if (claims.length === free && free > 0) continue;
      if (this.#lanes.size === 0 && claims.length === 0) {
        // Read this flag before looking for rows, so that rows appended in between are not missed.
        const isReading = this.#options.isReading?.() ?? false;
        const finished = (await ledger.isDone()) && !isReading;
        this.#idle = !finished;
        if (finished || this.#options.leaveWhenIdle) return;
      }
      const timer = await this.#wakeWhenDue(free > 0 || isUsedUp);
      await this.#wake.promise;
      timer?.cancel();
    }
  }

  #startLane(claim: Claim): void {
    const lane: Promise<void> = workRow(this.#laneOptions, claim, this.#rows.signal, this.#stop !== null)
      .then((end) => this.#take(end))
      .catch((error: unknown) => this.#giveUp(error))
      .finally(() => {
        this.#lanes.delete(lane);
        this.#wake.resolve();
      });
    this.#lanes.add(lane);
  }

  /** A slow first row does not delay the others for long: by then the server has cached its prompt prefix. */
  #warmLater(): void {
    this.#warming ??= this.#options.clock.after(WARM_MS, () => {
      this.#isCold = false;
      this.#wake.resolve();
    });
  }

  /** The ledger has failed: there is no use in requesting answers that it cannot store. */
  #giveUp(error: unknown): void {
    this.#error ??= { cause: error };
    this.#rows.abort(error);
  }

  /** Counts the outcome of a row, and reports it. */
  #take(end: LaneEnd): void {
    this.#isCold = false;
    this.#budget.spend(end.usage);
    switch (end.type) {
      case "completed":
        this.#tellSuspects(this.#commonFault.answered());
        this.#options.onSettled?.(end.item);
        if (end.stop) this.#halt("cancelled", CANCELLED_BY_ROW_AGENT);
        return;
      case "failed":
        if (end.refusal) this.#suspect(end.item, end.refusal);
        else this.#tellFailure(end.item);
        return;
      case "retrying":
        this.#options.onRetry?.(end.retry);
        return;
      case "let-go":
        return;
    }
  }

  #suspect(item: ItemRecord, refusal: Refusal): void {
    this.#commonFault.add(item, refusal);
    const { reason } = this.#commonFault;
    if (reason !== null) this.#halt("paused", `the API refuses every request: ${reason}`);
  }

  /** Decides at the end whether the refused rows have failed or a common fault was the cause. */
  async #judgeSuspects(): Promise<void> {
    const suspects = this.#commonFault.takeSuspects();
    if (this.#commonFault.reason === null) return this.#tellSuspects(suspects);
    await this.#options.ledger.retryFailed({ itemIds: suspects.map((item) => item.itemId) });
  }

  #tellSuspects(items: readonly ItemRecord[]): void {
    for (const item of items) this.#tellFailure(item);
  }

  #tellFailure(item: ItemRecord): void {
    this.#failedHere++;
    this.#options.onSettled?.(item);
    this.#checkFailFast();
  }

  #checkFailFast(): void {
    const { failFast } = this.#options;
    if (!failFast) return;
    const limit =
      failFast.type === "count"
        ? failFast.rows
        : Math.max(1, Math.ceil((this.#total * failFast.percent) / 100));
    if (this.#failedHere < limit) return;
    const asked = failFast.type === "count" ? `${failFast.rows}` : `${failFast.percent}%`;
    this.#halt("failed", `${this.#failedHere} rows failed (--fail-fast ${asked})`);
  }

  /** The first reason stands. Rows under way run to their end unless they are to be aborted. */
  #halt(
    status: "paused" | "failed" | "cancelled",
    reason: string,
    options: { abortRows?: boolean } = {},
  ): void {
    this.#stop ??= { type: "stopped", status, reason };
    if (options.abortRows) this.#rows.abort(new Error(reason));
    this.#wake.resolve();
  }

  async #wakeWhenDue(hasFreeLane: boolean): Promise<Timer | null> {
    if (!hasFreeLane) return null;
    const { ledger, clock, pollMs = DEFAULT_POLL_MS } = this.#options;
    const dueAtMs = await ledger.nextDueAtMs();
    const waitMs = dueAtMs === null ? pollMs : Math.max(1, Math.min(pollMs, dueAtMs - clock.now()));
    return clock.after(waitMs, () => this.#wake.resolve());
  }

  /** Polls the ledger for orders: `jobs cancel`, or another process that stopped the job. */
  #poll(): { cancel(): void } {
    const { clock, pollMs = DEFAULT_POLL_MS } = this.#options;
    let timer: Timer;
    let cancelled = false;
    const look = () => {
      this.#look()
        .catch((error: unknown) => {
          this.#error ??= { cause: error };
          this.#wake.resolve();
        })
        .finally(() => {
          if (!cancelled) timer = clock.after(pollMs, look);
        });
    };
    timer = clock.after(pollMs, look);
    return {
      cancel: () => {
        cancelled = true;
        timer.cancel();
      },
    };
  }

  async #look(): Promise<void> {
    const { ledger } = this.#options;
    const job = await ledger.job();
    this.#obey(job.status, job.error);
    if (!ledger.shared && !this.#options.isReading) return;
    // Other processes spend tokens and fail rows too, and a table that is being read grows.
    const counts = await ledger.counts();
    this.#total = counts.total;
    this.#budget.setUsed(counts.usage);
    await this.#checkFleetBudget(counts);
    this.#failedHere = counts.failed - this.#failedBefore;
    this.#checkFailFast();
  }

  /** The last row that the budget allowed may belong to another process. */
  async #checkFleetBudget(counts: JobCounts): Promise<void> {
    const spending = await this.#options.ledger.spending();
    if (!spending || counts.running > 0 || counts.pending === 0 || this.#options.holdsOpen?.()) return;
    this.#budget.setSpending(spending);
    if (this.#budget.affordableRows(0) <= 0) this.#halt("paused", this.#budget.usedUpReason());
  }

  #obey(status: JobStatus, error: string | null): void {
    if (status !== "cancelled" && status !== "paused" && status !== "failed") return;
    this.#halt(status, error ?? status, { abortRows: error === CANCELLED_BY_USER });
  }
}
