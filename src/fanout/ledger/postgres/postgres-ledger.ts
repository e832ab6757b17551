import type { PoolClient } from "pg";
import type { TokenUsage } from "../../../agent/token-usage.ts";
import type { Clock, Timer } from "../../../async/clock.ts";
import type { UsageTotals } from "../../cost/job-budget.ts";
import {
  CANCELLED_BY_ROW_AGENT,
  type ErrorClass,
  type ItemRecord,
  type JobStatus,
  type JobStop,
  type NewItem,
} from "../../job.ts";
import type { JobSettings } from "../../job-settings.ts";
import type { AcquireRunOptions, AttemptFailure, ItemLease, JobLedger, Report, ReusedAnswer } from "../job-ledger.ts";
import { attemptOf, type SpooledOutcome } from "../outcome-spool.ts";
import { decodeItem, reusedAnswerText, statusValues } from "../record-codec.ts";
import { insertItems } from "./insert-items.ts";
import { PostgresBatches } from "./postgres-batches.ts";
import { PostgresBudget } from "./postgres-budget.ts";
import type { PostgresDatabase } from "./postgres-database.ts";
import { PostgresOutcomes } from "./postgres-outcomes.ts";
import { PostgresReads } from "./postgres-reads.ts";
import * as sql from "./postgres-statements.ts";
import { PostgresViews } from "./postgres-views.ts";
import { dropObsolete, enqueueMissing } from "./queue-maintenance.ts";
import { type Delivery, MAX_LOST_DELIVERIES, type RowQueue } from "./row-queue.ts";
import { execute, type Statement, storable } from "./statement.ts";

export interface PostgresLedgerOptions {
  database: PostgresDatabase;
  queue: RowQueue;
  jobId: string;
  clock: Clock;
  /** Heartbeat interval of the rows in flight. */
  touchEveryMs: number;
  /** Called with errors of background work. */
  onError: (error: unknown) => void;
}

/**
 * Interval at which each process searches for spooled outcomes of other processes on this host; shorter than the
 * heartbeat timeout.
 */
const SPOOL_SCAN_INTERVAL_MS = 3_000;
/** Dead letters per fetch. */
const MAX_DEAD_LETTERS_PER_FETCH = 100;
/** Interval at which each process searches for dead letters. */
const DEAD_LETTER_SCAN_INTERVAL_MS = 5_000;

/**
 * One job in a shared database. The engine decides which process executes a row; the ledger decides which report
 * counts. One guarded statement finishes a row, and only then is the delivery completed. If the process dies in
 * between, the row is delivered again and dropped before a model call.
 */
export class PostgresLedger extends PostgresReads implements JobLedger {
  readonly shared = true;
  readonly batches: PostgresBatches;
  readonly views: PostgresViews;
  #options: PostgresLedgerOptions;
  #queue: RowQueue;
  #budget: PostgresBudget;
  #outcomes: PostgresOutcomes;
  #clock: Clock;
  #deliveries = new Map<string, Delivery>();
  #heartbeatTimer: Timer | null = null;
  #deadLetterScanAtMs = 0;
  #spoolScanAtMs = Number.NEGATIVE_INFINITY;
  /** Whether new rows are meant for batches, so that they are not queued. */
  #isBatch = false;

  constructor(options: PostgresLedgerOptions) {
    super(options.database, options.jobId);
    this.#options = options;
    this.#queue = options.queue;
    this.#budget = new PostgresBudget(options.database, options.jobId);
    this.#clock = options.clock;
    const cancelJob = (client: PoolClient) => this.#cancelJob(client);
    const report = (message: string) => options.onError(new Error(message));
    this.#outcomes = new PostgresOutcomes({ ...options, cancelJob, report });
    this.views = new PostgresViews(options.database, options.jobId);
    this.batches = new PostgresBatches({ ...options, cancelJob });
  }

  async spending(): Promise<UsageTotals | null> {
    const { budget } = (await this.job()).settings;
    return budget ? this.#budget.spending(budget) : null;
  }

  /** Always returns true: any number of processes may join, and the engine delivers different rows to each. */
  async acquireRun(options: AcquireRunOptions = {}): Promise<boolean> {
    if (this.#heartbeatTimer) return true;
    this.#outcomes.spool.open(options.outputPath);
    await this.#outcomes.applySpooled((await this.job()).outputPath);
    await this.#queue.create();
    if (!options.join) await enqueueMissing(this.database, this.#queue, this.jobId);
    this.#scheduleHeartbeat();
    this.database.outage.onRecovered.add(this.#sendHeartbeat);
    return true;
  }

  async releaseRun(): Promise<void> {
    this.#heartbeatTimer?.cancel();
    this.#heartbeatTimer = null;
    this.database.outage.onRecovered.delete(this.#sendHeartbeat);
    this.#outcomes.spool[Symbol.dispose]();
  }

  async isRunHeld(): Promise<null> {
    return null;
  }

  async lease(limit: number): Promise<ItemLease[]> {
    await this.#applySpooled();
    await this.#failDeadLetters();
    const { status, settings } = await this.job();
    if (status !== "running") return [];
    const { budget } = settings;
    const fetchLimit = budget ? await this.#budget.deliveryLimit(budget, limit) : limit;
    const deliveries = this.#excludeOwned(await this.#take(fetchLimit));
    if (deliveries.length === 0) return [];
    const tokens = deliveries.map(() => crypto.randomUUID());
    const leaseValues = { itemIds: deliveries.map(({ data }) => data.itemId), tokens, now: this.#clock.now() };
    const rows = budget
      ? await this.#budget.lease(budget, leaseValues)
      : await this.database.all(sql.LEASE_ITEMS, { jobId: this.jobId, ...leaseValues });
    const leasedRows = new Map(rows.map((row) => [String(row.item_id), row]));
    const unleased = deliveries.filter(({ data }) => !leasedRows.has(data.itemId));
    await dropObsolete(this.database, this.#queue, this.jobId, unleased);
    return deliveries.flatMap((delivery, index) => {
      const row = leasedRows.get(delivery.data.itemId);
      const token = tokens[index];
      if (!row || token === undefined) return [];
      this.#deliveries.set(token, delivery);
      return [{ item: decodeItem(row), leaseToken: token }];
    });
  }

  complete(lease: ItemLease, report: Report): Promise<ItemRecord | null> {
    return this.#store(lease, { type: "reported", attempt: attemptOf(lease), report });
  }

  fail(lease: ItemLease, failure: AttemptFailure): Promise<ItemRecord | null> {
    return this.#store(lease, { type: "failed", attempt: attemptOf(lease), failure });
  }

  retry(lease: ItemLease, failure: AttemptFailure, delayMs: number): Promise<boolean> {
    const dueAt = Math.round(this.#clock.now() + delayMs);
    const values = { ...this.#outcomes.endValues(attemptOf(lease), failure), dueAt };
    return this.#requeue(lease, dueAt, sql.RETRY_ITEM, values);
  }

  release(lease: ItemLease, usage: TokenUsage, transcript?: string): Promise<boolean> {
    const values = this.#outcomes.endValues(attemptOf(lease), { usage, transcript });
    return this.#requeue(lease, 0, sql.RELEASE_ITEM, values);
  }

  async completeWithReused(answers: readonly ReusedAnswer[]): Promise<number> {
    if (answers.length === 0) return 0;
    const { rowCount } = await this.database.run(sql.COMPLETE_WITH_REUSED, this.#reusedValues(answers));
    return rowCount ?? 0;
  }

  appendRows(rows: readonly NewItem[], answers: readonly ReusedAnswer[]): Promise<void> {
    const answered = new Set(answers.map(({ rowIndex }) => rowIndex));
    const queued = this.#isBatch ? [] : rows.filter(({ rowIndex }) => !answered.has(rowIndex));
    return this.database.transaction(async (client) => {
      await insertItems(client, this.jobId, rows);
      const totalRows = (rows.at(-1)?.rowIndex ?? -1) + 1;
      await execute(client, sql.COUNT_READ_ROWS, { jobId: this.jobId, totalRows });
      if (answers.length > 0) await execute(client, sql.COMPLETE_WITH_REUSED, this.#reusedValues(answers));
      const due = queued.map(({ itemId, rowIndex }) => ({ itemId: storable(itemId), rowIndex, dueAtMs: 0 }));
      await this.#queue.put(due, client);
    });
  }

  async finishReading(headers: readonly string[], totalRows: number): Promise<void> {
    const values = { jobId: this.jobId, headers: JSON.stringify(headers), totalRows, isReading: false };
    await this.database.run(sql.FINISH_JOB_INSERT, values);
  }

  async setStatus(to: JobStatus, from: readonly JobStatus[], stop: JobStop | null = null): Promise<boolean> {
    const values = this.#statusChange(to, from, stop);
    const changed = await this.database.transaction(async (client, isRepeat) => {
      const { rowCount } = await execute(client, sql.SET_STATUS, values);
      if (rowCount === 1 || !isRepeat) return rowCount === 1;
      // The change may have succeeded before the connection was lost.
      const { rows } = await execute(client, sql.READ_JOB, { jobId: this.jobId });
      return rows[0]?.status === to;
    });
    // A finished job has no rows to deliver. A retry creates the queue again.
    if (changed && (to === "completed" || to === "completed_with_errors")) await this.#queue.remove();
    return changed;
  }

  async setOptions(options: { settings: JobSettings; outputPath: string }): Promise<void> {
    await this.database.run(sql.SET_OPTIONS, {
      jobId: this.jobId,
      settings: JSON.stringify(options.settings),
      outputPath: options.outputPath,
      now: this.#clock.now(),
    });
    this.#isBatch = options.settings.batch === true;
    if (this.#heartbeatTimer) await enqueueMissing(this.database, this.#queue, this.jobId);
  }

  async retryFailed(filter: { errorClasses?: readonly ErrorClass[]; itemIds?: readonly string[] }): Promise<number> {
    const { rowCount } = await this.database.run(sql.RETRY_FAILED_ITEMS, {
      jobId: this.jobId,
      errorClasses: filter.errorClasses ?? null,
      itemIds: filter.itemIds ?? null,
    });
    if (this.#heartbeatTimer) await enqueueMissing(this.database, this.#queue, this.jobId);
    return rowCount ?? 0;
  }

  async [Symbol.asyncDispose](): Promise<void> {
    await this.releaseRun();
    await this.batches.stopLeading();
  }

  /**
   * Removes deliveries of rows that this process executes. The engine delivers such a row again if heartbeats were
   * missing for too long, as after an outage. The attempt continues with the new delivery.
   */
  #excludeOwned(deliveries: readonly Delivery[]): Delivery[] {
    const tokens = new Map([...this.#deliveries].map(([token, { data }]) => [data.itemId, token]));
    return deliveries.filter((delivery) => {
      const token = tokens.get(delivery.data.itemId);
      if (token !== undefined) this.#deliveries.set(token, delivery);
      return token === undefined;
    });
  }

  async #take(limit: number): Promise<Delivery[]> {
    try {
      return await this.#queue.take(limit);
    } catch {
      // Another process has just finished the job and removed its queue.
      if ((await this.job()).status !== "running") return [];
      // It finished an earlier run, and removed the queue after this run had started.
      await this.#queue.create();
      await enqueueMissing(this.database, this.#queue, this.jobId);
      return await this.#queue.take(limit);
    }
  }

  /** Applies spooled outcomes of dead processes on this host, before their rows are executed again. */
  async #applySpooled(): Promise<void> {
    const monotonic = this.#clock.monotonic();
    if (monotonic - this.#spoolScanAtMs < SPOOL_SCAN_INTERVAL_MS) return;
    this.#spoolScanAtMs = monotonic;
    await this.#outcomes.applySpooled((await this.job()).outputPath, { dead: true });
  }

  async #failDeadLetters(): Promise<void> {
    const monotonic = this.#clock.monotonic();
    if (monotonic - this.#deadLetterScanAtMs < DEAD_LETTER_SCAN_INTERVAL_MS) return;
    this.#deadLetterScanAtMs = monotonic;
    const dead = await this.#queue.takeDeadLetters(MAX_DEAD_LETTERS_PER_FETCH);
    for (const delivery of dead) {
      await this.database.run(sql.FAIL_DEAD_ITEM, {
        jobId: delivery.data.jobId,
        itemId: delivery.data.itemId,
        message: `${MAX_LOST_DELIVERIES + 1} workers died at this row`,
        now: this.#clock.now(),
      });
    }
    await this.#queue.removeDeadLetters(dead);
  }

  /** Sends a heartbeat for the leased rows. The next beat retries a failed one. */
  #sendHeartbeat = (): Promise<void> => this.#queue.touch([...this.#deliveries.values()]).catch(this.#options.onError);

  #scheduleHeartbeat(): void {
    this.#heartbeatTimer = this.#clock.after(
      this.#options.touchEveryMs,
      () => {
        void this.#sendHeartbeat().finally(() => {
          if (this.#heartbeatTimer) this.#scheduleHeartbeat();
        });
      },
      { keepAlive: false },
    );
  }

  /**
   * Completes the delivery after the ledger has stored the outcome. If this fails, the row is delivered again and
   * dropped.
   */
  async #store(lease: ItemLease, outcome: SpooledOutcome): Promise<ItemRecord | null> {
    const row = await this.#outcomes.store(outcome);
    const delivery = this.#deliveries.get(lease.leaseToken);
    this.#deliveries.delete(lease.leaseToken);
    if (delivery) await this.#queue.done([delivery]).catch(this.#options.onError);
    return row ? decodeItem(row) : null;
  }

  /** Makes the row pending and queues it in one transaction, so that neither the ledger nor the queue loses it. */
  async #requeue(
    lease: ItemLease,
    dueAtMs: number,
    statement: Statement,
    values: Readonly<Record<string, unknown>>,
  ): Promise<boolean> {
    const delivery = this.#deliveries.get(lease.leaseToken);
    const changed = await this.database.transaction(async (client: PoolClient) => {
      const { rowCount } = await execute(client, statement, values);
      if (rowCount !== 1) return false;
      if (delivery) await this.#queue.done([delivery], client);
      const { itemId, rowIndex } = lease.item;
      await this.#queue.put([{ itemId, rowIndex, dueAtMs }], client);
      return true;
    });
    this.#deliveries.delete(lease.leaseToken);
    return changed;
  }

  #reusedValues(answers: readonly ReusedAnswer[]): Record<string, unknown> {
    return {
      jobId: this.jobId,
      rowIndexes: answers.map(({ rowIndex }) => rowIndex),
      results: answers.map(({ answer }) => answer.result),
      messages: answers.map(({ answer }) => reusedAnswerText(answer)),
      now: this.#clock.now(),
    };
  }

  async #cancelJob(client: PoolClient): Promise<void> {
    const change = this.#statusChange("cancelled", ["pending", "running"], CANCELLED_BY_ROW_AGENT);
    await execute(client, sql.SET_STATUS, change);
  }

  #statusChange(to: JobStatus, from: readonly JobStatus[], stop: JobStop | null): Record<string, unknown> {
    return { jobId: this.jobId, from, ...statusValues(to, stop, this.#clock.now()) };
  }
}
