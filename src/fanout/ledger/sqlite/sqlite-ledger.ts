import { rmSync } from "node:fs";
import type { DatabaseSync } from "node:sqlite";
import { NO_USAGE, type TokenUsage } from "../../../agent/token-usage.ts";
import type { Clock } from "../../../async/clock.ts";
import type { OutageRetry } from "../../../async/outage-retry.ts";
import {
  type AttemptOutcome,
  CANCELLED_BY_ROW_AGENT,
  type ErrorClass,
  type ItemRecord,
  type JobRecord,
  type JobStatus,
  type JobStop,
  type NewItem,
} from "../../job.ts";
import type { JobSettings } from "../../job-settings.ts";
import type { BatchLedger } from "../batch-ledger.ts";
import type { AcquireRunOptions, AttemptFailure, ItemLease, JobLedger, Report, ReusedAnswer } from "../job-ledger.ts";
import { attemptOf, OutcomeSpool, type SpooledOutcome } from "../outcome-spool.ts";
import {
  type AttemptEnd,
  type AttemptStart,
  decodeJob,
  reusedAnswerText,
  statusValues,
  usageValues,
} from "../record-codec.ts";
import { type DiskFullOptions, isUnwritable, retryWhileDiskFull } from "./disk-full-retry.ts";
import { type Block, itemIdOf, NO_LIMIT, PackedRowWriter } from "./packed-rows.ts";
import { fromStoredPath, toStoredPath } from "./relocatable-path.ts";
import { SqliteBatches } from "./sqlite-batches.ts";
import { SqliteDatabase, takeLock } from "./sqlite-database.ts";
import { SqliteReads } from "./sqlite-reads.ts";
import * as sql from "./sqlite-statements.ts";
import { SqliteViews } from "./sqlite-views.ts";

/**
 * Wait for a process that only checks whether the job is running. Such a process holds the lock for a moment, which
 * must not reject a run.
 */
const LOCK_WAIT_MS = 500;

export interface SqliteLedgerOptions extends DiskFullOptions {
  clock: Clock;
  newToken: () => string;
}

/** One job in one SQLite file. */
export class SqliteLedger extends SqliteReads implements JobLedger {
  readonly jobId: string;
  readonly shared = false;
  readonly batches: BatchLedger;
  readonly views: SqliteViews;
  #db: SqliteDatabase;
  #path: string;
  #lockPath: string;
  #lock: DatabaseSync | null = null;
  #clock: Clock;
  #newToken: () => string;
  #outage: OutageRetry;
  #spool: OutcomeSpool;
  #settings: JobSettings;

  private constructor(db: SqliteDatabase, jobId: string, path: string, options: SqliteLedgerOptions) {
    super(db);
    this.#db = db;
    this.jobId = jobId;
    this.#path = path;
    this.#lockPath = `${path}.run-lock`;
    this.#clock = options.clock;
    this.#newToken = options.newToken;
    this.#outage = retryWhileDiskFull(db, path, options);
    this.#spool = new OutcomeSpool({
      jobId,
      ledgerFile: path,
      report: (message) => options.onError?.(new Error(message)),
    });
    this.#settings = this.#readJob().settings;
    this.views = new SqliteViews(this.file);
    this.batches = new SqliteBatches({
      ...this.file,
      clock: options.clock,
      selectedRows: () => this.#selectedRows(),
      change: (statements) => this.#change(statements),
      recordAttempt: (attempt, outcome, end) => this.#recordAttempt(attempt, outcome, end),
      cancelJob: () => this.#setStatus("cancelled", ["pending", "running"], CANCELLED_BY_ROW_AGENT),
    });
  }

  static open(path: string, options: SqliteLedgerOptions): SqliteLedger {
    const db = new SqliteDatabase(path);
    try {
      const row = db.get(sql.FIND_JOB_ID);
      if (typeof row?.id !== "string") throw new Error(`${path} contains no job`);
      return new SqliteLedger(db, row.id, path, options);
    } catch (error) {
      db.close();
      throw error;
    }
  }

  protected override get rowLimit(): number {
    return this.#settings.rowLimit ?? NO_LIMIT;
  }

  async job(): Promise<JobRecord> {
    return this.#readJob();
  }

  async spending(): Promise<null> {
    return null;
  }

  async acquireRun({ outputPath }: AcquireRunOptions = {}): Promise<boolean> {
    if (this.#lock) return true;
    this.#lock = takeLock(this.#lockPath, LOCK_WAIT_MS);
    if (!this.#lock) return false;
    this.#spool.open(outputPath ?? this.#readJob().outputPath);
    await this.#applySpooled();
    await this.#write(() => this.#db.run(sql.RECOVER_ITEMS));
    return true;
  }

  async releaseRun(): Promise<void> {
    this.#lock?.close();
    this.#lock = null;
    this.#spool[Symbol.dispose]();
  }

  async isRunHeld(): Promise<boolean> {
    if (this.#lock) return true;
    const lock = takeLock(this.#lockPath);
    lock?.close();
    return lock === null;
  }

  async lease(limit: number): Promise<ItemLease[]> {
    const leases: ItemLease[] = [];
    for (let leaseToken = this.#newToken(); leases.length < limit; ) {
      const now = this.#clock.now();
      const row = await this.#write(() =>
        this.#db.get(sql.LEASE_ITEM, { token: leaseToken, now, ...this.#singleCallRows() }),
      );
      if (row) {
        leases.push({ item: this.file.items.decode(row), leaseToken });
        leaseToken = this.#newToken();
      } else if (!(await this.#unpackNext())) break;
    }
    return leases;
  }

  /** Unpacks the next rows for single calls. Returns false if no block contains any. */
  async #unpackNext(): Promise<boolean> {
    if (this.#settings.onlyItems || this.#settings.batch || this.#readJob().status !== "running") return false;
    const next = this.file.blocks.next(-1, this.rowLimit);
    if (!next) return false;
    await this.#change(() => this.#unpack(this.file.blocks.read(next.firstRow)));
    return true;
  }

  #unpack(block: Block | null): void {
    if (block) this.file.blocks.unpack(block);
  }

  async isDone(): Promise<boolean> {
    return this.#db.get(sql.FIND_OPEN_ITEM, this.#selectedRows()) === undefined;
  }

  async nextDueAtMs(): Promise<number | null> {
    const row = this.#db.get(sql.NEXT_DUE, this.#singleCallRows());
    return typeof row?.due === "number" ? row.due : null;
  }

  async complete(lease: ItemLease, report: Report): Promise<ItemRecord | null> {
    return this.#store({ type: "reported", attempt: attemptOf(lease), report });
  }

  async fail(lease: ItemLease, failure: AttemptFailure): Promise<ItemRecord | null> {
    return this.#store({ type: "failed", attempt: attemptOf(lease), failure });
  }

  async retry(lease: ItemLease, failure: AttemptFailure, delayMs: number): Promise<boolean> {
    const { errorClass, message, usage } = failure;
    const dueAt = Math.round(this.#clock.now() + delayMs);
    const attempt = attemptOf(lease);
    const values = {
      rowIndex: attempt.rowIndex,
      token: attempt.token,
      ...usageValues(usage),
      errorClass,
      message,
      dueAt,
    };
    return this.#change(() => {
      const isHeld = this.#db.run(sql.RETRY_ITEM, values) === 1;
      if (isHeld) this.#recordAttempt(attempt, "retried", failure);
      return isHeld;
    });
  }

  async release(lease: ItemLease, usage: TokenUsage, transcript?: string): Promise<boolean> {
    const attempt = attemptOf(lease);
    return this.#change(() => {
      const values = { rowIndex: attempt.rowIndex, token: attempt.token, ...usageValues(usage) };
      const isHeld = this.#db.run(sql.RELEASE_ITEM, values) === 1;
      // An attempt with an empty transcript is not stored.
      if (isHeld && transcript !== undefined) this.#recordAttempt(attempt, "released", { usage, transcript });
      return isHeld;
    });
  }

  async setStatus(to: JobStatus, from: readonly JobStatus[], stop: JobStop | null = null): Promise<boolean> {
    return this.#write(() => this.#setStatus(to, from, stop));
  }

  async setOptions(options: { settings: JobSettings; outputPath: string }): Promise<void> {
    const { settings } = options;
    const outputPath = toStoredPath(this.#path, options.outputPath);
    const values = { settings: JSON.stringify(settings), outputPath, now: this.#clock.now() };
    await this.#write(() => this.#db.run(sql.SET_OPTIONS, values));
    this.#settings = settings;
    await this.#unpackItems(settings.onlyItems ?? []);
  }

  /** Unpacks items that are executed before the rest of their blocks. */
  async #unpackItems(itemIds: readonly string[]): Promise<void> {
    if (itemIds.length === 0) return;
    const selectedIds = new Set(itemIds);
    for (const block of this.file.blocks.all()) {
      if (block.rows.some((row) => selectedIds.has(itemIdOf(row)))) await this.#change(() => this.#unpack(block));
    }
  }

  async retryFailed(filter: { errorClasses?: readonly ErrorClass[]; itemIds?: readonly string[] }): Promise<number> {
    const values = { errorClasses: listOrNull(filter.errorClasses), itemIds: listOrNull(filter.itemIds) };
    return this.#write(() => this.#db.run(sql.RETRY_FAILED_ITEMS, values));
  }

  async completeWithReused(answers: readonly ReusedAnswer[]): Promise<number> {
    return this.#change(() => this.#completeWithReused(answers));
  }

  async appendRows(rows: readonly NewItem[], answers: readonly ReusedAnswer[]): Promise<void> {
    await this.#change(() => {
      const last = this.file.blocks.lastRow();
      const answered = new Set(answers.map(({ rowIndex }) => rowIndex));
      const writer = new PackedRowWriter(this.#db);
      for (const item of rows) {
        if (item.rowIndex <= last) continue;
        if (answered.has(item.rowIndex)) writer.pushUnpacked(item);
        else writer.push(item);
      }
      writer.flush();
      this.#db.run(sql.COUNT_READ_ROWS, { totalRows: (rows.at(-1)?.rowIndex ?? -1) + 1 });
      this.#completeWithReused(answers);
    });
  }

  async finishReading(headers: readonly string[], totalRows: number): Promise<void> {
    const values = { headers: JSON.stringify(headers), totalRows };
    await this.#write(() => this.#db.run(sql.FINISH_READING, values));
  }

  async [Symbol.asyncDispose](): Promise<void> {
    await this.releaseRun();
    this.#db.close();
  }

  /** Finishes a row. The outcome is spooled to another file while this one is unwritable. */
  async #store(outcome: SpooledOutcome): Promise<ItemRecord | null> {
    try {
      return this.#db.transaction(() => this.#apply(outcome));
    } catch (error) {
      if (!isUnwritable(error)) throw error;
      this.#spool.add(outcome);
    }
    const item = await this.#change(() => this.#apply(outcome));
    this.#spool.remove();
    return item;
  }

  /** Applies the outcomes that an earlier run could not store. */
  async #applySpooled(): Promise<void> {
    for (const { file, outcomes } of this.#spool.pending(this.#readJob().outputPath)) {
      await this.#change(() => {
        for (const outcome of outcomes) this.#apply(outcome);
      });
      rmSync(file, { force: true });
    }
  }

  #apply(outcome: SpooledOutcome): ItemRecord | null {
    const { attempt } = outcome;
    const attemptValues = { rowIndex: attempt.rowIndex, token: attempt.token, now: this.#clock.now() };
    if (outcome.type === "failed") {
      const { errorClass, message, usage } = outcome.failure;
      const row = this.#db.get(sql.FAIL_ITEM, { ...attemptValues, ...usageValues(usage), errorClass, message });
      if (row) this.#recordAttempt(attempt, "failed", outcome.failure);
      return this.#decodeOrNull(row);
    }
    const { result, usage, stop } = outcome.report;
    const row = this.#db.get(sql.COMPLETE_ITEM, { ...attemptValues, ...usageValues(usage), result });
    if (row) this.#recordAttempt(attempt, "reported", outcome.report);
    if (row && stop) this.#setStatus("cancelled", ["pending", "running"], CANCELLED_BY_ROW_AGENT);
    return this.#decodeOrNull(row);
  }

  #completeWithReused(answers: readonly ReusedAnswer[]): number {
    const now = this.#clock.now();
    let completed = 0;
    for (const { rowIndex, answer } of answers) {
      this.#unpack(this.file.blocks.around(rowIndex));
      if (this.#db.run(sql.COMPLETE_WITH_REUSED, { rowIndex, result: answer.result, now }) === 0) continue;
      completed++;
      const end = { usage: NO_USAGE, message: reusedAnswerText(answer) };
      this.#recordAttempt({ rowIndex, startedAtMs: null }, "reused", end);
    }
    return completed;
  }

  #recordAttempt(attempt: AttemptStart, outcome: AttemptOutcome, end: AttemptEnd): void {
    const { usage, errorClass = null, message = null, transcript = "[]" } = end;
    this.#db.run(sql.INSERT_ATTEMPT, {
      ...usageValues(usage),
      errorClass,
      message,
      transcript,
      rowIndex: attempt.rowIndex,
      outcome,
      startedAt: attempt.startedAtMs,
      now: this.#clock.now(),
    });
  }

  /** Runs an atomic change, and retries it while the disk is full. */
  #write<T>(change: () => T): Promise<T> {
    return this.#outage.run(async () => change());
  }

  /** Runs several statements as one change. */
  #change<T>(statements: () => T): Promise<T> {
    return this.#write(() => this.#db.transaction(statements));
  }

  #setStatus(to: JobStatus, from: readonly JobStatus[], stop: JobStop | null): boolean {
    const values = { ...statusValues(to, stop, this.#clock.now()), from: JSON.stringify(from) };
    return this.#db.run(sql.SET_STATUS, values) === 1;
  }

  #decodeOrNull(row: Readonly<Record<string, unknown>> | undefined): ItemRecord | null {
    return row ? this.file.items.decode(row) : null;
  }

  /** Selects the rows for single calls. */
  #singleCallRows(): { rowLimit: number; onlyItems: string | null; batch: number } {
    return { ...this.#selectedRows(), batch: Number(this.#settings.batch ?? false) };
  }

  #selectedRows(): { rowLimit: number; onlyItems: string | null } {
    return { rowLimit: this.rowLimit, onlyItems: listOrNull(this.#settings.onlyItems) };
  }

  #readJob(): JobRecord {
    const row = this.#db.get(sql.READ_JOB);
    if (!row) throw new Error("the ledger contains no job");
    const job = decodeJob(row);
    return { ...job, outputPath: fromStoredPath(this.#path, job.outputPath) };
  }
}

function listOrNull(values: readonly string[] | undefined): string | null {
  return values ? JSON.stringify(values) : null;
}
