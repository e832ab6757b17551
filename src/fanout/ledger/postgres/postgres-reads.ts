import type { AttemptRecord, ItemRecord, ItemStatus, JobCounts, JobRecord } from "../../job.ts";
import type { UnattemptedRow } from "../job-ledger.ts";
import { PAGE_ROWS, readPages } from "../read-pages.ts";
import { decodeAttempt, decodeCounts, decodeItem, decodeJob } from "../record-codec.ts";
import type { PostgresDatabase } from "./postgres-database.ts";
import * as sql from "./postgres-statements.ts";
import type { Statement } from "./statement.ts";

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

  items(filter: { statuses?: readonly ItemStatus[] } = {}): AsyncIterable<ItemRecord> {
    const statuses = filter.statuses ?? null;
    return readPages((last) => this.#page(sql.READ_ITEMS, last, { statuses }));
  }

  finishedSince(sinceMs: number): AsyncIterable<ItemRecord> {
    return readPages((last) => this.#page(sql.READ_FINISHED, last, { since: last?.completedAtMs ?? sinceMs }));
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

  async #page(statement: Statement, last: ItemRecord | undefined, values: object): Promise<ItemRecord[]> {
    const page = { jobId: this.jobId, after: last?.rowIndex ?? -1, pageRows: PAGE_ROWS };
    return (await this.database.all(statement, { ...values, ...page })).map(decodeItem);
  }
}
