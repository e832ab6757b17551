import { rmSync } from "node:fs";
import type { DatabaseSync } from "node:sqlite";
import { NO_USAGE, type TokenUsage } from "../../../agent/token-usage.ts";
import type { Clock } from "../../../async/clock.ts";
import type { Outage } from "../../../async/outage.ts";
import {
  type AttemptOutcome,
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
import type { BatchLedger } from "../batch-ledger.ts";
import type { AttemptFailure, Claim, JobLedger, Report, UnaskedRow } from "../job-ledger.ts";
import { attemptOf, type KeptAttempt, type KeptSettlement, KeptSettlements } from "../outcome-spool.ts";
import { decodeJob, usageValues } from "../record-codec.ts";
import { reusedText } from "../reused-answer-text.ts";
import { type AttemptEnd, endValues } from "./attempt-values.ts";
import { isUnwritable, type PatienceOptions, waitForRoom } from "./disk-full-retry.ts";
import { type Block, BlockWriter, itemIdOf, RowBlocks } from "./packed-rows.ts";
import { readPath, storedPath } from "./relocatable-path.ts";
import { ItemReader } from "./row-codec.ts";
import { SqliteBatches } from "./sqlite-batches.ts";
import { SqliteDatabase, takeLock } from "./sqlite-database.ts";
import { NO_LIMIT, SqliteReads } from "./sqlite-reads.ts";
import {
  ADOPT_ITEM,
  CLAIM_ITEM,
  COMPLETE_ITEM,
  COUNT_READ_ROWS,
  FAIL_ITEM,
  FIND_JOB_ID,
  FIND_OPEN_ITEM,
  FINISH_READING,
  INSERT_ATTEMPT,
  NEXT_DUE,
  READ_JOB,
  RECOVER_ITEMS,
  RELEASE_ITEM,
  RETRY_FAILED_ITEMS,
  RETRY_ITEM,
  SET_OPTIONS,
  SET_STATUS,
} from "./sqlite-statements.ts";
import { SqliteViews } from "./sqlite-views.ts";

/** A process that only checks whether a job is being run holds its lock for a moment; that must not refuse a run. */
const OUTWAIT_LOOK_MS = 500;

export interface SqliteLedgerOptions extends PatienceOptions {
  clock: Clock;
  newToken: () => string;
}

/** One job in one SQLite file. */
export class SqliteLedger implements JobLedger {
  readonly jobId: string;
  readonly shared = false;
  readonly batches: BatchLedger;
  readonly views: SqliteViews;
  #db: SqliteDatabase;
  #items: ItemReader;
  #blocks: RowBlocks;
  #reads: SqliteReads;
  #path: string;
  #lockPath: string;
  #lock: DatabaseSync | null = null;
  #clock: Clock;
  #newToken: () => string;
  #outage: Outage;
  #kept: KeptSettlements;
  #rowLimit: number;
  #onlyItems: string | null;
  #batch: boolean;

  private constructor(db: SqliteDatabase, jobId: string, path: string, options: SqliteLedgerOptions) {
    this.#db = db;
    this.#items = new ItemReader(db);
    this.#blocks = new RowBlocks(db);
    const file = { db, items: this.#items, blocks: this.#blocks, rowLimit: () => this.#rowLimit };
    this.#reads = new SqliteReads(file);
    this.jobId = jobId;
    this.#path = path;
    this.#lockPath = `${path}.run-lock`;
    this.#clock = options.clock;
    this.#newToken = options.newToken;
    this.#outage = waitForRoom(db, path, options);
    this.#kept = new KeptSettlements({
      jobId,
      ledgerFile: path,
      outputPath: () => this.#readJob().outputPath,
      tell: (message) => options.onError?.(new Error(message)),
    });
    const { settings } = this.#readJob();
    this.#rowLimit = settings.rowLimit ?? NO_LIMIT;
    this.#onlyItems = listOrNull(settings.onlyItems);
    this.#batch = settings.batch === true;
    this.views = new SqliteViews(file);
    this.batches = new SqliteBatches({
      db,
      items: this.#items,
      blocks: this.#blocks,
      clock: options.clock,
      wanted: () => this.#wanted(),
      change: (statements) => this.#change(statements),
      cancelJob: () => this.#setStatus("cancelled", ["pending", "running"], CANCELLED_BY_ROW_AGENT),
    });
  }

  static open(path: string, options: SqliteLedgerOptions): SqliteLedger {
    const db = new SqliteDatabase(path);
    try {
      const row = db.get(FIND_JOB_ID);
      if (typeof row?.id !== "string") throw new Error(`${path} holds no job`);
      return new SqliteLedger(db, row.id, path, options);
    } catch (error) {
      db.close();
      throw error;
    }
  }

  async job(): Promise<JobRecord> {
    return this.#readJob();
  }

  async counts(): Promise<JobCounts> {
    return this.#reads.counts();
  }

  async spending(): Promise<null> {
    return null;
  }

  async beginRun(): Promise<boolean> {
    if (this.#lock) return true;
    this.#lock = takeLock(this.#lockPath, OUTWAIT_LOOK_MS);
    if (!this.#lock) return false;
    await this.#settleKept();
    await this.#write(() => this.#db.run(RECOVER_ITEMS));
    return true;
  }

  async endRun(): Promise<void> {
    this.#lock?.close();
    this.#lock = null;
  }

  async isBeingRun(): Promise<boolean> {
    if (this.#lock) return true;
    const lock = takeLock(this.#lockPath);
    lock?.close();
    return lock === null;
  }

  async claim(limit: number): Promise<Claim[]> {
    const claims: Claim[] = [];
    for (let token = this.#newToken(); claims.length < limit; ) {
      const now = this.#clock.now();
      const row = await this.#write(() => this.#db.get(CLAIM_ITEM, { token, now, ...this.#single() }));
      if (row) {
        claims.push({ item: this.#items.decode(row), token });
        token = this.#newToken();
      } else if (!(await this.#takeApartNext())) break;
    }
    return claims;
  }

  /** Gives the next rows for single calls records of their own; false when no block holds any. */
  async #takeApartNext(): Promise<boolean> {
    if (this.#onlyItems !== null || this.#batch || this.#readJob().status !== "running") return false;
    const next = this.#blocks.next(-1, this.#rowLimit);
    if (!next) return false;
    await this.#change(() => this.#takeApart(this.#blocks.read(next.firstRow)));
    return true;
  }

  #takeApart(block: Block | null): void {
    if (block) this.#blocks.takeApart(block);
  }

  async isDone(): Promise<boolean> {
    return this.#db.get(FIND_OPEN_ITEM, this.#wanted()) === undefined;
  }

  async nextDueAtMs(): Promise<number | null> {
    const row = this.#db.get(NEXT_DUE, this.#single());
    return typeof row?.due === "number" ? row.due : null;
  }

  async complete(claim: Claim, report: Report): Promise<ItemRecord | null> {
    return this.#settle({ type: "reported", attempt: attemptOf(claim), report });
  }

  async fail(claim: Claim, failure: AttemptFailure): Promise<ItemRecord | null> {
    return this.#settle({ type: "failed", attempt: attemptOf(claim), failure });
  }

  async retry(claim: Claim, failure: AttemptFailure, delayMs: number): Promise<boolean> {
    const { errorClass, message, usage } = failure;
    const dueAt = Math.round(this.#clock.now() + delayMs);
    return this.#change(() => {
      const values = { ...held(claim), ...usageValues(usage), errorClass, message, dueAt };
      const isHeld = this.#db.run(RETRY_ITEM, values) === 1;
      if (isHeld) this.#keep(attemptOf(claim), "retried", failure);
      return isHeld;
    });
  }

  async release(claim: Claim, usage: TokenUsage, transcript?: string): Promise<boolean> {
    return this.#change(() => {
      const isHeld = this.#db.run(RELEASE_ITEM, { ...held(claim), ...usageValues(usage) }) === 1;
      // An attempt in which nothing was said is not stored.
      if (isHeld && transcript !== undefined) this.#keep(attemptOf(claim), "released", { usage, transcript });
      return isHeld;
    });
  }

  async setStatus(to: JobStatus, from: readonly JobStatus[], error: string | null = null): Promise<boolean> {
    return this.#write(() => this.#setStatus(to, from, error));
  }

  async setOptions(options: { settings: JobSettings; outputPath: string }): Promise<void> {
    const values = {
      settings: JSON.stringify(options.settings),
      outputPath: storedPath(this.#path, options.outputPath),
      now: this.#clock.now(),
    };
    await this.#write(() => this.#db.run(SET_OPTIONS, values));
    this.#rowLimit = options.settings.rowLimit ?? NO_LIMIT;
    this.#onlyItems = listOrNull(options.settings.onlyItems);
    this.#batch = options.settings.batch === true;
    await this.#takeApartItems(options.settings.onlyItems ?? []);
  }

  /** Items that are to be worked on before the rest of their blocks. */
  async #takeApartItems(itemIds: readonly string[]): Promise<void> {
    if (itemIds.length === 0) return;
    const wanted = new Set(itemIds);
    for (const block of this.#blocks.all(NO_LIMIT)) {
      if (block.rows.some((row) => wanted.has(itemIdOf(row))))
        await this.#change(() => this.#takeApart(block));
    }
  }

  async retryFailed(filter: {
    errorClasses?: readonly ErrorClass[];
    itemIds?: readonly string[];
  }): Promise<number> {
    const values = { errorClasses: listOrNull(filter.errorClasses), itemIds: listOrNull(filter.itemIds) };
    return this.#write(() => this.#db.run(RETRY_FAILED_ITEMS, values));
  }

  async *items(filter?: { statuses?: readonly ItemStatus[] }): AsyncGenerator<ItemRecord, void, undefined> {
    yield* this.#reads.items(filter);
  }

  async item(itemId: string): Promise<ItemRecord | null> {
    return this.#reads.item(itemId);
  }

  async attempts(itemId: string): Promise<AttemptRecord[]> {
    return this.#reads.attempts(itemId);
  }

  async unasked(afterRow: number, limit: number): Promise<UnaskedRow[]> {
    return this.#reads.unasked(afterRow, limit);
  }

  async adopt(answers: readonly { rowIndex: number; answer: StoredAnswer }[]): Promise<number> {
    const now = this.#clock.now();
    return this.#db.transaction(() => this.#adopt(answers, now));
  }

  async append(
    rows: readonly NewItem[],
    answers: readonly { rowIndex: number; answer: StoredAnswer }[],
  ): Promise<void> {
    await this.#change(() => {
      const last = this.#blocks.lastRow();
      const answered = new Set(answers.map(({ rowIndex }) => rowIndex));
      const writer = new BlockWriter(this.#db);
      for (const item of rows) {
        if (item.rowIndex <= last) continue;
        if (answered.has(item.rowIndex)) writer.pushApart(item);
        else writer.push(item);
      }
      writer.flush();
      this.#db.run(COUNT_READ_ROWS, { totalRows: (rows.at(-1)?.rowIndex ?? -1) + 1 });
      this.#adopt(answers, this.#clock.now());
    });
  }

  async finishReading(headers: readonly string[], totalRows: number): Promise<void> {
    const values = { headers: JSON.stringify(headers), totalRows };
    await this.#write(() => this.#db.run(FINISH_READING, values));
  }

  findAnswers(questions: readonly string[]): StoredAnswer[] {
    return this.#reads.answers(questions);
  }

  async *settledSince(sinceMs: number): AsyncGenerator<ItemRecord, void, undefined> {
    yield* this.#reads.settledSince(sinceMs);
  }

  async [Symbol.asyncDispose](): Promise<void> {
    await this.endRun();
    this.#db.close();
  }

  /** A paid outcome is kept in another file while it waits for room here. */
  async #settle(settlement: KeptSettlement): Promise<ItemRecord | null> {
    try {
      return this.#db.transaction(() => this.#applySettlement(settlement));
    } catch (error) {
      if (!isUnwritable(error)) throw error;
      this.#kept.keep(settlement);
    }
    const item = await this.#change(() => this.#applySettlement(settlement));
    this.#kept.settled();
    return item;
  }

  /** Settles the outcomes that an earlier run could not write. */
  async #settleKept(): Promise<void> {
    for (const { file, settlements } of this.#kept.left()) {
      await this.#change(() => {
        for (const settlement of settlements) this.#applySettlement(settlement);
      });
      rmSync(file, { force: true });
    }
  }

  #applySettlement(settlement: KeptSettlement): ItemRecord | null {
    const { attempt } = settlement;
    const held = { rowIndex: attempt.rowIndex, token: attempt.token, now: this.#clock.now() };
    if (settlement.type === "failed") {
      const { errorClass, message, usage } = settlement.failure;
      const row = this.#db.get(FAIL_ITEM, { ...held, ...usageValues(usage), errorClass, message });
      if (row) this.#keep(attempt, "failed", settlement.failure);
      return this.#recordOf(row);
    }
    const { result, usage, stop } = settlement.report;
    const row = this.#db.get(COMPLETE_ITEM, { ...held, ...usageValues(usage), result });
    if (row) this.#keep(attempt, "reported", settlement.report);
    if (row && stop) this.#setStatus("cancelled", ["pending", "running"], CANCELLED_BY_ROW_AGENT);
    return this.#recordOf(row);
  }

  #adopt(answers: readonly { rowIndex: number; answer: StoredAnswer }[], now: number): number {
    let adopted = 0;
    for (const { rowIndex, answer } of answers) {
      this.#takeApart(this.#blocks.around(rowIndex));
      if (this.#db.run(ADOPT_ITEM, { rowIndex, result: answer.result, now }) === 0) continue;
      adopted++;
      this.#db.run(INSERT_ATTEMPT, {
        ...endValues({ usage: NO_USAGE, message: reusedText(answer) }),
        rowIndex,
        outcome: "reused",
        startedAt: null,
        now,
      });
    }
    return adopted;
  }

  #keep(attempt: KeptAttempt, outcome: AttemptOutcome, end: AttemptEnd): void {
    this.#db.run(INSERT_ATTEMPT, {
      ...endValues(end),
      rowIndex: attempt.rowIndex,
      outcome,
      startedAt: attempt.startedAtMs,
      now: this.#clock.now(),
    });
  }

  /** A change is atomic, so it can be retried when there is room. */
  #write<T>(change: () => T): Promise<T> {
    return this.#outage.ride(async () => change());
  }

  /** Runs several statements as one change. */
  #change<T>(statements: () => T): Promise<T> {
    return this.#write(() => this.#db.transaction(statements));
  }

  #setStatus(to: JobStatus, from: readonly JobStatus[], error: string | null): boolean {
    const now = this.#clock.now();
    return (
      this.#db.run(SET_STATUS, {
        to,
        error,
        now,
        endedAt: hasEnded(to) ? now : null,
        startedAt: to === "running" ? now : null,
        from: JSON.stringify(from),
      }) === 1
    );
  }

  #recordOf(row: Readonly<Record<string, unknown>> | undefined): ItemRecord | null {
    return row ? this.#items.decode(row) : null;
  }

  /** Selects the rows for single calls. */
  #single(): { rowLimit: number; onlyItems: string | null; batch: number } {
    return { ...this.#wanted(), batch: this.#batch ? 1 : 0 };
  }

  #wanted(): { rowLimit: number; onlyItems: string | null } {
    return { rowLimit: this.#rowLimit, onlyItems: this.#onlyItems };
  }

  #readJob(): JobRecord {
    const row = this.#db.get(READ_JOB);
    if (!row) throw new Error("the ledger holds no job");
    const job = decodeJob(row);
    return { ...job, outputPath: readPath(this.#path, job.outputPath) };
  }
}

function held(claim: Claim): { rowIndex: number; token: string } {
  return { rowIndex: claim.item.rowIndex, token: claim.token };
}

function listOrNull(values: readonly string[] | undefined): string | null {
  return values ? JSON.stringify(values) : null;
}
