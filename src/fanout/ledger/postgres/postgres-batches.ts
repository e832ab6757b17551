import type { PoolClient } from "pg";
import type { TokenUsage } from "../../../agent/token-usage.ts";
import type { Clock } from "../../../async/clock.ts";
import type { ItemRecord } from "../../job.ts";
import type { BatchLedger, BatchPart, BatchPartChange } from "../batch-ledger.ts";
import type { AttemptFailure, Report } from "../job-ledger.ts";
import { decodeBatchPart, decodeItem, usageValues } from "../record-codec.ts";
import { changeOnce, type PostgresDatabase } from "./postgres-database.ts";
import {
  ASK_SINGLY,
  ASSIGN_ROWS,
  COMPLETE_PART_ROW,
  GIVE_BACK_ROW,
  READ_FRESH,
  READ_ITEM_AT,
  READ_PART,
  READ_PART_ROW,
  READ_PART_ROWS,
  READ_PARTS,
  READ_SETTLED_BY_PART,
  RELEASE_PART,
  RELEASE_PART_ROW,
  TRY_LEAD,
  UPDATE_PART,
} from "./postgres-statements.ts";
import type { QueuedRow, RowQueue } from "./row-queue.ts";
import { execute, type Statement, storable } from "./statement.ts";

/** Rows of a part read at a time. */
const PAGE_ROWS = 500;

export interface PostgresBatchesOptions {
  database: PostgresDatabase;
  queue: RowQueue;
  jobId: string;
  clock: Clock;
  /** Cancels the job inside a transaction, because an agent's report requests it. */
  cancelJob(client: PoolClient): Promise<void>;
}

/** The batch parts of a job in a database. A row that is left to single calls is queued in the same transaction. */
export class PostgresBatches implements BatchLedger {
  #options: PostgresBatchesOptions;
  #database: PostgresDatabase;
  #jobId: string;
  #leading: PoolClient | null = null;

  constructor(options: PostgresBatchesOptions) {
    this.#options = options;
    this.#database = options.database;
    this.#jobId = options.jobId;
  }

  async lead(): Promise<boolean> {
    if (this.#leading) return true;
    return this.#database.outage.ride(async () => {
      const client = await this.#database.connection();
      try {
        const { rows } = await execute(client, TRY_LEAD, { jobId: this.#jobId });
        if (rows[0]?.leads === true) this.#leading = client;
      } finally {
        if (!this.#leading) client.release();
      }
      return this.#leading !== null;
    });
  }

  /** Closes the connection, which releases its lock. */
  async stopLeading(): Promise<void> {
    this.#leading?.release(true);
    this.#leading = null;
  }

  async parts(): Promise<BatchPart[]> {
    return (await this.#database.all(READ_PARTS, { jobId: this.#jobId })).map(decodeBatchPart);
  }

  async fresh(afterRow: number, limit: number): Promise<ItemRecord[]> {
    const values = { jobId: this.#jobId, after: afterRow, pageRows: limit };
    return (await this.#database.all(READ_FRESH, values)).map(decodeItem);
  }

  async assign(part: string, rowIndexes: readonly number[]): Promise<number> {
    const values = { jobId: this.#jobId, part, rowIndexes, now: this.#options.clock.now() };
    const row = await this.#database.changeOnce(ASSIGN_ROWS, READ_PART, values);
    return Number(row?.row_count ?? 0);
  }

  askSingly(rowIndex: number): Promise<void> {
    return this.#database.transaction(async (client) => {
      await execute(client, ASK_SINGLY, { jobId: this.#jobId, rowIndex });
      await this.#enqueue(client, rowIndex);
    });
  }

  async *rows(part: string): AsyncGenerator<ItemRecord, void, undefined> {
    for (let after = -1; ; ) {
      const page = await this.#rowsBehind(part, after);
      yield* page;
      const last = page.at(-1);
      if (!last || page.length < PAGE_ROWS) return;
      after = last.rowIndex;
    }
  }

  async row(part: string, rowIndex: number): Promise<ItemRecord | null> {
    const [row] = await this.#database.all(READ_PART_ROW, { jobId: this.#jobId, part, rowIndex });
    return row ? decodeItem(row) : null;
  }

  async update(part: string, change: BatchPartChange): Promise<void> {
    await this.#database.run(UPDATE_PART, this.#partValues(part, change));
  }

  async complete(part: string, rowIndex: number, report: Report): Promise<ItemRecord | null> {
    const { result, usage, stop } = report;
    const values = { ...this.#ending(part, rowIndex, report.transcript), ...usageValues(usage), result };
    const row = await this.#database.transaction(async (client, isRepeat) => {
      const settled = await changeOnce(client, COMPLETE_PART_ROW, READ_SETTLED_BY_PART, values, isRepeat);
      if (settled && stop) await this.#options.cancelJob(client);
      return settled;
    });
    return row ? decodeItem(row) : null;
  }

  giveBack(part: string, rowIndex: number, failure: AttemptFailure): Promise<boolean> {
    const { errorClass, message, usage, transcript } = failure;
    return this.#leaveToSingleCalls(GIVE_BACK_ROW, rowIndex, {
      ...this.#ending(part, rowIndex, transcript),
      ...usageValues(usage),
      errorClass,
      message: storable(message),
    });
  }

  release(part: string, rowIndex: number, usage: TokenUsage): Promise<boolean> {
    const values = { ...this.#ending(part, rowIndex, undefined), ...usageValues(usage) };
    return this.#leaveToSingleCalls(RELEASE_PART_ROW, rowIndex, values);
  }

  async finish(part: string, error: string | null): Promise<void> {
    const left: QueuedRow[] = [];
    for await (const { itemId, rowIndex } of this.rows(part)) left.push({ itemId, rowIndex, dueAtMs: 0 });
    const change: BatchPartChange = { state: "done" };
    if (error !== null) change.error = error;
    await this.#database.transaction(async (client) => {
      await execute(client, RELEASE_PART, { jobId: this.#jobId, part });
      await this.#options.queue.put(left, client);
      await execute(client, UPDATE_PART, this.#partValues(part, change));
    });
  }

  #leaveToSingleCalls(
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
    const { rows } = await execute(client, READ_ITEM_AT, { jobId: this.#jobId, rowIndex });
    const queued = rows.map((row) => ({ itemId: String(row.item_id), rowIndex, dueAtMs: 0 }));
    await this.#options.queue.put(queued, client);
  }

  async #rowsBehind(part: string, after: number): Promise<ItemRecord[]> {
    const values = { jobId: this.#jobId, part, after, pageRows: PAGE_ROWS };
    return (await this.#database.all(READ_PART_ROWS, values)).map(decodeItem);
  }

  #ending(part: string, rowIndex: number, transcript: string | undefined): Record<string, unknown> {
    return {
      jobId: this.#jobId,
      part,
      rowIndex,
      now: this.#options.clock.now(),
      transcript: transcript === undefined ? null : storable(transcript),
    };
  }

  #partValues(part: string, change: BatchPartChange): Record<string, unknown> {
    return {
      jobId: this.#jobId,
      part,
      state: change.state ?? null,
      answered: change.answered ?? null,
      hasFileId: change.fileId !== undefined,
      fileId: change.fileId ?? null,
      hasBatchId: change.batchId !== undefined,
      batchId: change.batchId ?? null,
      tries: change.tries ?? null,
      cancelAsked: change.cancelAsked ?? null,
      error: change.error ?? null,
    };
  }
}
