import type { AttemptRecord, ItemRecord, ItemStatus, JobCounts, JobRecord } from "../../job.ts";
import type { UnattemptedRow } from "../job-ledger.ts";
import { decodeAttempt, decodeCounts, decodeItem, decodeJob } from "../record-codec.ts";
import type { PostgresDatabase } from "./postgres-database.ts";
import * as sql from "./postgres-statements.ts";
import type { Statement } from "./statement.ts";

/** Rows per page. */
const PAGE_ROWS = 500;

/** Read queries of one job in a shared database. */
export abstract class PostgresReads {
  readonly jobId: string;
  protected readonly database: PostgresDatabase;

  constructor(database: PostgresDatabase, jobId: string) {
    this.database = database;
    this.jobId = jobId;
  }

  async isDone(): Promise<boolean> {
    return (await this.database.all(sql.FIND_OPEN_ITEM, { jobId: this.jobId })).length === 0;
  }

  async job(): Promise<JobRecord> {
    const [row] = await this.database.all(sql.READ_JOB, { jobId: this.jobId });
    if (!row) throw new Error(`job ${this.jobId} has vanished`);
    return decodeJob(row);
  }

  async counts(): Promise<JobCounts> {
    return decodeCounts(await this.database.all(sql.COUNT_ITEMS, { jobId: this.jobId }));
  }

  async nextDueAtMs(): Promise<number | null> {
    const [row] = await this.database.all(sql.NEXT_DUE, { jobId: this.jobId });
    return row?.due === null || row?.due === undefined ? null : Number(row.due);
  }

  async *items(filter: { statuses?: readonly ItemStatus[] } = {}): AsyncGenerator<ItemRecord, void, undefined> {
    const statuses = filter.statuses ?? null;
    for (let after = -1; ; ) {
      const page = await this.#page(sql.READ_ITEMS, { after, statuses });
      yield* page;
      const last = page.at(-1);
      if (!last || page.length < PAGE_ROWS) return;
      after = last.rowIndex;
    }
  }

  async *finishedSince(sinceMs: number): AsyncGenerator<ItemRecord, void, undefined> {
    for (let [since, after] = [sinceMs, -1]; ; ) {
      const page = await this.#page(sql.READ_FINISHED, { since, after });
      yield* page;
      const last = page.at(-1);
      if (!last || page.length < PAGE_ROWS) return;
      [since, after] = [last.completedAtMs ?? since, last.rowIndex];
    }
  }

  async item(itemId: string): Promise<ItemRecord | null> {
    const [row] = await this.database.all(sql.READ_ITEM, { jobId: this.jobId, itemId });
    return row ? decodeItem(row) : null;
  }

  async attempts(itemId: string): Promise<AttemptRecord[]> {
    return (await this.database.all(sql.READ_ATTEMPTS, { jobId: this.jobId, itemId })).map(decodeAttempt);
  }

  async unattempted(after: number, pageRows: number): Promise<UnattemptedRow[]> {
    const rows = await this.database.all(sql.READ_UNATTEMPTED, { jobId: this.jobId, after, pageRows });
    return rows.map((row) => ({ rowIndex: Number(row.row_index), question: String(row.question) }));
  }

  async #page(statement: Statement, values: Readonly<Record<string, unknown>>): Promise<ItemRecord[]> {
    const rows = await this.database.all(statement, { ...values, jobId: this.jobId, pageRows: PAGE_ROWS });
    return rows.map(decodeItem);
  }
}
