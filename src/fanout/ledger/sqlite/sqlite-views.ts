import type * as views from "../ledger-views.ts";
import { decodeFailureGroup, decodeFinishedInterval, likePattern } from "../record-codec.ts";
import { freshItem, itemIdOf, type PackedRow } from "./packed-rows.ts";
import type { JobFile } from "./sqlite-reads.ts";
import * as sql from "./sqlite-statements.ts";

/** Views of a job in one SQLite file. */
export class SqliteViews implements views.LedgerViews {
  #file: JobFile;

  constructor(file: JobFile) {
    this.#file = file;
  }

  async page(filter: views.RowFilter, offset: number, limit: number): Promise<views.LedgerRowPage> {
    const values = {
      statuses: filter.statuses ? JSON.stringify(filter.statuses) : null,
      errorClasses: filter.errorClasses ? JSON.stringify(filter.errorClasses) : null,
      text: filter.text === undefined ? null : likePattern(filter.text),
    };
    const page: views.LedgerRowPage = { total: 0, items: [] };
    const skipped = () => Math.max(0, offset - page.total);
    /** Adds the unpacked rows between two blocks. */
    const addUnpackedRows = (after: number, rowLimit: number) => {
      const range = { ...values, after, rowLimit };
      const missing = limit - page.items.length;
      if (missing > 0) {
        const rows = this.#file.db.all(sql.READ_PAGE, { ...range, offset: skipped(), limit: missing });
        page.items.push(...rows.map(this.#file.items.decode));
      }
      page.total += Number(this.#file.db.get(sql.COUNT_PAGE, range)?.n ?? 0);
    };
    const rowLimit = this.#file.rowLimit();
    let after = -1;
    for (;;) {
      const next = matchesFresh(filter) ? this.#file.blocks.next(after, rowLimit) : null;
      if (!next) break;
      if (next.firstRow > after + 1) addUnpackedRows(after, next.firstRow);
      after = next.firstRow + next.rowCount - 1;
      const size = Math.min(next.rowCount, rowLimit - next.firstRow);
      // A block outside of the page is not read, unless its rows are searched.
      if (filter.text === undefined && (skipped() >= size || page.items.length >= limit)) {
        page.total += size;
        continue;
      }
      const block = this.#file.blocks.read(next.firstRow)?.rows.slice(0, size) ?? [];
      const rows = block.filter((row) => contains(row, filter.text));
      const shown = rows.slice(skipped(), skipped() + limit - page.items.length);
      page.items.push(...shown.map((row) => freshItem(this.#file.items, row)));
      page.total += rows.length;
    }
    addUnpackedRows(after, rowLimit);
    return page;
  }

  async failures(): Promise<views.FailureGroup[]> {
    return this.#file.db.all(sql.COUNT_FAILURES, { rowLimit: this.#file.rowLimit() }).map(decodeFailureGroup);
  }

  async finishedPerInterval(sinceMs: number, spanMs: number): Promise<views.FinishedPerInterval[]> {
    const values = { since: sinceMs, span: spanMs, rowLimit: this.#file.rowLimit() };
    return this.#file.db.all(sql.COUNT_FINISHED, values).map(decodeFinishedInterval);
  }

  async waits(nowMs: number): Promise<views.WaitCounts> {
    const row = this.#file.db.get(sql.COUNT_WAITS, { now: nowMs, rowLimit: this.#file.rowLimit() });
    return { backingOff: Number(row?.waiting ?? 0), refusedForRate: Number(row?.refused ?? 0) };
  }
}

/** Reports whether a filter matches rows without attempts. */
function matchesFresh({ statuses, errorClasses }: views.RowFilter): boolean {
  return errorClasses === undefined && (statuses?.includes("pending") ?? true);
}

function contains(row: PackedRow, text: string | undefined): boolean {
  if (text === undefined) return true;
  return `${itemIdOf(row)}\n${row.row}`.toLowerCase().includes(text.toLowerCase());
}
