import type { Pool, PoolClient } from "pg";
import { type Clock, systemClock } from "../../../async/clock.ts";
import type { JobRecord, NewItem, NewJob } from "../../job.ts";
import type { JobLedger, JobStore } from "../job-ledger.ts";
import { decodeJob } from "../record-codec.ts";
import type { DeliveryEngine, DeliveryEngineConstructor } from "./delivery-engine.ts";
import { PostgresLedger, storable } from "./postgres-ledger.ts";
import { ITEMS, JOBS, migrate } from "./postgres-migrations.ts";
import { RowQueue } from "./row-queue.ts";

export interface PostgresStoreOptions {
  databaseUrl: string;
  /** A worker that is silent for so long has lost its rows; at least 10. */
  heartbeatSeconds?: number;
  /** How often the engine looks for silent workers. */
  monitorSeconds?: number;
  clock?: Clock;
  newToken?: () => string;
  /** Told what happened in the background, such as a lost connection that is being made again. */
  onError?: (error: unknown) => void;
}

/** With the engine's look every few seconds, rows of a dead worker come back within half a minute. */
const DEFAULT_HEARTBEAT_SECONDS = 20;
const DEFAULT_MONITOR_SECONDS = 5;
/** Several beats fit into the time after which a worker counts as dead. */
const BEATS_PER_HEARTBEAT = 4;
/** The engine's tables. */
const QUEUE_SCHEMA = "procwire_queue";
/** Connections of one process: enough for its lanes to settle without waiting long. */
const LEDGER_CONNECTIONS = 8;
const QUEUE_CONNECTIONS = 4;
/** Rows written by one statement while a table is read in. */
const INSERT_ROWS = 1_000;

/** Jobs that several machines share: the ledger in Postgres is the truth, pg-boss beside it delivers the rows. */
export class PostgresStore implements JobStore {
  #pool: Pool;
  #engine: DeliveryEngine;
  #clock: Clock;
  #newToken: () => string;
  #heartbeatSeconds: number;
  #onError: (error: unknown) => void;

  private constructor(pool: Pool, engine: DeliveryEngine, options: PostgresStoreOptions) {
    this.#pool = pool;
    this.#engine = engine;
    this.#clock = options.clock ?? systemClock;
    this.#newToken = options.newToken ?? (() => crypto.randomUUID());
    this.#heartbeatSeconds = options.heartbeatSeconds ?? DEFAULT_HEARTBEAT_SECONDS;
    this.#onError = options.onError ?? (() => undefined);
  }

  static async open(options: PostgresStoreOptions): Promise<PostgresStore> {
    const { Pool, Engine } = await loadPackages();
    const { monitorSeconds = DEFAULT_MONITOR_SECONDS } = options;
    const pool = new Pool({ connectionString: options.databaseUrl, max: LEDGER_CONNECTIONS });
    const engine = new Engine({
      connectionString: options.databaseUrl,
      schema: QUEUE_SCHEMA,
      schedule: false,
      superviseIntervalSeconds: monitorSeconds,
      monitorIntervalSeconds: monitorSeconds,
      max: QUEUE_CONNECTIONS,
    });
    const store = new PostgresStore(pool, engine, options);
    pool.on("error", store.#onError);
    engine.on("error", store.#onError);
    try {
      await migrate(pool);
      await engine.start();
      return store;
    } catch (error) {
      await store[Symbol.asyncDispose]();
      throw new Error(
        `the database cannot be used: ${error instanceof Error ? error.message || String(error) : String(error)}`,
        { cause: error },
      );
    }
  }

  async find(key: string): Promise<JobRecord | null> {
    const { rows } = await this.#pool.query(`SELECT * FROM ${JOBS} WHERE key = $1 AND is_current`, [key]);
    return rows[0] ? decodeJob(rows[0]) : null;
  }

  async create(
    job: NewJob,
    rows: AsyncIterable<NewItem>,
    headers: () => readonly string[],
  ): Promise<JobRecord> {
    const client = await this.#pool.connect();
    try {
      await client.query("BEGIN");
      await client.query(`UPDATE ${JOBS} SET is_current = false WHERE key = $1`, [job.key]);
      await client.query(
        `INSERT INTO ${JOBS} (id, key, is_current, status, task_json, settings_json, headers_json, total_rows, input_path,
           output_path, created_at, updated_at)
         VALUES ($1, $2, true, 'pending', $3, $4, '[]', 0, $5, $6, $7, $7)`,
        [
          job.id,
          job.key,
          JSON.stringify(job.task),
          JSON.stringify(job.settings),
          job.inputPath,
          job.outputPath,
          job.createdAtMs,
        ],
      );
      const totalRows = await insertItems(client, job.id, rows);
      const { rows: made } = await client.query(
        `UPDATE ${JOBS} SET headers_json = $2, total_rows = $3 WHERE id = $1 RETURNING *`,
        [job.id, JSON.stringify(headers()), totalRows],
      );
      await client.query("COMMIT");
      return decodeJob(made[0]);
    } catch (error) {
      await client.query("ROLLBACK").catch(() => undefined);
      throw error;
    } finally {
      client.release();
    }
  }

  async list(): Promise<JobRecord[]> {
    const { rows } = await this.#pool.query(`SELECT * FROM ${JOBS} ORDER BY created_at DESC, id`);
    return rows.map(decodeJob);
  }

  async open(idOrPrefix: string): Promise<JobLedger | null> {
    if (idOrPrefix === "") return null;
    const { rows } = await this.#pool.query<{ id: string }>(
      `SELECT id FROM ${JOBS} WHERE starts_with(id, $1) ORDER BY id LIMIT 3`,
      [idOrPrefix],
    );
    const [first, another] = rows;
    if (!first) return null;
    if (another) {
      throw new Error(
        `job \`${idOrPrefix}\` is ambiguous; it could be ${rows.map((row) => row.id).join(" or ")}`,
      );
    }
    return new PostgresLedger({
      pool: this.#pool,
      queue: new RowQueue(this.#engine, first.id, this.#heartbeatSeconds),
      jobId: first.id,
      clock: this.#clock,
      newToken: this.#newToken,
      touchEveryMs: (this.#heartbeatSeconds * 1000) / BEATS_PER_HEARTBEAT,
      onError: this.#onError,
    });
  }

  async [Symbol.asyncDispose](): Promise<void> {
    await this.#engine.stop({ graceful: false }).catch(this.#onError);
    await this.#pool.end();
  }
}

async function loadPackages(): Promise<{
  Pool: typeof import("pg").Pool;
  Engine: DeliveryEngineConstructor;
}> {
  try {
    const { default: pg } = await import("pg");
    const { PgBoss } = await import("pg-boss");
    return { Pool: pg.Pool, Engine: PgBoss };
  } catch (error) {
    throw new Error("--database-url needs the packages pg and pg-boss, and they are not installed", {
      cause: error,
    });
  }
}

async function insertItems(
  client: PoolClient,
  jobId: string,
  items: AsyncIterable<NewItem>,
): Promise<number> {
  let total = 0;
  let batch: NewItem[] = [];
  const write = async () => {
    await client.query(
      `INSERT INTO ${ITEMS} (job_id, row_index, item_id, source_id, row_json)
       SELECT $1, * FROM unnest($2::bigint[], $3::text[], $4::text[], $5::text[])`,
      [
        jobId,
        batch.map((item) => item.rowIndex),
        batch.map((item) => storable(item.itemId)),
        batch.map((item) => (item.sourceId === null ? null : storable(item.sourceId))),
        batch.map((item) => JSON.stringify(item.row)),
      ],
    );
    batch = [];
  };
  for await (const item of items) {
    total++;
    batch.push(item);
    if (batch.length >= INSERT_ROWS) await write();
  }
  if (batch.length > 0) await write();
  return total;
}
