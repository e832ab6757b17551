import type { TokenUsage } from "../../../agent/token-usage.ts";
import type { Clock } from "../../../async/clock.ts";
import type { AttemptOutcome, ItemRecord } from "../../job.ts";
import type { BatchGroup, BatchGroupChange, BatchLedger } from "../batch-ledger.ts";
import type { AttemptFailure, Report } from "../job-ledger.ts";
import { PAGE_ROWS, readPages } from "../read-pages.ts";
import { type AttemptEnd, type AttemptStart, decodeBatchGroup, groupValues, usageValues } from "../record-codec.ts";
import type { PackedRows } from "./packed-rows.ts";
import type { ItemReader } from "./row-codec.ts";
import type { SqliteDatabase } from "./sqlite-database.ts";
import * as sql from "./sqlite-statements.ts";

export interface SqliteBatchesOptions {
  db: SqliteDatabase;
  items: ItemReader;
  blocks: PackedRows;
  clock: Clock;
  /** Returns which rows the settings select. */
  selectedRows(): { rowLimit: number; onlyItems: string | null };
  /** Runs several statements as one change; retries once the disk has space again. */
  change<T>(statements: () => T): Promise<T>;
  /** Stores an attempt within a change. */
  recordAttempt(attempt: AttemptStart, outcome: AttemptOutcome, end: AttemptEnd): void;
  /** Cancels the job within a change, because an agent's report requests it. */
  cancelJob(): void;
}

/**
 * The batch groups of a job in one SQLite file. While this process has the right to run the job, no other process
 * changes its rows.
 */
export class SqliteBatches implements BatchLedger {
  #options: SqliteBatchesOptions;
  #db: SqliteDatabase;

  constructor(options: SqliteBatchesOptions) {
    this.#options = options;
    this.#db = options.db;
  }

  async acquireLeadership(): Promise<boolean> {
    return true;
  }

  async groups(): Promise<BatchGroup[]> {
    return this.#db.all(sql.READ_BATCH_GROUPS).map(decodeBatchGroup);
  }

  async newRows(afterRow: number, limit: number): Promise<ItemRecord[]> {
    const { blocks, items, selectedRows, change } = this.#options;
    const values = { after: afterRow, pageRows: limit, ...selectedRows() };
    for (;;) {
      const found = this.#db.all(sql.READ_NEW_ROWS, values).map(items.decode);
      // A block may contain rows that precede the last found row or complete the page. It is unpacked first.
      const before = found.length < limit ? values.rowLimit : (found.at(-1)?.rowIndex ?? values.rowLimit);
      const next = values.onlyItems === null ? blocks.next(-1, before) : null;
      const block = next ? blocks.read(next.firstRow) : null;
      if (!block) return found;
      await change(() => blocks.unpack(block));
    }
  }

  assign(groupId: string, rowIndexes: readonly number[]): Promise<number> {
    return this.#options.change(() => {
      const rows = this.#db.run(sql.ASSIGN_ROWS, { groupId, rowIndexes: JSON.stringify(rowIndexes) });
      if (rows > 0) this.#db.run(sql.INSERT_GROUP, { groupId, rows, now: this.#options.clock.now() });
      return rows;
    });
  }

  async moveToSingleCalls(rowIndex: number): Promise<void> {
    await this.#options.change(() => this.#db.run(sql.MOVE_TO_SINGLE_CALLS, { rowIndex }));
  }

  rows(groupId: string): AsyncIterable<ItemRecord> {
    return readPages((last) => {
      const values = { groupId, after: last?.rowIndex ?? -1, pageRows: PAGE_ROWS };
      return this.#db.all(sql.READ_GROUP_ROWS, values).map(this.#options.items.decode);
    });
  }

  async row(groupId: string, rowIndex: number): Promise<ItemRecord | null> {
    const row = this.#db.get(sql.READ_GROUP_ROW, { groupId, rowIndex });
    return row ? this.#options.items.decode(row) : null;
  }

  async update(groupId: string, change: BatchGroupChange): Promise<void> {
    await this.#options.change(() => this.#db.run(sql.UPDATE_GROUP, groupValues(groupId, change)));
  }

  complete(groupId: string, rowIndex: number, report: Report): Promise<ItemRecord | null> {
    const { result, usage, stop, transcript } = report;
    return this.#options.change(() => {
      const now = this.#options.clock.now();
      const values = { groupId, rowIndex, result, now, ...usageValues(usage) };
      const row = this.#db.get(sql.COMPLETE_GROUP_ROW, values);
      if (!row) return null;
      this.#options.recordAttempt({ rowIndex, startedAtMs: null }, "reported", { usage, transcript });
      if (stop) this.#options.cancelJob();
      return this.#options.items.decode(row);
    });
  }

  requeue(groupId: string, rowIndex: number, failure: AttemptFailure): Promise<boolean> {
    const { errorClass, message, usage } = failure;
    return this.#options.change(() => {
      const values = { groupId, rowIndex, errorClass, message, ...usageValues(usage) };
      const isHeld = this.#db.run(sql.REQUEUE_ROW, values) === 1;
      if (isHeld) this.#options.recordAttempt({ rowIndex, startedAtMs: null }, "retried", failure);
      return isHeld;
    });
  }

  release(groupId: string, rowIndex: number, usage: TokenUsage): Promise<boolean> {
    const values = { groupId, rowIndex, ...usageValues(usage) };
    return this.#options.change(() => this.#db.run(sql.RELEASE_GROUP_ROW, values) === 1);
  }

  async finish(groupId: string, error: string | null): Promise<void> {
    await this.#options.change(() => {
      this.#db.run(sql.RELEASE_GROUP, { groupId });
      this.#db.run(sql.UPDATE_GROUP, groupValues(groupId, { state: "done", error }));
    });
  }
}
