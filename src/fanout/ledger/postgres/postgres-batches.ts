import type { PoolClient } from "pg";
import type { TokenUsage } from "../../../agent/token-usage.ts";
import type { Clock } from "../../../async/clock.ts";
import type { ItemRecord } from "../../job.ts";
import type { BatchGroup, BatchGroupChange, BatchLedger } from "../batch-ledger.ts";
import type { AttemptFailure, Report } from "../job-ledger.ts";
import { PAGE_ROWS, readPages } from "../read-pages.ts";
import { decodeBatchGroup, decodeItem, groupValues, usageValues } from "../record-codec.ts";
import { changeOnce, type PostgresDatabase } from "./postgres-database.ts";
import * as sql from "./postgres-statements.ts";
import type { QueuedRow, RowQueue } from "./row-queue.ts";
import { execute, type Statement, storable } from "./statement.ts";

export interface PostgresBatchesOptions {
  database: PostgresDatabase;
  queue: RowQueue;
  jobId: string;
  clock: Clock;
  /** Cancels the job within a transaction, because an agent's report requests it. */
  cancelJob(client: PoolClient): Promise<void>;
}

/** The batch groups of a job in a database. A row that is left to single calls is queued in the same transaction. */
export class PostgresBatches implements BatchLedger {
  #options: PostgresBatchesOptions;
  #database: PostgresDatabase;
  #jobId: string;
  #leaderConnection: PoolClient | null = null;

  constructor(options: PostgresBatchesOptions) {
    this.#options = options;
    this.#database = options.database;
    this.#jobId = options.jobId;
  }

  async acquireLeadership(): Promise<boolean> {
    if (this.#leaderConnection) return true;
    return this.#database.outage.run(async () => {
      const client = await this.#database.connection();
      try {
        const { rows } = await execute(client, sql.TRY_ACQUIRE_LEADERSHIP, { jobId: this.#jobId });
        if (rows[0]?.leads !== true) return false;
        this.#leaderConnection = client;
        // The database has released the lock, so another process may acquire it.
        client.once("error", () => {
          if (this.#leaderConnection === client) void this.stopLeading();
        });
        return true;
      } finally {
        if (this.#leaderConnection !== client) client.release();
      }
    });
  }

  /** Closes the connection, which releases its lock. */
  async stopLeading(): Promise<void> {
    this.#leaderConnection?.release(true);
    this.#leaderConnection = null;
  }

  async groups(): Promise<BatchGroup[]> {
    return (await this.#database.all(sql.READ_BATCH_GROUPS, { jobId: this.#jobId })).map(decodeBatchGroup);
  }

  async newRows(afterRow: number, limit: number): Promise<ItemRecord[]> {
    const values = { jobId: this.#jobId, after: afterRow, pageRows: limit };
    return (await this.#database.all(sql.READ_NEW_ROWS, values)).map(decodeItem);
  }

  async assign(groupId: string, rowIndexes: readonly number[]): Promise<number> {
    const values = { jobId: this.#jobId, groupId, rowIndexes, now: this.#options.clock.now() };
    const row = await this.#database.changeOnce(sql.ASSIGN_ROWS, sql.READ_BATCH_GROUP, values);
    return Number(row?.row_count ?? 0);
  }

  moveToSingleCalls(rowIndex: number): Promise<void> {
    return this.#database.transaction(async (client) => {
      await execute(client, sql.MOVE_TO_SINGLE_CALLS, { jobId: this.#jobId, rowIndex });
      await this.#enqueue(client, rowIndex);
    });
  }

  rows(groupId: string): AsyncIterable<ItemRecord> {
    return readPages(async (last) => {
      const values = { jobId: this.#jobId, groupId, after: last?.rowIndex ?? -1, pageRows: PAGE_ROWS };
      return (await this.#database.all(sql.READ_GROUP_ROWS, values)).map(decodeItem);
    });
  }

  async row(groupId: string, rowIndex: number): Promise<ItemRecord | null> {
    const [row] = await this.#database.all(sql.READ_GROUP_ROW, { jobId: this.#jobId, groupId, rowIndex });
    return row ? decodeItem(row) : null;
  }

  async update(groupId: string, change: BatchGroupChange): Promise<void> {
    await this.#database.run(sql.UPDATE_GROUP, { jobId: this.#jobId, ...groupValues(groupId, change) });
  }

  async complete(groupId: string, rowIndex: number, report: Report): Promise<ItemRecord | null> {
    const { result, usage, stop } = report;
    const values = { ...this.#endValues(groupId, rowIndex, report.transcript), ...usageValues(usage), result };
    const row = await this.#database.transaction(async (client, isRepeat) => {
      const finished = await changeOnce(client, sql.COMPLETE_GROUP_ROW, sql.READ_FINISHED_BY_GROUP, values, isRepeat);
      if (finished && stop) await this.#options.cancelJob(client);
      return finished;
    });
    return row ? decodeItem(row) : null;
  }

  requeue(groupId: string, rowIndex: number, failure: AttemptFailure): Promise<boolean> {
    const { errorClass, message, usage, transcript } = failure;
    return this.#moveToSingleCalls(sql.REQUEUE_ROW, rowIndex, {
      ...this.#endValues(groupId, rowIndex, transcript),
      ...usageValues(usage),
      errorClass,
      message: storable(message),
    });
  }

  release(groupId: string, rowIndex: number, usage: TokenUsage): Promise<boolean> {
    const values = { ...this.#endValues(groupId, rowIndex, undefined), ...usageValues(usage) };
    return this.#moveToSingleCalls(sql.RELEASE_GROUP_ROW, rowIndex, values);
  }

  async finish(groupId: string, error: string | null): Promise<void> {
    const left: QueuedRow[] = [];
    for await (const { itemId, rowIndex } of this.rows(groupId)) left.push({ itemId, rowIndex, dueAtMs: 0 });
    const change = { jobId: this.#jobId, ...groupValues(groupId, { state: "done", error }) };
    await this.#database.transaction(async (client) => {
      await execute(client, sql.RELEASE_GROUP, { jobId: this.#jobId, groupId });
      await this.#options.queue.put(left, client);
      await execute(client, sql.UPDATE_GROUP, change);
    });
  }

  #moveToSingleCalls(
    statement: Statement,
    rowIndex: number,
    values: Readonly<Record<string, unknown>>,
  ): Promise<boolean> {
    return this.#database.transaction(async (client) => {
      const { rowCount } = await execute(client, statement, values);
      if (rowCount !== 1) return false;
      await this.#enqueue(client, rowIndex);
      return true;
    });
  }

  async #enqueue(client: PoolClient, rowIndex: number): Promise<void> {
    const { rows } = await execute(client, sql.READ_ITEM_AT, { jobId: this.#jobId, rowIndex });
    const queued = rows.map((row) => ({ itemId: String(row.item_id), rowIndex, dueAtMs: 0 }));
    await this.#options.queue.put(queued, client);
  }

  #endValues(groupId: string, rowIndex: number, transcript: string | undefined): Record<string, unknown> {
    return {
      jobId: this.#jobId,
      groupId,
      rowIndex,
      now: this.#options.clock.now(),
      transcript: transcript === undefined ? null : storable(transcript),
    };
  }
}
