import type { AttemptRecord, ItemRecord, ItemStatus, JobCounts, StoredAnswer } from "../../job.ts";
import type { UnaskedRow } from "../job-ledger.ts";
import { decodeAnswer, decodeAttempt, decodeCounts } from "../record-codec.ts";
import { freshItem, itemIdOf, type RowBlocks } from "./row-blocks.ts";
import type { SqliteDatabase } from "./sqlite-database.ts";
import {
  COUNT_ITEMS,
  FIND_ANSWERS,
  READ_ATTEMPTS,
  READ_ITEM,
  READ_ITEMS,
  READ_SETTLED,
  READ_UNASKED,
} from "./sqlite-statements.ts";
import type { ItemReader } from "./stored-row.ts";

/** Rows per page where many are read, so that a large job is never in memory as a whole. */
const PAGE_ROWS = 500;
/** Larger than any row index. */
export const NO_LIMIT = Number.MAX_SAFE_INTEGER;

/** Read queries about a job in one SQLite file: over the rows with records of their own, and those in blocks. */
export class SqliteReads {
  #db: SqliteDatabase;
  #items: ItemReader;
  #blocks: RowBlocks;
  #rowLimit: () => number;

  constructor(db: SqliteDatabase, items: ItemReader, blocks: RowBlocks, rowLimit: () => number) {
    this.#db = db;
    this.#items = items;
    this.#blocks = blocks;
    this.#rowLimit = rowLimit;
  }

  counts(): JobCounts {
    return decodeCounts(this.#db.all(COUNT_ITEMS, { rowLimit: this.#rowLimit() }));
  }

  *items(filter: { statuses?: readonly ItemStatus[] } = {}): Generator<ItemRecord, void, undefined> {
    const statuses = filter.statuses ? JSON.stringify(filter.statuses) : null;
    const wantsFresh = filter.statuses?.includes("pending") ?? true;
    const rowLimit = this.#rowLimit();
    for (let after = -1; ; ) {
      const next = wantsFresh ? this.#blocks.next(after, rowLimit) : null;
      const values = { after, rowLimit: next?.firstRow ?? rowLimit, statuses, pageRows: PAGE_ROWS };
      const page = this.#db.all(READ_ITEMS, values).map(this.#items.decode);
      yield* page;
      after = page.at(-1)?.rowIndex ?? after;
      if (page.length === PAGE_ROWS) continue;
      if (!next) return;
      // Another process may have taken it apart since; then its rows come with the next page.
      const block = this.#blocks.read(next.firstRow);
      for (const row of block?.rows ?? []) {
        if (row.rowIndex >= rowLimit) return;
        yield freshItem(this.#items, row);
        after = row.rowIndex;
      }
    }
  }

  item(itemId: string): ItemRecord | null {
    const row = this.#db.get(READ_ITEM, { itemId });
    if (row) return this.#items.decode(row);
    for (const block of this.#blocks.all(NO_LIMIT)) {
      const found = block.rows.find((one) => itemIdOf(one) === itemId);
      if (found) return freshItem(this.#items, found);
    }
    return null;
  }

  attempts(itemId: string): AttemptRecord[] {
    return this.#db.all(READ_ATTEMPTS, { itemId }).map(decodeAttempt);
  }

  unasked(afterRow: number, limit: number): UnaskedRow[] {
    const rowLimit = this.#rowLimit();
    const found: UnaskedRow[] = [];
    for (let after = afterRow; found.length < limit; ) {
      const around = this.#blocks.around(after + 1);
      const next = around ? null : this.#blocks.next(after, rowLimit);
      const block = around ?? (next ? this.#blocks.read(next.firstRow) : null);
      const before = Math.min(block?.firstRow ?? rowLimit, rowLimit);
      const values = { after, rowLimit: before, pageRows: limit - found.length };
      for (const row of this.#db.all(READ_UNASKED, values)) {
        found.push({ rowIndex: Number(row.row_index), question: String(row.question) });
      }
      if (!block || block.firstRow >= rowLimit) break;
      for (const { rowIndex, question } of block.rows) {
        if (found.length >= limit || rowIndex >= rowLimit) break;
        if (rowIndex > after && question !== null) found.push({ rowIndex, question });
      }
      after = block.firstRow + block.rows.length - 1;
    }
    return found;
  }

  /** Completed rows of this job that answer one of these questions. */
  answers(questions: readonly string[]): StoredAnswer[] {
    return this.#db.all(FIND_ANSWERS, { questions: JSON.stringify(questions) }).map(decodeAnswer);
  }

  settledSince(sinceMs: number): ItemRecord[] {
    return this.#db.all(READ_SETTLED, { since: sinceMs, rowLimit: this.#rowLimit() }).map(this.#items.decode);
  }
}
