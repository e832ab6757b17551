import type { FailureGroup, LedgerViews, RowFilter, RowPage, SettledSpan, Waits } from "../ledger-views.ts";
import { decodeFailureGroup, decodeSettledSpan, likePattern } from "../record-codec.ts";
import type { SqliteDatabase } from "./sqlite-database.ts";
import { COUNT_FAILURES, COUNT_PAGE, COUNT_SETTLED, COUNT_WAITS, READ_PAGE } from "./sqlite-statements.ts";
import type { ItemReader } from "./stored-row.ts";

/** Views for people of a job in one SQLite file. */
export class SqliteViews implements LedgerViews {
  #db: SqliteDatabase;
  #items: ItemReader;
  #rowLimit: () => number;

  constructor(db: SqliteDatabase, items: ItemReader, rowLimit: () => number) {
    this.#db = db;
    this.#items = items;
    this.#rowLimit = rowLimit;
  }

  async page(filter: RowFilter, offset: number, limit: number): Promise<RowPage> {
    const values = {
      rowLimit: this.#rowLimit(),
      statuses: filter.statuses ? JSON.stringify(filter.statuses) : null,
      errorClasses: filter.errorClasses ? JSON.stringify(filter.errorClasses) : null,
      text: filter.text === undefined ? null : likePattern(filter.text),
    };
    return {
      total: Number(this.#db.get(COUNT_PAGE, values)?.n ?? 0),
      items: this.#db.all(READ_PAGE, { ...values, offset, limit }).map(this.#items.decode),
    };
  }

  async failures(): Promise<FailureGroup[]> {
    return this.#db.all(COUNT_FAILURES, { rowLimit: this.#rowLimit() }).map(decodeFailureGroup);
  }

  async settled(sinceMs: number, spanMs: number): Promise<SettledSpan[]> {
    const values = { since: sinceMs, span: spanMs, rowLimit: this.#rowLimit() };
    return this.#db.all(COUNT_SETTLED, values).map(decodeSettledSpan);
  }

  async waits(nowMs: number): Promise<Waits> {
    const row = this.#db.get(COUNT_WAITS, { now: nowMs, rowLimit: this.#rowLimit() });
    return { backingOff: Number(row?.waiting ?? 0), refusedForRate: Number(row?.refused ?? 0) };
  }
}
