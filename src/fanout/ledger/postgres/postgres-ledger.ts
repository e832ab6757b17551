import type { PoolClient } from "pg";
import type { TokenUsage } from "../../../agent/token-usage.ts";
import type { Clock, Timer } from "../../../async/clock.ts";
import type { Spending } from "../../cost/job-budget.ts";
import {
  type AttemptRecord,
  CANCELLED_BY_ROW_AGENT,
  type ErrorClass,
  hasEnded,
  type ItemRecord,
  type ItemStatus,
  type JobCounts,
  type JobRecord,
  type JobSettings,
  type JobStatus,
  type NewItem,
  type StoredAnswer,
} from "../../job.ts";
import type { AttemptFailure, Claim, JobLedger, Report, UnaskedRow } from "../job-ledger.ts";
import { attemptOf, type KeptSettlement } from "../outcome-spool.ts";
import { decodeItem, usageValues } from "../record-codec.ts";
import { reusedText } from "../reused-answer-text.ts";
import { insertItems } from "./insert-items.ts";
import { PostgresBatches } from "./postgres-batches.ts";
import { PostgresBudget } from "./postgres-budget.ts";
import type { PostgresDatabase } from "./postgres-database.ts";
import { PostgresSettlements } from "./postgres-outcomes.ts";
import { PostgresReads } from "./postgres-reads.ts";
import {
  ADOPT_ITEMS,
  CLAIM_ITEMS,
  COUNT_READ_ROWS,
  FAIL_DEAD_ITEM,
  FINISH_JOB_INSERT,
  READ_JOB,
  RELEASE_ITEM,
  RETRY_FAILED_ITEMS,
  RETRY_ITEM,
  SET_OPTIONS,
  SET_STATUS,
} from "./postgres-statements.ts";
import { PostgresViews } from "./postgres-views.ts";
import { dropUnwanted, enqueueMissing } from "./queue-maintenance.ts";
import { type Delivery, MAX_DELIVERIES_LOST, type RowQueue } from "./row-queue.ts";
import { execute, type Statement, storable } from "./statement.ts";

export interface PostgresLedgerOptions {
  database: PostgresDatabase;
  queue: RowQueue;
  jobId: string;
  clock: Clock;
  newToken: () => string;
  /** How often the engine is told that rows are still being worked on. */
  touchEveryMs: number;
  /** Called with errors of background work. */
  onError: (error: unknown) => void;
}

/** Each process that works on rows looks this often for what others of this machine have left: sooner than a heartbeat is missed. */
const LEFT_REPORTS_EVERY_MS = 3_000;
/** Dead letters taken at a time. */
const DEAD_LETTERS_BATCH = 100;
/** Each process that works on rows looks for dead letters this often. */
const DEAD_LETTERS_EVERY_MS = 5_000;

/**
 * One job in a database that several machines share. The engine decides which process works on a row; the ledger decides
 * which report counts. A row is settled by one guarded statement, and only then is the engine told: if the process dies in
 * between, the row is delivered once more and dropped before a model is called.
 */
export class PostgresLedger implements JobLedger {
  readonly jobId: string;
  readonly shared = true;
  readonly batches: PostgresBatches;
  readonly views: PostgresViews;
  #options: PostgresLedgerOptions;
  #database: PostgresDatabase;
  #queue: RowQueue;
  #reads: PostgresReads;
  #budget: PostgresBudget;
  #settlements: PostgresSettlements;
  #clock: Clock;
  #deliveries = new Map<string, Delivery>();
  #touching: Timer | null = null;
  #deadLettersAtMs = 0;
  #leftReportsAtMs = Number.NEGATIVE_INFINITY;
  /** New rows are meant for batches, so they are not put into the queue. */
  #isBatch = false;

  constructor(options: PostgresLedgerOptions) {
    this.jobId = options.jobId;
    this.#options = options;
    this.#database = options.database;
    this.#queue = options.queue;
    this.#reads = new PostgresReads(options.database, options.jobId);
    this.#budget = new PostgresBudget(options.database, options.jobId);
    this.#clock = options.clock;
    const cancelJob = (client: PoolClient) => this.#cancelJob(client);
    this.#settlements = new PostgresSettlements({
      database: options.database,
      jobId: options.jobId,
      clock: options.clock,
      cancelJob,
      tell: (message) => options.onError(new Error(message)),
    });
    this.views = new PostgresViews(options.database, options.jobId);
    this.batches = new PostgresBatches({
      database: options.database,
      queue: options.queue,
      jobId: options.jobId,
      clock: options.clock,
      cancelJob,
    });
  }

  job(): Promise<JobRecord> {
    return this.#reads.job();
  }

  counts(): Promise<JobCounts> {
    return this.#reads.counts();
  }

  isDone(): Promise<boolean> {
    return this.#reads.isDone();
  }

  nextDueAtMs(): Promise<number | null> {
    return this.#reads.nextDueAtMs();
  }

  items(filter?: { statuses?: readonly ItemStatus[] }): AsyncGenerator<ItemRecord, void, undefined> {
    return this.#reads.items(filter);
  }

  item(itemId: string): Promise<ItemRecord | null> {
    return this.#reads.item(itemId);
  }

  attempts(itemId: string): Promise<AttemptRecord[]> {
    return this.#reads.attempts(itemId);
  }

  unasked(afterRow: number, limit: number): Promise<UnaskedRow[]> {
    return this.#reads.unasked(afterRow, limit);
  }

  settledSince(sinceMs: number): AsyncIterable<ItemRecord> {
    return this.#reads.settledSince(sinceMs);
  }

  async spending(): Promise<Spending | null> {
    const { budget } = (await this.job()).settings;
    return budget ? this.#budget.spending(budget) : null;
  }

  /** Any number of processes may join: the engine gives each its own rows. */
  async beginRun(options: { join?: boolean } = {}): Promise<boolean> {
    if (this.#touching) return true;
    this.#settlements.outputPath = (await this.job()).outputPath;
    await this.#settlements.settleLeft();
    await this.#queue.create();
    if (!options.join) await enqueueMissing(this.#database, this.#queue, this.jobId);
    this.#touchLater();
    this.#database.outage.onBack.add(this.#touch);
    return true;
  }

  async endRun(): Promise<void> {
    this.#touching?.cancel();
    this.#touching = null;
    this.#database.outage.onBack.delete(this.#touch);
  }

  async isBeingRun(): Promise<null> {
    return null;
  }

  async claim(limit: number): Promise<Claim[]> {
    await this.#settleLeft();
    await this.#failDeadRows();
    const { status, settings } = await this.job();
    if (status !== "running") return [];
    const { budget } = settings;
    const worthTaking = budget ? await this.#budget.worthTaking(budget, limit) : limit;
    const deliveries = this.#withoutOwn(await this.#take(worthTaking));
    if (deliveries.length === 0) return [];
    const tokens = deliveries.map(() => this.#options.newToken());
    const given = { itemIds: deliveries.map((one) => one.itemId), tokens, now: this.#clock.now() };
    const rows = budget
      ? await this.#budget.claim(budget, given)
      : await this.#database.all(CLAIM_ITEMS, { jobId: this.jobId, ...given });
    const claimed = new Map(rows.map((row) => [String(row.item_id), row]));
    const unwanted = deliveries.filter((one) => !claimed.has(one.itemId));
    await dropUnwanted(this.#database, this.#queue, this.jobId, unwanted);
    return deliveries.flatMap((one, index) => {
      const row = claimed.get(one.itemId);
      const token = tokens[index];
      if (!row || token === undefined) return [];
      this.#deliveries.set(token, one);
      return [{ item: decodeItem(row), token }];
    });
  }

  complete(claim: Claim, report: Report): Promise<ItemRecord | null> {
    return this.#settle(claim, { type: "reported", attempt: attemptOf(claim), report });
  }

  fail(claim: Claim, failure: AttemptFailure): Promise<ItemRecord | null> {
    return this.#settle(claim, { type: "failed", attempt: attemptOf(claim), failure });
  }

  retry(claim: Claim, failure: AttemptFailure, delayMs: number): Promise<boolean> {
    const dueAt = Math.round(this.#clock.now() + delayMs);
    return this.#putBack(claim, dueAt, RETRY_ITEM, { ...this.#failed(claim, failure), dueAt });
  }

  release(claim: Claim, usage: TokenUsage, transcript?: string): Promise<boolean> {
    return this.#putBack(claim, 0, RELEASE_ITEM, { ...this.#held(claim, transcript), ...usageValues(usage) });
  }

  async adopt(answers: readonly { rowIndex: number; answer: StoredAnswer }[]): Promise<number> {
    if (answers.length === 0) return 0;
    const { rowCount } = await this.#database.run(ADOPT_ITEMS, this.#adopted(answers));
    return rowCount ?? 0;
  }

  append(
    rows: readonly NewItem[],
    answers: readonly { rowIndex: number; answer: StoredAnswer }[],
  ): Promise<void> {
    const answered = new Set(answers.map(({ rowIndex }) => rowIndex));
    const queued = this.#isBatch ? [] : rows.filter(({ rowIndex }) => !answered.has(rowIndex));
    return this.#database.transaction(async (client) => {
      await insertItems(client, this.jobId, rows);
      const totalRows = (rows.at(-1)?.rowIndex ?? -1) + 1;
      await execute(client, COUNT_READ_ROWS, { jobId: this.jobId, totalRows });
      if (answers.length > 0) await execute(client, ADOPT_ITEMS, this.#adopted(answers));
      const due = queued.map(({ itemId, rowIndex }) => ({ itemId: storable(itemId), rowIndex, dueAtMs: 0 }));
      await this.#queue.put(due, client);
    });
  }

  async finishReading(headers: readonly string[], totalRows: number): Promise<void> {
    const values = { jobId: this.jobId, headers: JSON.stringify(headers), totalRows, isReading: false };
    await this.#database.run(FINISH_JOB_INSERT, values);
  }

  async setStatus(to: JobStatus, from: readonly JobStatus[], error: string | null = null): Promise<boolean> {
    const values = this.#statusChange(to, from, error);
    const changed = await this.#database.transaction(async (client, isRepeat) => {
      const { rowCount } = await execute(client, SET_STATUS, values);
      if (rowCount === 1 || !isRepeat) return rowCount === 1;
      // The change may have been made before the connection was lost.
      const { rows } = await execute(client, READ_JOB, { jobId: this.jobId });
      return rows[0]?.status === to;
    });
    // A finished job has nothing left to deliver; if rows are retried, its queue is created again.
    if (changed && (to === "completed" || to === "completed_with_errors")) await this.#queue.remove();
    return changed;
  }

  async setOptions(options: { settings: JobSettings; outputPath: string }): Promise<void> {
    await this.#database.run(SET_OPTIONS, {
      jobId: this.jobId,
      settings: JSON.stringify(options.settings),
      outputPath: options.outputPath,
      now: this.#clock.now(),
    });
    this.#isBatch = options.settings.batch === true;
    this.#settlements.outputPath = options.outputPath;
    if (this.#touching) await enqueueMissing(this.#database, this.#queue, this.jobId);
  }

  async retryFailed(filter: {
    errorClasses?: readonly ErrorClass[];
    itemIds?: readonly string[];
  }): Promise<number> {
    const { rowCount } = await this.#database.run(RETRY_FAILED_ITEMS, {
      jobId: this.jobId,
      errorClasses: filter.errorClasses ?? null,
      itemIds: filter.itemIds ?? null,
    });
    if (this.#touching) await enqueueMissing(this.#database, this.#queue, this.jobId);
    return rowCount ?? 0;
  }

  async [Symbol.asyncDispose](): Promise<void> {
    await this.endRun();
    await this.batches.stopLeading();
  }

  /**
   * The engine delivers a row again that this process works on when heartbeats were missing for too long, as after an outage.
   * The attempt continues, with the new delivery.
   */
  #withoutOwn(deliveries: readonly Delivery[]): Delivery[] {
    const tokens = new Map([...this.#deliveries].map(([token, { itemId }]) => [itemId, token]));
    return deliveries.filter((one) => {
      const token = tokens.get(one.itemId);
      if (token !== undefined) this.#deliveries.set(token, one);
      return token === undefined;
    });
  }

  async #take(limit: number): Promise<Delivery[]> {
    try {
      return await this.#queue.take(limit);
    } catch (error) {
      // Another process has just finished the job, and its queue is gone.
      if ((await this.job()).status !== "running") return [];
      throw error;
    }
  }

  /** A row of a process that died must not be asked again while its report lies on this machine. */
  async #settleLeft(): Promise<void> {
    const monotonic = this.#clock.monotonic();
    if (monotonic - this.#leftReportsAtMs < LEFT_REPORTS_EVERY_MS) return;
    this.#leftReportsAtMs = monotonic;
    await this.#settlements.settleLeft({ dead: true });
  }

  async #failDeadRows(): Promise<void> {
    const monotonic = this.#clock.monotonic();
    if (monotonic - this.#deadLettersAtMs < DEAD_LETTERS_EVERY_MS) return;
    this.#deadLettersAtMs = monotonic;
    const dead = await this.#queue.takeDead(DEAD_LETTERS_BATCH);
    for (const one of dead) {
      await this.#database.run(FAIL_DEAD_ITEM, {
        jobId: one.jobId,
        itemId: one.itemId,
        message: `${MAX_DELIVERIES_LOST + 1} workers died at this row`,
        now: this.#clock.now(),
      });
    }
    await this.#queue.buried(dead);
  }

  /** Sends the engine a heartbeat for the rows held here. A failed one is retried at the next beat. */
  #touch = (): Promise<void> =>
    this.#queue.touch([...this.#deliveries.values()]).catch(this.#options.onError);

  #touchLater(): void {
    this.#touching = this.#clock.after(
      this.#options.touchEveryMs,
      () => {
        void this.#touch().finally(() => {
          if (this.#touching) this.#touchLater();
        });
      },
      { keepAlive: false },
    );
  }

  async #settle(claim: Claim, settlement: KeptSettlement): Promise<ItemRecord | null> {
    const row = await this.#settlements.settle(settlement);
    await this.#letGo(claim);
    return row ? decodeItem(row) : null;
  }

  /** The ledger has the row's outcome, so the engine may forget it. If that fails, the row is delivered again and dropped. */
  async #letGo(claim: Claim): Promise<void> {
    const delivery = this.#deliveries.get(claim.token);
    this.#deliveries.delete(claim.token);
    if (delivery) await this.#queue.done([delivery]).catch(this.#options.onError);
  }

  /** Makes the row pending and queues it in one transaction, so that it is never lost to both. */
  async #putBack(
    claim: Claim,
    dueAtMs: number,
    statement: Statement,
    values: Readonly<Record<string, unknown>>,
  ): Promise<boolean> {
    const delivery = this.#deliveries.get(claim.token);
    const changed = await this.#database.transaction(async (client: PoolClient) => {
      const { rowCount } = await execute(client, statement, values);
      if (rowCount !== 1) return false;
      if (delivery) await this.#queue.done([delivery], client);
      const { itemId, rowIndex } = claim.item;
      await this.#queue.put([{ itemId, rowIndex, dueAtMs }], client);
      return true;
    });
    this.#deliveries.delete(claim.token);
    return changed;
  }

  /** The values that identify an attempt, with its end time and transcript. */
  #held(claim: Claim, transcript: string | undefined): Record<string, unknown> {
    return {
      jobId: this.jobId,
      rowIndex: claim.item.rowIndex,
      token: claim.token,
      now: this.#clock.now(),
      transcript: transcript === undefined ? null : storable(transcript),
    };
  }

  #adopted(answers: readonly { rowIndex: number; answer: StoredAnswer }[]): Record<string, unknown> {
    return {
      jobId: this.jobId,
      rowIndexes: answers.map(({ rowIndex }) => rowIndex),
      results: answers.map(({ answer }) => answer.result),
      messages: answers.map(({ answer }) => reusedText(answer)),
      now: this.#clock.now(),
    };
  }

  #failed(claim: Claim, { errorClass, message, usage, transcript }: AttemptFailure): Record<string, unknown> {
    return {
      ...this.#held(claim, transcript),
      ...usageValues(usage),
      errorClass,
      message: storable(message),
    };
  }

  async #cancelJob(client: PoolClient): Promise<void> {
    const change = this.#statusChange("cancelled", ["pending", "running"], CANCELLED_BY_ROW_AGENT);
    await execute(client, SET_STATUS, change);
  }

  #statusChange(to: JobStatus, from: readonly JobStatus[], error: string | null): Record<string, unknown> {
    const now = this.#clock.now();
    return {
      jobId: this.jobId,
      to,
      from,
      error,
      now,
      endedAt: hasEnded(to) ? now : null,
      startedAt: to === "running" ? now : null,
    };
  }
}
