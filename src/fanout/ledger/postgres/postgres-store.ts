import type { PgBoss } from "pg-boss";
import { type Clock, systemClock, type Timer } from "../../../async/clock.ts";
import { hasErrorCode } from "../../../base/error-code.ts";
import type { JobRecord, NewItem, NewJob } from "../../job.ts";
import type { AnswerSource, JobLedger, JobStore, TableState, UnreadableJob } from "../job-ledger.ts";
import { PreReleaseSchemaError } from "../migrations.ts";
import { decodeAnswer, decodeJob } from "../record-codec.ts";
import { insertItems } from "./insert-items.ts";
import { type OpenDatabaseOptions, openDatabase, QUEUE_SCHEMA } from "./open-database.ts";
import type { PostgresDatabase } from "./postgres-database.ts";
import { PostgresLedger } from "./postgres-ledger.ts";
import * as sql from "./postgres-statements.ts";
import { RowQueue } from "./row-queue.ts";
import { execute } from "./statement.ts";

export interface PostgresStoreOptions
  extends Omit<OpenDatabaseOptions, "monitorSeconds" | "onError">,
    Partial<Pick<OpenDatabaseOptions, "monitorSeconds" | "onError">> {
  /** Heartbeat timeout: a worker without heartbeats for this long loses its rows. Minimum: 10. */
  heartbeatSeconds?: number | undefined;
}

/** The engine checks every few seconds, so rows of a dead worker are released within half a minute. */
const DEFAULT_HEARTBEAT_SECONDS = 20;
const DEFAULT_MONITOR_SECONDS = 5;
/** Heartbeats per heartbeat timeout. */
const BEATS_PER_TIMEOUT = 4;
/**
 * After an outage, no worker counts as dead for this long, so that all workers can send a heartbeat first. Each polls
 * for the database at short intervals.
 */
const RECOVERY_GRACE_MS = 3_000;

/** Jobs that several hosts share. The ledger in Postgres is authoritative; pg-boss delivers the rows. */
export class PostgresStore implements JobStore {
  #database: PostgresDatabase;
  #engine: PgBoss;
  #clock: Clock;
  #heartbeatSeconds: number;
  #onError: (error: unknown) => void;
  #superviseTimer: Timer | null = null;

  private constructor(database: PostgresDatabase, engine: PgBoss, options: PostgresStoreOptions) {
    this.#database = database;
    this.#engine = engine;
    this.#clock = options.clock ?? systemClock;
    this.#heartbeatSeconds = options.heartbeatSeconds ?? DEFAULT_HEARTBEAT_SECONDS;
    this.#onError = options.onError ?? (() => undefined);
  }

  static async open(options: PostgresStoreOptions): Promise<PostgresStore> {
    const { monitorSeconds = DEFAULT_MONITOR_SECONDS, onError = () => undefined } = options;
    try {
      const { database, engine } = await openDatabase({ ...options, monitorSeconds, onError });
      const store = new PostgresStore(database, engine, options);
      store.#scheduleSupervision(monitorSeconds * 1000);
      return store;
    } catch (error) {
      options.signal?.throwIfAborted();
      const reason = error instanceof Error ? error.message || String(error) : String(error);
      throw new Error(`the database cannot be used: ${reason}${adviceFor(error)}`, { cause: error });
    }
  }

  /** Grants a role the rights to run jobs and to work on them. */
  async grantTo(role: string): Promise<void> {
    await this.#database.grantDataRights(role, [QUEUE_SCHEMA]);
  }

  /** Runs the task under a lock that ends with its connection, so that the death of the process releases it. */
  withKey<T>(key: string, _signal: AbortSignal, task: () => Promise<T>): Promise<T> {
    return this.#database.outage.run(async () => {
      const results: T[] = [];
      try {
        return await this.#database.tryTransaction(async (client) => {
          await execute(client, sql.LOCK_KEY, { key });
          const value = await task();
          results.push(value);
          return value;
        });
      } catch (error) {
        // The loss of the lock after the task has no effect.
        for (const value of results) return value;
        throw error;
      }
    });
  }

  async find(key: string): Promise<JobRecord | null> {
    const [row] = await this.#database.all(sql.FIND_JOB, { key });
    return row ? decodeJob(row) : null;
  }

  create(job: NewJob, rows: AsyncIterable<NewItem>, table: () => TableState): Promise<JobRecord> {
    return this.#database.tryTransaction(async (client) => {
      await execute(client, sql.RETIRE_KEY, { key: job.key });
      await execute(client, sql.INSERT_JOB, {
        id: job.id,
        key: job.key,
        task: JSON.stringify(job.task),
        settings: JSON.stringify(job.settings),
        inputPath: job.inputPath,
        outputPath: job.outputPath,
        createdAt: job.createdAtMs,
      });
      const totalRows = await insertItems(client, job.id, rows);
      const { headers, isReading } = table();
      const values = { jobId: job.id, headers: JSON.stringify(headers), totalRows, isReading };
      const { rows: created } = await execute(client, sql.FINISH_JOB_INSERT, values);
      if (!created[0]) throw new Error("the database returned no row");
      return decodeJob(created[0]);
    });
  }

  async list(): Promise<JobRecord[]> {
    return (await this.#database.all(sql.LIST_JOBS)).map(decodeJob);
  }

  async unreadable(): Promise<UnreadableJob[]> {
    return [];
  }

  async remove(idOrPrefix: string): Promise<string | null> {
    const id = await this.#resolve(idOrPrefix);
    if (id === null) return null;
    const { rowCount } = await this.#database.run(sql.DELETE_JOB, { jobId: id });
    if (rowCount === 0) {
      const short = id.slice(0, 8);
      throw new Error(`job ${short} is running; \`procwire jobs cancel ${short}\` first`);
    }
    await this.#queueOf(id).remove();
    return id;
  }

  async removeStaleFiles(): Promise<number> {
    return 0;
  }

  async #resolve(idOrPrefix: string): Promise<string | null> {
    if (idOrPrefix === "") return null;
    const ids = (await this.#database.all(sql.FIND_JOB_IDS, { prefix: idOrPrefix })).map((row) => String(row.id));
    const [id, another] = ids;
    if (another !== undefined) {
      throw new Error(`job \`${idOrPrefix}\` is ambiguous; it could be ${ids.join(" or ")}`);
    }
    return id ?? null;
  }

  #queueOf(jobId: string): RowQueue {
    return new RowQueue(this.#engine, jobId, this.#heartbeatSeconds, this.#database.outage);
  }

  async open(idOrPrefix: string): Promise<JobLedger | null> {
    const id = await this.#resolve(idOrPrefix);
    if (id === null) return null;
    return new PostgresLedger({
      database: this.#database,
      queue: this.#queueOf(id),
      jobId: id,
      clock: this.#clock,
      touchEveryMs: (this.#heartbeatSeconds * 1000) / BEATS_PER_TIMEOUT,
      onError: this.#onError,
    });
  }

  async answersFromOtherJobs(jobId: string): Promise<AnswerSource> {
    return {
      find: async (questions) => (await this.#database.all(sql.FIND_ANSWERS, { jobId, questions })).map(decodeAnswer),
      [Symbol.asyncDispose]: async () => undefined,
    };
  }

  #scheduleSupervision(everyMs: number): void {
    const supervise = async () => {
      if (this.#database.outage.healthyForMs >= RECOVERY_GRACE_MS) await this.#engine.supervise();
    };
    const onTimer = () => {
      void supervise()
        .catch(this.#onError)
        .finally(() => {
          if (this.#superviseTimer) this.#scheduleSupervision(everyMs);
        });
    };
    this.#superviseTimer = this.#clock.after(everyMs, onTimer, { keepAlive: false });
  }

  async [Symbol.asyncDispose](): Promise<void> {
    this.#superviseTimer?.cancel();
    this.#superviseTimer = null;
    await this.#engine.stop({ graceful: false }).catch(this.#onError);
    await this.#database.close();
  }
}

/** Postgres code: the role lacks a privilege. */
const INSUFFICIENT_PRIVILEGE = "42501";

/** Returns advice for the user, or an empty text if the error has no certain remedy. */
function adviceFor(error: unknown): string {
  if (error instanceof PreReleaseSchemaError) {
    return `; use another database, drop the schemas procwire and ${QUEUE_SCHEMA} with all their jobs, or use the version that created them`;
  }
  if (hasErrorCode(error, INSUFFICIENT_PRIVILEGE)) {
    return "; `procwire fanout migrate`, run by a role that may create schemas, sets it up, and --grant-to ROLE lets another role use it";
  }
  return "";
}
