import type { AttemptRecord, ItemRecord, ItemStatus, JobCounts, StoredAnswer } from "../../job.ts";
import type { UnattemptedRow } from "../job-ledger.ts";
import { PAGE_ROWS, readPages } from "../read-pages.ts";
import { decodeAnswer, decodeAttempt, decodeCounts } from "../record-codec.ts";
import { freshItem, itemIdOf, PackedRows } from "./packed-rows.ts";
import { ItemReader } from "./row-codec.ts";
import type { SqliteDatabase } from "./sqlite-database.ts";
import * as sql from "./sqlite-statements.ts";

/** Dependencies of the read queries. */
export interface JobFile {
  db: SqliteDatabase;
  items: ItemReader;
  blocks: PackedRows;
  /** Returns the row limit: rows from this index on are outside of the sample. */
  rowLimit: () => number;
}

/** Read queries of a job in one SQLite file, over packed and unpacked rows. */
export abstract class SqliteReads {
  protected readonly file: JobFile;
  protected abstract readonly rowLimit: number;

  constructor(db: SqliteDatabase) {
    const rowLimit = () => this.rowLimit;
    this.file = { db, items: new ItemReader(db), blocks: new PackedRows(db), rowLimit };
  }

  async counts(): Promise<JobCounts> {
    return decodeCounts(this.file.db.all(sql.COUNT_ITEMS, { rowLimit: this.rowLimit }));
  }

  async *items(filter: { statuses?: readonly ItemStatus[] } = {}): AsyncGenerator<ItemRecord, void, undefined> {
    const statuses = filter.statuses ? JSON.stringify(filter.statuses) : null;
    const includesFresh = filter.statuses?.includes("pending") ?? true;
    const { rowLimit } = this;
    for (let after = -1; ; ) {
      const next = includesFresh ? this.file.blocks.next(after, rowLimit) : null;
      const values = { after, rowLimit: next?.firstRow ?? rowLimit, statuses, pageRows: PAGE_ROWS };
      const page = this.file.db.all(sql.READ_ITEMS, values).map(this.file.items.decode);
      yield* page;
      after = page.at(-1)?.rowIndex ?? after;
      if (page.length === PAGE_ROWS) continue;
      if (!next) return;
      // Another process may have unpacked the block meanwhile. Then its rows come with the next page.
      const block = this.file.blocks.read(next.firstRow);
      for (const row of block?.rows ?? []) {
        if (row.rowIndex >= rowLimit) return;
        yield freshItem(this.file.items, row);
        after = row.rowIndex;
      }
    }
  }

  async item(itemId: string): Promise<ItemRecord | null> {
    const row = this.file.db.get(sql.READ_ITEM, { itemId });
    if (row) return this.file.items.decode(row);
    for (const block of this.file.blocks.all()) {
      const found = block.rows.find((packedRow) => itemIdOf(packedRow) === itemId);
      if (found) return freshItem(this.file.items, found);
    }
    return null;
  }

  async attempts(itemId: string): Promise<AttemptRecord[]> {
    return this.file.db.all(sql.READ_ATTEMPTS, { itemId }).map(decodeAttempt);
  }

  async unattempted(afterRow: number, limit: number): Promise<UnattemptedRow[]> {
    const { rowLimit } = this;
    const found: UnattemptedRow[] = [];
    for (let after = afterRow; found.length < limit; ) {
      const around = this.file.blocks.around(after + 1);
      const next = around ? null : this.file.blocks.next(after, rowLimit);
      const block = around ?? (next ? this.file.blocks.read(next.firstRow) : null);
      const before = Math.min(block?.firstRow ?? rowLimit, rowLimit);
      const values = { after, rowLimit: before, pageRows: limit - found.length };
      for (const row of this.file.db.all(sql.READ_UNATTEMPTED, values)) {
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

  /** Returns completed rows that answer one of these questions. */
  findAnswers(questions: readonly string[]): StoredAnswer[] {
    return this.file.db.all(sql.FIND_ANSWERS, { questions: JSON.stringify(questions) }).map(decodeAnswer);
  }

  finishedSince(sinceMs: number): AsyncIterable<ItemRecord> {
    const { rowLimit } = this;
    return readPages((last) => {
      const since = last?.completedAtMs ?? sinceMs;
      const values = { since, after: last?.rowIndex ?? -1, rowLimit, pageRows: PAGE_ROWS };
      return this.file.db.all(sql.READ_FINISHED, values).map(this.file.items.decode);
    });
  }
}
