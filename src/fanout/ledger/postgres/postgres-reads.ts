import type { Pool } from "pg";
import type { ItemRecord, ItemStatus, JobCounts, JobRecord } from "../../job.ts";
import { decodeItem, decodeJob } from "../record-codec.ts";
import { ITEMS, JOBS, ROW_LIMIT } from "./postgres-migrations.ts";

/** Rows read at a time where many are wanted. */
const PAGE_ROWS = 500;

/** What can be asked about one job. */
export class PostgresReads {
  #pool: Pool;
  #jobId: string;

  constructor(pool: Pool, jobId: string) {
    this.#pool = pool;
    this.#jobId = jobId;
  }

  async job(): Promise<JobRecord> {
    const row = await this.#one(`SELECT * FROM ${JOBS} WHERE id = $1`, [this.#jobId]);
    if (!row) throw new Error(`job ${this.#jobId} has vanished`);
    return decodeJob(row);
  }

  async counts(): Promise<JobCounts> {
    const rows = await this.#all(
      `SELECT status, COUNT(*) AS n, SUM(input_tokens) AS input, SUM(cached_input_tokens) AS cached,
         SUM(output_tokens) AS output, SUM(reasoning_output_tokens) AS reasoning
       FROM ${ITEMS} WHERE job_id = $1 AND row_index < ${ROW_LIMIT} GROUP BY status`,
      [this.#jobId],
    );
    const of = (status: ItemStatus) => Number(rows.find((row) => row.status === status)?.n ?? 0);
    const sum = (column: string) => rows.reduce((total, row) => total + Number(row[column] ?? 0), 0);
    return {
      total: sum("n"),
      pending: of("pending"),
      running: of("running"),
      completed: of("completed"),
      failed: of("failed"),
      usage: {
        inputTokens: sum("input"),
        cachedInputTokens: sum("cached"),
        outputTokens: sum("output"),
        reasoningOutputTokens: sum("reasoning"),
      },
    };
  }

  async nextDueAtMs(): Promise<number | null> {
    const row = await this.#one(
      `SELECT MIN(due_at) AS due FROM ${ITEMS}
       WHERE job_id = $1 AND status = 'pending' AND row_index < ${ROW_LIMIT}`,
      [this.#jobId],
    );
    return row?.due === null || row?.due === undefined ? null : Number(row.due);
  }

  async *items(
    filter: { statuses?: readonly ItemStatus[] } = {},
  ): AsyncGenerator<ItemRecord, void, undefined> {
    for (let after = -1; ; ) {
      const rows = await this.#all(
        `SELECT * FROM ${ITEMS} WHERE job_id = $1 AND row_index > $2 AND row_index < ${ROW_LIMIT}
           AND ($3::text[] IS NULL OR status = ANY ($3))
         ORDER BY row_index LIMIT ${PAGE_ROWS}`,
        [this.#jobId, after, filter.statuses ?? null],
      );
      const page = rows.map(decodeItem);
      yield* page;
      const last = page.at(-1);
      if (!last || page.length < PAGE_ROWS) return;
      after = last.rowIndex;
    }
  }

  async item(itemId: string): Promise<ItemRecord | null> {
    const row = await this.#one(`SELECT * FROM ${ITEMS} WHERE job_id = $1 AND item_id = $2`, [
      this.#jobId,
      itemId,
    ]);
    return row ? decodeItem(row) : null;
  }

  async settledSince(sinceMs: number): Promise<ItemRecord[]> {
    const rows = await this.#all(
      `SELECT * FROM ${ITEMS} WHERE job_id = $1 AND completed_at >= $2 AND row_index < ${ROW_LIMIT}
       ORDER BY completed_at, row_index`,
      [this.#jobId, sinceMs],
    );
    return rows.map(decodeItem);
  }

  async #one(sql: string, values: readonly unknown[]): Promise<Record<string, unknown> | undefined> {
    return (await this.#all(sql, values))[0];
  }

  async #all(sql: string, values: readonly unknown[]): Promise<Record<string, unknown>[]> {
    const { rows } = await this.#pool.query<Record<string, unknown>>(sql, [...values]);
    return rows;
  }
}
