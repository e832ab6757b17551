import type { TokenUsage } from "../../../agent/token-usage.ts";
import type { Clock } from "../../../async/clock.ts";
import type { AttemptOutcome, ItemRecord } from "../../job.ts";
import type { BatchLedger, BatchPart, BatchPartChange } from "../batch-ledger.ts";
import type { AttemptFailure, Report } from "../job-ledger.ts";
import { decodeBatchPart, usageValues } from "../record-codec.ts";
import { type AttemptEnd, endValues } from "./attempt-values.ts";
import type { RowBlocks } from "./packed-rows.ts";
import type { ItemReader } from "./row-codec.ts";
import type { SqliteDatabase } from "./sqlite-database.ts";
import {
  ASK_SINGLY,
  ASSIGN_ROWS,
  COMPLETE_PART_ROW,
  GIVE_BACK_ROW,
  INSERT_ATTEMPT,
  INSERT_PART,
  READ_FRESH,
  READ_PART_ROW,
  READ_PART_ROWS,
  READ_PARTS,
  RELEASE_PART,
  RELEASE_PART_ROW,
  UPDATE_PART,
} from "./sqlite-statements.ts";

/** Rows of a part read at a time. */
const PAGE_ROWS = 500;

export interface SqliteBatchesOptions {
  db: SqliteDatabase;
  items: ItemReader;
  blocks: RowBlocks;
  clock: Clock;
  /** Which rows the job's settings select now. */
  wanted(): { rowLimit: number; onlyItems: string | null };
  /** Runs several statements as one change, retried when the disk has room again. */
  change<T>(statements: () => T): Promise<T>;
  /** Cancels the job inside a change, because an agent's report requests it. */
  cancelJob(): void;
}

/** The batch parts of a job in one SQLite file. While this process has the right to run the job, no other changes its rows. */
export class SqliteBatches implements BatchLedger {
  #options: SqliteBatchesOptions;
  #db: SqliteDatabase;

  constructor(options: SqliteBatchesOptions) {
    this.#options = options;
    this.#db = options.db;
  }

  async lead(): Promise<boolean> {
    return true;
  }

  async parts(): Promise<BatchPart[]> {
    return this.#db.all(READ_PARTS).map(decodeBatchPart);
  }

  async fresh(afterRow: number, limit: number): Promise<ItemRecord[]> {
    const { blocks, items, wanted, change } = this.#options;
    const values = { after: afterRow, pageRows: limit, ...wanted() };
    for (;;) {
      const found = this.#db.all(READ_FRESH, values).map(items.decode);
      // Rows with a record of their own may lie behind those in a block.
      const before = found.length < limit ? values.rowLimit : (found.at(-1)?.rowIndex ?? values.rowLimit);
      const next = values.onlyItems === null ? blocks.next(-1, before) : null;
      const block = next ? blocks.read(next.firstRow) : null;
      if (!block) return found;
      await change(() => blocks.takeApart(block));
    }
  }

  assign(part: string, rowIndexes: readonly number[]): Promise<number> {
    return this.#options.change(() => {
      const rows = this.#db.run(ASSIGN_ROWS, { part, rowIndexes: JSON.stringify(rowIndexes) });
      if (rows > 0) this.#db.run(INSERT_PART, { part, rows, now: this.#options.clock.now() });
      return rows;
    });
  }

  async askSingly(rowIndex: number): Promise<void> {
    await this.#options.change(() => this.#db.run(ASK_SINGLY, { rowIndex }));
  }

  async *rows(part: string): AsyncGenerator<ItemRecord, void, undefined> {
    for (let after = -1; ; ) {
      const page = this.#db
        .all(READ_PART_ROWS, { part, after, pageRows: PAGE_ROWS })
        .map(this.#options.items.decode);
      yield* page;
      const last = page.at(-1);
      if (!last || page.length < PAGE_ROWS) return;
      after = last.rowIndex;
    }
  }

  async row(part: string, rowIndex: number): Promise<ItemRecord | null> {
    const row = this.#db.get(READ_PART_ROW, { part, rowIndex });
    return row ? this.#options.items.decode(row) : null;
  }

  async update(part: string, change: BatchPartChange): Promise<void> {
    await this.#options.change(() => this.#db.run(UPDATE_PART, partValues(part, change)));
  }

  complete(part: string, rowIndex: number, report: Report): Promise<ItemRecord | null> {
    const { result, usage, stop, transcript } = report;
    return this.#options.change(() => {
      const now = this.#options.clock.now();
      const row = this.#db.get(COMPLETE_PART_ROW, { part, rowIndex, result, now, ...usageValues(usage) });
      if (!row) return null;
      this.#keep(rowIndex, "reported", { usage, transcript });
      if (stop) this.#options.cancelJob();
      return this.#options.items.decode(row);
    });
  }

  giveBack(part: string, rowIndex: number, failure: AttemptFailure): Promise<boolean> {
    const { errorClass, message, usage } = failure;
    return this.#options.change(() => {
      const values = { part, rowIndex, errorClass, message, ...usageValues(usage) };
      const isHeld = this.#db.run(GIVE_BACK_ROW, values) === 1;
      if (isHeld) this.#keep(rowIndex, "retried", failure);
      return isHeld;
    });
  }

  release(part: string, rowIndex: number, usage: TokenUsage): Promise<boolean> {
    const values = { part, rowIndex, ...usageValues(usage) };
    return this.#options.change(() => this.#db.run(RELEASE_PART_ROW, values) === 1);
  }

  async finish(part: string, error: string | null): Promise<void> {
    await this.#options.change(() => {
      this.#db.run(RELEASE_PART, { part });
      const change: BatchPartChange = { state: "done" };
      if (error !== null) change.error = error;
      this.#db.run(UPDATE_PART, partValues(part, change));
    });
  }

  #keep(rowIndex: number, outcome: AttemptOutcome, attempt: AttemptEnd): void {
    this.#db.run(INSERT_ATTEMPT, {
      ...endValues(attempt),
      rowIndex,
      outcome,
      startedAt: null,
      now: this.#options.clock.now(),
    });
  }
}

function partValues(part: string, change: BatchPartChange) {
  return {
    part,
    state: change.state ?? null,
    answered: change.answered ?? null,
    hasFileId: change.fileId === undefined ? 0 : 1,
    fileId: change.fileId ?? null,
    hasBatchId: change.batchId === undefined ? 0 : 1,
    batchId: change.batchId ?? null,
    tries: change.tries ?? null,
    cancelAsked: change.cancelAsked === undefined ? null : Number(change.cancelAsked),
    error: change.error ?? null,
  };
}
