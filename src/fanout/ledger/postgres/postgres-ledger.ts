import type { Pool, PoolClient } from "pg";
import type { TokenUsage } from "../../../agent/usage.ts";
import type { Clock, Timer } from "../../../async/clock.ts";
import type {
  ErrorClass,
  ItemRecord,
  ItemStatus,
  JobCounts,
  JobRecord,
  JobSettings,
  JobStatus,
} from "../../job.ts";
import type { AttemptFailure, Claim, JobLedger } from "../job-ledger.ts";
import { decodeItem } from "../record-codec.ts";
import { ITEMS, JOBS, ROW_LIMIT } from "./postgres-migrations.ts";
import { PostgresReads } from "./postgres-reads.ts";
import { type Delivery, MAX_DELIVERIES_LOST, type RowQueue } from "./row-queue.ts";

/** Dead letters taken at a time. */
const DEAD_LETTERS_BATCH = 100;
/** Dead letters are looked for this often by everyone who runs rows. */
const DEAD_LETTERS_EVERY_MS = 5_000;

export interface PostgresLedgerOptions {
  pool: Pool;
  queue: RowQueue;
  jobId: string;
  clock: Clock;
  newToken: () => string;
  /** How often the engine is told that rows are still being worked on. */
  touchEveryMs: number;
  /** Told what happened in the background. */
  onError: (error: unknown) => void;
}

/**
 * One job in a database that several machines share. The engine decides who works on a row; this decides what counts. A
 * row's settle is one guarded statement here, and only then is the engine told: dying in between means that the row is
 * delivered once more and dropped before anything is asked.
 */
export class PostgresLedger implements JobLedger {
  readonly jobId: string;
  readonly shared = true;
  #options: PostgresLedgerOptions;
  #pool: Pool;
  #queue: RowQueue;
  #reads: PostgresReads;
  #clock: Clock;
  #held = new Map<string, Delivery>();
  #touching: Timer | null = null;
  #deadLettersAtMs = 0;

  constructor(options: PostgresLedgerOptions) {
    this.jobId = options.jobId;
    this.#options = options;
    this.#pool = options.pool;
    this.#queue = options.queue;
    this.#reads = new PostgresReads(options.pool, options.jobId);
    this.#clock = options.clock;
  }

  job(): Promise<JobRecord> {
    return this.#reads.job();
  }

  counts(): Promise<JobCounts> {
    return this.#reads.counts();
  }

  nextDueAtMs(): Promise<number | null> {
    return this.#reads.nextDueAtMs();
  }

  items(filter?: { statuses?: readonly ItemStatus[] }): AsyncGenerator<ItemRecord, void, undefined> {
    return this.#reads.items(filter);
  }

  item(itemId: string): Promise<ItemRecord | null> {
    return this.#reads.item(itemId);
  }

  settledSince(sinceMs: number): Promise<ItemRecord[]> {
    return this.#reads.settledSince(sinceMs);
  }

  /** Anybody may join: the engine keeps them apart. */
  async beginRun(options: { join?: boolean } = {}): Promise<boolean> {
    if (this.#touching) return true;
    await this.#queue.create();
    if (!options.join) await this.#enqueueMissing();
    this.#touchLater();
    return true;
  }

  async endRun(): Promise<void> {
    this.#touching?.cancel();
    this.#touching = null;
  }

  async isBeingRun(): Promise<null> {
    return null;
  }

  async claim(limit: number): Promise<Claim[]> {
    await this.#failDeadRows();
    if ((await this.job()).status !== "running") return [];
    const deliveries = await this.#take(limit);
    if (deliveries.length === 0) return [];
    const tokens = deliveries.map(() => this.#options.newToken());
    const rows = await this.#all(
      `UPDATE ${ITEMS} AS item
       SET status = 'running', attempt_token = given.token, started_at = $4,
         -- A row that is still running was left behind by someone who died: that attempt does not count.
         attempt_count = item.attempt_count + CASE WHEN item.status = 'pending' THEN 1 ELSE 0 END
       FROM unnest($2::text[], $3::text[]) AS given (item_id, token)
       WHERE item.job_id = $1 AND item.item_id = given.item_id AND item.status IN ('pending', 'running')
         AND item.row_index < ${ROW_LIMIT} AND (SELECT status FROM ${JOBS} WHERE id = $1) = 'running'
       RETURNING item.*`,
      [this.jobId, deliveries.map((one) => one.itemId), tokens, this.#clock.now()],
    );
    const claimed = new Map(rows.map((row) => [String(row.item_id), row]));
    await this.#dropUnwanted(deliveries.filter((one) => !claimed.has(one.itemId)));
    return deliveries.flatMap((one, index) => {
      const row = claimed.get(one.itemId);
      const token = tokens[index];
      if (!row || token === undefined) return [];
      this.#held.set(token, one);
      return [{ item: decodeItem(row), token }];
    });
  }

  async complete(
    claim: Claim,
    report: { result: string; usage: TokenUsage; stop: boolean },
  ): Promise<boolean> {
    const now = this.#clock.now();
    const changed = await this.#transaction(async (client) => {
      const settled = await this.#settle(
        client,
        claim,
        `status = 'completed', result_json = $8, reported_at = $9, completed_at = $9, error_class = NULL, last_error = NULL`,
        report.usage,
        [report.result, now],
      );
      if (settled && report.stop) {
        await this.#changeStatus(client, "cancelled", ["pending", "running"], "cancelled by worker request");
      }
      return settled;
    });
    await this.#letGo(claim);
    return changed;
  }

  async fail(claim: Claim, failure: AttemptFailure): Promise<boolean> {
    const changed = await this.#settle(
      this.#pool,
      claim,
      "status = 'failed', error_class = $8, last_error = $9, completed_at = $10",
      failure.usage,
      [failure.errorClass, storable(failure.message), this.#clock.now()],
    );
    await this.#letGo(claim);
    return changed;
  }

  retry(claim: Claim, failure: AttemptFailure, delayMs: number): Promise<boolean> {
    const dueAtMs = Math.round(this.#clock.now() + delayMs);
    return this.#putBack(
      claim,
      dueAtMs,
      "status = 'pending', error_class = $8, last_error = $9, due_at = $10",
      failure.usage,
      [failure.errorClass, storable(failure.message), dueAtMs],
    );
  }

  release(claim: Claim, usage: TokenUsage): Promise<boolean> {
    return this.#putBack(
      claim,
      0,
      "status = 'pending', due_at = 0, attempt_count = attempt_count - 1",
      usage,
      [],
    );
  }

  async setStatus(to: JobStatus, from: readonly JobStatus[], error: string | null = null): Promise<boolean> {
    const changed = await this.#changeStatus(this.#pool, to, from, error);
    // Nothing of a finished job is left to deliver; should rows be asked for again, its queue is made again.
    if (changed && (to === "completed" || to === "completed_with_errors")) await this.#queue.remove();
    return changed;
  }

  async setOptions(options: { settings: JobSettings; outputPath: string }): Promise<void> {
    await this.#pool.query(
      `UPDATE ${JOBS} SET settings_json = $2, output_path = $3, updated_at = $4 WHERE id = $1`,
      [this.jobId, JSON.stringify(options.settings), options.outputPath, this.#clock.now()],
    );
    if (this.#touching) await this.#enqueueMissing();
  }

  async retryFailed(filter: {
    errorClasses?: readonly ErrorClass[];
    itemIds?: readonly string[];
  }): Promise<number> {
    const { rowCount } = await this.#pool.query(
      `UPDATE ${ITEMS} SET status = 'pending', attempt_count = 0, due_at = 0, completed_at = NULL
       WHERE job_id = $1 AND status = 'failed'
         AND ($2::text[] IS NULL OR error_class = ANY ($2)) AND ($3::text[] IS NULL OR item_id = ANY ($3))`,
      [this.jobId, filter.errorClasses ?? null, filter.itemIds ?? null],
    );
    if (this.#touching) await this.#enqueueMissing();
    return rowCount ?? 0;
  }

  async [Symbol.asyncDispose](): Promise<void> {
    await this.endRun();
  }

  async #take(limit: number): Promise<Delivery[]> {
    try {
      return await this.#queue.take(limit);
    } catch (error) {
      // Somebody has finished the job in this moment, and its queue is gone.
      if ((await this.job()).status !== "running") return [];
      throw error;
    }
  }

  /** Every row that is not finished has a delivery, or gets one. */
  async #enqueueMissing(): Promise<void> {
    for (let after = -1; ; ) {
      const rows = await this.#all(
        `SELECT item_id, row_index, due_at FROM ${ITEMS}
         WHERE job_id = $1 AND row_index > $2 AND row_index < ${ROW_LIMIT} AND status IN ('pending', 'running')
         ORDER BY row_index LIMIT ${ENQUEUE_ROWS}`,
        [this.jobId, after],
      );
      const queued = rows.map((row) => ({
        itemId: String(row.item_id),
        rowIndex: Number(row.row_index),
        dueAtMs: Number(row.due_at),
      }));
      await this.#queue.put(queued);
      const last = queued.at(-1);
      if (!last || queued.length < ENQUEUE_ROWS) return;
      after = last.rowIndex;
    }
  }

  /**
   * What was delivered and is finished, or lies behind the row limit, is dropped: it is queued again when the limit is
   * lifted. What belongs to a job that has just been stopped goes back.
   */
  async #dropUnwanted(deliveries: readonly Delivery[]): Promise<void> {
    if (deliveries.length === 0) return;
    const rows = await this.#all(
      `SELECT item_id FROM ${ITEMS} WHERE job_id = $1 AND item_id = ANY ($2) AND row_index < ${ROW_LIMIT}
         AND status IN ('pending', 'running')`,
      [this.jobId, deliveries.map((one) => one.itemId)],
    );
    const open = new Set(rows.map((row) => String(row.item_id)));
    await this.#queue.done(deliveries.filter((one) => !open.has(one.itemId)));
    for (const one of deliveries.filter((candidate) => open.has(candidate.itemId))) {
      await this.#transaction(async (client) => {
        await this.#queue.done([one], client);
        await this.#queue.put([{ itemId: one.itemId, rowIndex: one.rowIndex, dueAtMs: 0 }], client);
      });
    }
  }

  async #failDeadRows(): Promise<void> {
    const now = this.#clock.now();
    if (now - this.#deadLettersAtMs < DEAD_LETTERS_EVERY_MS) return;
    this.#deadLettersAtMs = now;
    const dead = await this.#queue.takeDead(DEAD_LETTERS_BATCH);
    for (const one of dead) {
      await this.#pool.query(
        `UPDATE ${ITEMS} SET status = 'failed', error_class = 'spawn', last_error = $3, completed_at = $4
         WHERE job_id = $1 AND item_id = $2 AND status IN ('pending', 'running')`,
        [one.jobId, one.itemId, `whoever worked on this row died ${MAX_DELIVERIES_LOST + 1} times`, now],
      );
    }
    await this.#queue.buried(dead);
  }

  #touchLater(): void {
    this.#touching = this.#clock.after(
      this.#options.touchEveryMs,
      () => {
        this.#queue
          .touch([...this.#held.values()])
          .catch(this.#options.onError)
          .finally(() => {
            if (this.#touching) this.#touchLater();
          });
      },
      { keepAlive: false },
    );
  }

  /** The ledger has the row's end: the engine may forget it. Should that fail, the row is delivered again and dropped. */
  async #letGo(claim: Claim): Promise<void> {
    const delivery = this.#held.get(claim.token);
    this.#held.delete(claim.token);
    if (delivery) await this.#queue.done([delivery]).catch(this.#options.onError);
  }

  /** Back into the ledger and back into the queue in one step, so that a row is never in neither. */
  async #putBack(
    claim: Claim,
    dueAtMs: number,
    assignments: string,
    usage: TokenUsage,
    values: readonly unknown[],
  ): Promise<boolean> {
    const delivery = this.#held.get(claim.token);
    const changed = await this.#transaction(async (client) => {
      if (!(await this.#settle(client, claim, assignments, usage, values))) return false;
      if (delivery) await this.#queue.done([delivery], client);
      const { itemId, rowIndex } = claim.item;
      await this.#queue.put([{ itemId, rowIndex, dueAtMs }], client);
      return true;
    });
    this.#held.delete(claim.token);
    return changed;
  }

  async #settle(
    client: Pool | PoolClient,
    claim: Claim,
    assignments: string,
    usage: TokenUsage,
    values: readonly unknown[],
  ): Promise<boolean> {
    const { rowCount } = await client.query(
      `UPDATE ${ITEMS} SET ${assignments}, attempt_token = NULL, input_tokens = input_tokens + $4,
         cached_input_tokens = cached_input_tokens + $5, output_tokens = output_tokens + $6,
         reasoning_output_tokens = reasoning_output_tokens + $7
       WHERE job_id = $1 AND row_index = $2 AND status = 'running' AND attempt_token = $3`,
      [
        this.jobId,
        claim.item.rowIndex,
        claim.token,
        usage.inputTokens,
        usage.cachedInputTokens,
        usage.outputTokens,
        usage.reasoningOutputTokens,
        ...values,
      ],
    );
    return rowCount === 1;
  }

  async #changeStatus(
    client: Pool | PoolClient,
    to: JobStatus,
    from: readonly JobStatus[],
    error: string | null,
  ): Promise<boolean> {
    const now = this.#clock.now();
    const ended = to !== "running" && to !== "pending" && to !== "paused";
    const { rowCount } = await client.query(
      `UPDATE ${JOBS} SET status = $2, last_error = $3, updated_at = $4, completed_at = $5,
         started_at = COALESCE(started_at, $6) WHERE id = $1 AND status = ANY ($7)`,
      [this.jobId, to, error, now, ended ? now : null, to === "running" ? now : null, from],
    );
    return rowCount === 1;
  }

  async #all(sql: string, values: readonly unknown[]): Promise<Record<string, unknown>[]> {
    const { rows } = await this.#pool.query<Record<string, unknown>>(sql, [...values]);
    return rows;
  }

  async #transaction<T>(task: (client: PoolClient) => Promise<T>): Promise<T> {
    const client = await this.#pool.connect();
    try {
      await client.query("BEGIN");
      const value = await task(client);
      await client.query("COMMIT");
      return value;
    } catch (error) {
      await client.query("ROLLBACK").catch(() => undefined);
      throw error;
    } finally {
      client.release();
    }
  }
}

/** Postgres has no place for the character 0 in a text. */
export function storable(text: string): string {
  return text.replaceAll("\0", "");
}

/** Rows put into the queue at a time. */
const ENQUEUE_ROWS = 5_000;
