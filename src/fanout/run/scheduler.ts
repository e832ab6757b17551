import { NO_USAGE, type TokenUsage, totalTokens } from "../../agent/usage.ts";
import type { Clock, Timer } from "../../async/clock.ts";
import type { ErrorClass, JobCounts, JobRecord, JobStatus } from "../job.ts";
import type { Claim, JobLedger } from "../ledger/job-ledger.ts";
import type { RowAgent, RowOutcome } from "../row/row-agent.ts";
import type { Limiter } from "./limiter.ts";

export type FailFast = { type: "count"; rows: number } | { type: "percent"; percent: number };

export interface SchedulerOptions {
  job: JobRecord;
  ledger: JobLedger;
  rowAgent: RowAgent;
  limiter: Limiter;
  concurrency: number;
  budgetTokens?: number | undefined;
  failFast?: FailFast | undefined;
  clock: Clock;
  random?: () => number;
  /** Aborted when the user wants out. */
  signal: AbortSignal;
  onRow?: (event: RowEvent) => void;
  /** How often the ledger is asked for rows and orders that come from elsewhere. */
  pollMs?: number;
  /** Come back as soon as there is nothing to do here, although others still work on rows. */
  leaveWhenIdle?: boolean;
}

export type RowEvent =
  | { type: "completed"; claim: Claim; outcome: Extract<RowOutcome, { type: "reported" }> }
  | { type: "failed"; claim: Claim; errorClass: ErrorClass; message: string; usage: TokenUsage }
  | { type: "retrying"; claim: Claim; errorClass: ErrorClass; message: string; delayMs: number };

export type ScheduleEnd =
  /** Every row is finished. */
  | { type: "finished" }
  /** Nothing to do here now; only with `leaveWhenIdle`. */
  | { type: "idle" }
  | { type: "stopped"; status: "paused" | "failed" | "cancelled"; reason: string };

export const CANCELLED_BY_WORKER = "cancelled by worker request";
export const CANCELLED_BY_USER = "cancelled by the user";
export const INTERRUPTED = "interrupted";

/** Soon enough for `jobs cancel` to feel immediate. */
const DEFAULT_POLL_MS = 500;
/** Before a row is tried again; doubles with each attempt. */
const RETRY_BASE_MS = 500;
const RETRY_MAX_MS = 30_000;

/** Keeps the lanes full until nothing is left or something says stop. Rows are claimed one by one as lanes fall free. */
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
  #failedHere = 0;
  #finishedHere = 0;
  #tokens = 0;
  #finishedTokens = 0;
  #total = 0;
  #failedBefore = 0;
  #idle = false;

  constructor(options: SchedulerOptions) {
    this.#options = options;
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
      this.#tokens = totalTokens(counts.usage);
      await this.#fillLanes();
      await Promise.all(this.#lanes);
    } finally {
      polling.cancel();
      signal.removeEventListener("abort", onAbort);
    }
    if (this.#error) throw this.#error.cause;
    return this.#stop ?? { type: this.#idle ? "idle" : "finished" };
  }

  async #fillLanes(): Promise<void> {
    const { concurrency, ledger } = this.#options;
    while (!this.#stop && !this.#error) {
      this.#wake = Promise.withResolvers();
      const free = Math.min(concurrency - this.#lanes.size, this.#affordableRows());
      if (free <= 0 && this.#lanes.size === 0) this.#haltForBudget();
      if (this.#stop) return;
      const claims = free > 0 ? await ledger.claim(free) : [];
      for (const claim of claims) this.#startLane(claim);
      if (claims.length === free && free > 0) continue;
      if (this.#lanes.size === 0 && claims.length === 0) {
        const finished = await this.#isFinished();
        this.#idle = !finished;
        if (finished || this.#options.leaveWhenIdle) return;
      }
      const timer = await this.#wakeWhenDue(free > 0);
      await this.#wake.promise;
      timer?.cancel();
    }
  }

  #startLane(claim: Claim): void {
    const lane: Promise<void> = this.#work(claim)
      .catch((error: unknown) => {
        this.#error ??= { cause: error };
        this.#rows.abort(error);
      })
      .finally(() => {
        this.#lanes.delete(lane);
        this.#wake.resolve();
      });
    this.#lanes.add(lane);
  }

  /** One row. It ends when the ledger has its outcome; only then is the lane free. */
  async #work(claim: Claim): Promise<void> {
    const { rowAgent, ledger, limiter, clock } = this.#options;
    const beganAtMs = clock.now();
    const outcome: RowOutcome = this.#stop
      ? { type: "interrupted", usage: NO_USAGE }
      : await rowAgent(claim, this.#rows.signal);
    switch (outcome.type) {
      case "reported":
        this.#countFinished(totalTokens(outcome.usage));
        this.#options.onRow?.({ type: "completed", claim, outcome });
        if (outcome.stop) this.#halt("cancelled", CANCELLED_BY_WORKER);
        return;
      case "failed":
        return this.#settleFailure(claim, outcome);
      case "exhausted":
        if (limiter.lastAnswerAtMs >= beganAtMs)
          return this.#settleFailure(claim, { ...outcome, type: "failed", final: false });
        // Nobody has had an answer since: it is the API, not the row.
        this.#halt("paused", `the API cannot be used: ${outcome.message}`);
        await ledger.release(claim, outcome.usage);
        return;
      case "wall":
        this.#halt("paused", outcome.message);
        await ledger.release(claim, outcome.usage);
        return;
      case "interrupted":
        await ledger.release(claim, outcome.usage);
        return;
      case "superseded":
        return;
    }
  }

  async #settleFailure(claim: Claim, failure: Extract<RowOutcome, { type: "failed" }>): Promise<void> {
    const { ledger, job, onRow } = this.#options;
    const { errorClass, message } = failure;
    const tokens = totalTokens(failure.usage);
    if (!failure.final && claim.item.attempts < job.settings.maxAttempts) {
      const delayMs = this.#retryDelay(claim.item.attempts, errorClass);
      if (await ledger.retry(claim, failure, delayMs)) {
        this.#tokens += tokens;
        onRow?.({ type: "retrying", claim, errorClass, message, delayMs });
      }
      return;
    }
    if (!(await ledger.fail(claim, failure))) return;
    this.#countFinished(tokens);
    this.#failedHere++;
    onRow?.({ type: "failed", claim, errorClass, message, usage: failure.usage });
    this.#checkFailFast();
  }

  /** What the model said wrong it may say right at once; what broke needs a moment. */
  #retryDelay(attempts: number, errorClass: ErrorClass): number {
    if (errorClass === "no_report" || errorClass === "schema") return 0;
    const random = this.#options.random ?? Math.random;
    return Math.min(RETRY_MAX_MS, RETRY_BASE_MS * 2 ** (attempts - 1)) * (0.9 + 0.2 * random());
  }

  #countFinished(tokens: number): void {
    this.#tokens += tokens;
    this.#finishedTokens += tokens;
    this.#finishedHere++;
  }

  /** How many more rows the budget is good for, taking those under way at the price of the finished ones. */
  #affordableRows(): number {
    const { budgetTokens } = this.#options;
    if (budgetTokens === undefined) return Number.POSITIVE_INFINITY;
    if (this.#tokens >= budgetTokens) return 0;
    // The first wave starts without a price; at worst it passes the budget by one row a lane.
    if (this.#finishedHere === 0) return Number.POSITIVE_INFINITY;
    const perRow = this.#finishedTokens / this.#finishedHere;
    return Math.floor((budgetTokens - this.#tokens) / perRow) - this.#lanes.size;
  }

  #haltForBudget(): void {
    const { budgetTokens } = this.#options;
    this.#halt("paused", `the budget of ${budgetTokens} tokens is used up (${this.#tokens} used)`);
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

  /** The first reason stands. Rows under way go on to their end unless they are to be aborted. */
  #halt(
    status: "paused" | "failed" | "cancelled",
    reason: string,
    options: { abortRows?: boolean } = {},
  ): void {
    this.#stop ??= { type: "stopped", status, reason };
    if (options.abortRows) this.#rows.abort(new Error(reason));
    this.#wake.resolve();
  }

  async #isFinished(): Promise<boolean> {
    const counts: JobCounts = await this.#options.ledger.counts();
    return counts.pending === 0 && counts.running === 0;
  }

  async #wakeWhenDue(hasFreeLane: boolean): Promise<Timer | null> {
    if (!hasFreeLane) return null;
    const { ledger, clock, pollMs = DEFAULT_POLL_MS } = this.#options;
    const dueAtMs = await ledger.nextDueAtMs();
    const waitMs = dueAtMs === null ? pollMs : Math.max(1, Math.min(pollMs, dueAtMs - clock.now()));
    return clock.after(waitMs, () => this.#wake.resolve());
  }

  /** Orders that come through the ledger: `jobs cancel`, or another process that stopped the job. */
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
    if (!ledger.shared) return;
    // Others spend tokens and fail rows too.
    const counts = await ledger.counts();
    this.#tokens = totalTokens(counts.usage);
    this.#failedHere = counts.failed - this.#failedBefore;
    this.#checkFailFast();
  }

  #obey(status: JobStatus, error: string | null): void {
    if (status !== "cancelled" && status !== "paused" && status !== "failed") return;
    this.#halt(status, error ?? status, { abortRows: error === CANCELLED_BY_USER });
  }
}
