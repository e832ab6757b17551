import type * as views from "../ledger-views.ts";
import { decodeFailureGroup, decodeFinishedInterval, decodeItem, likePattern } from "../record-codec.ts";
import type { PostgresDatabase } from "./postgres-database.ts";
import * as sql from "./postgres-statements.ts";

/** Views of a job in a database. */
export class PostgresViews implements views.LedgerViews {
  #database: PostgresDatabase;
  #jobId: string;

  constructor(database: PostgresDatabase, jobId: string) {
    this.#database = database;
    this.#jobId = jobId;
  }

  async page(filter: views.RowFilter, offset: number, limit: number): Promise<views.LedgerRowPage> {
    const values = {
      jobId: this.#jobId,
      statuses: filter.statuses ?? null,
      errorClasses: filter.errorClasses ?? null,
      text: filter.text === undefined ? null : likePattern(filter.text),
    };
    const [counted] = await this.#database.all(sql.COUNT_PAGE, values);
    const rows = await this.#database.all(sql.READ_PAGE, { ...values, offset, limit });
    return { total: Number(counted?.n ?? 0), items: rows.map(decodeItem) };
  }

  async failures(): Promise<views.FailureGroup[]> {
    return (await this.#database.all(sql.COUNT_FAILURES, { jobId: this.#jobId })).map(decodeFailureGroup);
  }

  async finishedPerInterval(sinceMs: number, spanMs: number): Promise<views.FinishedPerInterval[]> {
    const values = { jobId: this.#jobId, since: sinceMs, span: spanMs };
    return (await this.#database.all(sql.COUNT_FINISHED, values)).map(decodeFinishedInterval);
  }

  async waits(nowMs: number): Promise<views.WaitCounts> {
    const [row] = await this.#database.all(sql.COUNT_WAITS, { jobId: this.#jobId, now: nowMs });
    return { backingOff: Number(row?.waiting ?? 0), refusedForRate: Number(row?.refused ?? 0) };
  }
}
