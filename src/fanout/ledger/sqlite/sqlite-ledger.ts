import type { DatabaseSync, SQLInputValue } from "node:sqlite";
import type { TokenUsage } from "../../../agent/usage.ts";
import type { Clock } from "../../../async/clock.ts";
import type {
  ErrorClass,
  ItemRecord,
  ItemStatus,
  JobCounts,
  JobRecord,
  JobSettings,
  JobStatus,
  NewItem,
  NewJob,
} from "../../job.ts";
import type { AttemptFailure, Claim, JobLedger } from "../job-ledger.ts";
import { decodeItem, decodeJob } from "../record-codec.ts";
import { SqliteDatabase, takeLock } from "./sqlite-database.ts";

/** Rows read at a time where many are wanted, so that a large job is never whole in memory. */
const PAGE_ROWS = 500;

/** One job in one SQLite file. */
export class SqliteLedger implements JobLedger {
  readonly jobId: string;
  readonly shared = false;
  #db: SqliteDatabase;
  #lockPath: string;
  #lock: DatabaseSync | null = null;
  #clock: Clock;
  #newToken: () => string;
  #rowLimit: number;

  private constructor(db: SqliteDatabase, jobId: string, path: string, clock: Clock, newToken: () => string) {
    this.#db = db;
    this.jobId = jobId;
    this.#lockPath = `${path}.run-lock`;
    this.#clock = clock;
    this.#newToken = newToken;
    this.#rowLimit = this.#readJob().settings.rowLimit ?? NO_LIMIT;
  }

  static open(path: string, clock: Clock, newToken: () => string): SqliteLedger {
    const db = new SqliteDatabase(path);
    try {
      const row = db.get("SELECT id FROM agent_jobs");
      if (typeof row?.id !== "string") throw new Error(`${path} holds no job`);
      return new SqliteLedger(db, row.id, path, clock, newToken);
    } catch (error) {
      db.close();
      throw error;
    }
  }

  /** Writes a new ledger in one transaction. */
  static async write(
    path: string,
    job: NewJob,
    rows: AsyncIterable<NewItem>,
    headers: () => readonly string[],
  ): Promise<void> {
    const db = new SqliteDatabase(path);
    try {
      db.begin();
      let totalRows = 0;
      for await (const item of rows) {
        totalRows++;
        db.run(
          "INSERT INTO agent_job_items (row_index, item_id, source_id, row_json) VALUES (?, ?, ?, ?)",
          item.rowIndex,
          item.itemId,
          item.sourceId,
          JSON.stringify(item.row),
        );
      }
      db.run(
        `INSERT INTO agent_jobs (id, key, status, task_json, settings_json, headers_json, total_rows, input_path,
           output_path, created_at, updated_at) VALUES (?, ?, 'pending', ?, ?, ?, ?, ?, ?, ?, ?)`,
        job.id,
        job.key,
        JSON.stringify(job.task),
        JSON.stringify(job.settings),
        JSON.stringify(headers()),
        totalRows,
        job.inputPath,
        job.outputPath,
        job.createdAtMs,
        job.createdAtMs,
      );
      db.commit();
    } finally {
      db.close();
    }
  }

  async job(): Promise<JobRecord> {
    return this.#readJob();
  }

  async counts(): Promise<JobCounts> {
    const rows = this.#db.all(
      `SELECT status, COUNT(*) AS n, SUM(input_tokens) AS input, SUM(cached_input_tokens) AS cached,
         SUM(output_tokens) AS output, SUM(reasoning_output_tokens) AS reasoning
       FROM agent_job_items WHERE row_index < ? GROUP BY status`,
      this.#rowLimit,
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

  async beginRun(): Promise<boolean> {
    if (this.#lock) return true;
    this.#lock = takeLock(this.#lockPath);
    if (!this.#lock) return false;
    this.#db.run(
      `UPDATE agent_job_items SET status = 'pending', attempt_token = NULL, due_at = 0,
         attempt_count = MAX(0, attempt_count - 1) WHERE status = 'running'`,
    );
    return true;
  }

  async endRun(): Promise<void> {
    this.#lock?.close();
    this.#lock = null;
  }

  async isBeingRun(): Promise<boolean> {
    if (this.#lock) return true;
    const lock = takeLock(this.#lockPath);
    lock?.close();
    return lock === null;
  }

  async claim(limit: number): Promise<Claim[]> {
    const claims: Claim[] = [];
    while (claims.length < limit) {
      const token = this.#newToken();
      const row = this.#db.get(
        `UPDATE agent_job_items
         SET status = 'running', attempt_count = attempt_count + 1, attempt_token = ?, started_at = ?
         WHERE row_index = (
           SELECT row_index FROM agent_job_items
           WHERE status = 'pending' AND row_index < ? AND due_at <= ?
             AND (SELECT status FROM agent_jobs) = 'running'
           ORDER BY row_index LIMIT 1)
         RETURNING *`,
        token,
        this.#clock.now(),
        this.#rowLimit,
        this.#clock.now(),
      );
      if (!row) break;
      claims.push({ item: decodeItem(row), token });
    }
    return claims;
  }

  async nextDueAtMs(): Promise<number | null> {
    const row = this.#db.get(
      "SELECT MIN(due_at) AS due FROM agent_job_items WHERE status = 'pending' AND row_index < ?",
      this.#rowLimit,
    );
    return typeof row?.due === "number" ? row.due : null;
  }

  async complete(
    claim: Claim,
    report: { result: string; usage: TokenUsage; stop: boolean },
  ): Promise<boolean> {
    const now = this.#clock.now();
    return this.#db.transaction(() => {
      const changed = this.#settle(
        claim,
        `status = 'completed', result_json = ?, reported_at = ?, completed_at = ?, error_class = NULL, last_error = NULL`,
        [report.result, now, now],
        report.usage,
      );
      if (changed && report.stop)
        this.#setStatus("cancelled", ["pending", "running"], "cancelled by worker request");
      return changed;
    });
  }

  async fail(claim: Claim, failure: AttemptFailure): Promise<boolean> {
    return this.#settle(
      claim,
      "status = 'failed', error_class = ?, last_error = ?, completed_at = ?",
      [failure.errorClass, failure.message, this.#clock.now()],
      failure.usage,
    );
  }

  async retry(claim: Claim, failure: AttemptFailure, delayMs: number): Promise<boolean> {
    return this.#settle(
      claim,
      "status = 'pending', error_class = ?, last_error = ?, due_at = ?",
      [failure.errorClass, failure.message, Math.round(this.#clock.now() + delayMs)],
      failure.usage,
    );
  }

  async release(claim: Claim, usage: TokenUsage): Promise<boolean> {
    return this.#settle(
      claim,
      "status = 'pending', due_at = 0, attempt_count = attempt_count - 1",
      [],
      usage,
    );
  }

  async setStatus(to: JobStatus, from: readonly JobStatus[], error: string | null = null): Promise<boolean> {
    return this.#setStatus(to, from, error);
  }

  async setOptions(options: { settings: JobSettings; outputPath: string }): Promise<void> {
    this.#db.run(
      "UPDATE agent_jobs SET settings_json = ?, output_path = ?, updated_at = ?",
      JSON.stringify(options.settings),
      options.outputPath,
      this.#clock.now(),
    );
    this.#rowLimit = options.settings.rowLimit ?? NO_LIMIT;
  }

  async retryFailed(filter: {
    errorClasses?: readonly ErrorClass[];
    itemIds?: readonly string[];
  }): Promise<number> {
    return this.#db.run(
      `UPDATE agent_job_items SET status = 'pending', attempt_count = 0, due_at = 0, completed_at = NULL
       WHERE status = 'failed'
         AND (?1 IS NULL OR error_class IN (SELECT value FROM json_each(?1)))
         AND (?2 IS NULL OR item_id IN (SELECT value FROM json_each(?2)))`,
      filter.errorClasses ? JSON.stringify(filter.errorClasses) : null,
      filter.itemIds ? JSON.stringify(filter.itemIds) : null,
    );
  }

  async *items(
    filter: { statuses?: readonly ItemStatus[] } = {},
  ): AsyncGenerator<ItemRecord, void, undefined> {
    const statuses = filter.statuses ? JSON.stringify(filter.statuses) : null;
    for (let after = -1; ; ) {
      const page = this.#db
        .all(
          `SELECT * FROM agent_job_items WHERE row_index > ?1 AND row_index < ?2
           AND (?3 IS NULL OR status IN (SELECT value FROM json_each(?3)))
         ORDER BY row_index LIMIT ${PAGE_ROWS}`,
          after,
          this.#rowLimit,
          statuses,
        )
        .map(decodeItem);
      yield* page;
      const last = page.at(-1);
      if (!last || page.length < PAGE_ROWS) return;
      after = last.rowIndex;
    }
  }

  async item(itemId: string): Promise<ItemRecord | null> {
    const row = this.#db.get("SELECT * FROM agent_job_items WHERE item_id = ?", itemId);
    return row ? decodeItem(row) : null;
  }

  async settledSince(sinceMs: number): Promise<ItemRecord[]> {
    return this.#db
      .all(
        "SELECT * FROM agent_job_items WHERE completed_at >= ? AND row_index < ? ORDER BY completed_at",
        sinceMs,
        this.#rowLimit,
      )
      .map(decodeItem);
  }

  async [Symbol.asyncDispose](): Promise<void> {
    await this.endRun();
    this.#db.close();
  }

  #settle(claim: Claim, assignments: string, values: SQLInputValue[], usage: TokenUsage): boolean {
    return (
      this.#db.run(
        `UPDATE agent_job_items SET ${assignments}, attempt_token = NULL,
           input_tokens = input_tokens + ?, cached_input_tokens = cached_input_tokens + ?,
           output_tokens = output_tokens + ?, reasoning_output_tokens = reasoning_output_tokens + ?
         WHERE row_index = ? AND status = 'running' AND attempt_token = ?`,
        ...values,
        usage.inputTokens,
        usage.cachedInputTokens,
        usage.outputTokens,
        usage.reasoningOutputTokens,
        claim.item.rowIndex,
        claim.token,
      ) === 1
    );
  }

  #setStatus(to: JobStatus, from: readonly JobStatus[], error: string | null): boolean {
    const now = this.#clock.now();
    const ended = to !== "running" && to !== "pending" && to !== "paused";
    return (
      this.#db.run(
        `UPDATE agent_jobs SET status = ?, last_error = ?, updated_at = ?, completed_at = ?,
           started_at = COALESCE(started_at, ?)
         WHERE status IN (SELECT value FROM json_each(?))`,
        to,
        error,
        now,
        ended ? now : null,
        to === "running" ? now : null,
        JSON.stringify(from),
      ) === 1
    );
  }

  #readJob(): JobRecord {
    const row = this.#db.get("SELECT * FROM agent_jobs");
    if (!row) throw new Error("the ledger holds no job");
    return decodeJob(row);
  }
}

/** Beyond any table. */
const NO_LIMIT = Number.MAX_SAFE_INTEGER;
