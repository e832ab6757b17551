import type { PoolClient } from "pg";
import type { Job, JobInsert, PgBoss } from "pg-boss";

/** The right to work on one row, as the engine gave it. */
export interface Delivery {
  id: string;
  /** Together with the id it names the attempt: a delivery that was given to somebody else has a higher one. */
  retryCount: number;
  itemId: string;
  rowIndex: number;
}

export interface QueuedRow {
  itemId: string;
  rowIndex: number;
  /** Not delivered before then. */
  dueAtMs: number;
}

/** Where rows go whose workers died again and again. */
const DEAD_LETTERS = "dead-rows";
/** So often may whoever works on a row die before the row itself is held to be the reason. */
export const MAX_DELIVERIES_LOST = 5;
/** The engine's own limit for one delivery; a row's time is bounded by us, and long before. */
const EXPIRE_SECONDS = 23 * 3600;
/** What is done is of no further use to the engine. */
const DELETE_AFTER_SECONDS = 600;
/** Rows put into the queue by one statement. */
const INSERT_BATCH = 1_000;

/**
 * The rows of one job as the engine (pg-boss) delivers them: each to one worker at a time, again when that worker goes
 * silent, and to the dead letters when that happens too often. The ledger stays the truth about what is finished.
 */
export class RowQueue {
  #boss: PgBoss;
  #jobId: string;
  #name: string;
  #heartbeatSeconds: number;

  constructor(boss: PgBoss, jobId: string, heartbeatSeconds: number) {
    this.#boss = boss;
    this.#jobId = jobId;
    this.#name = `job-${jobId}`;
    this.#heartbeatSeconds = heartbeatSeconds;
  }

  async create(): Promise<void> {
    await this.#boss.createQueue(DEAD_LETTERS);
    await this.#boss.createQueue(this.#name, {
      // One live delivery a row: putting a row in twice is putting it in once.
      policy: "exclusive",
      heartbeatSeconds: this.#heartbeatSeconds,
      retryLimit: MAX_DELIVERIES_LOST,
      expireInSeconds: EXPIRE_SECONDS,
      deleteAfterSeconds: DELETE_AFTER_SECONDS,
      deadLetter: DEAD_LETTERS,
    });
  }

  /** Rows that are in the queue already stay as they are. */
  async put(rows: readonly QueuedRow[], client?: PoolClient): Promise<void> {
    for (let from = 0; from < rows.length; from += INSERT_BATCH) {
      const jobs = rows.slice(from, from + INSERT_BATCH).map((row) => this.#insert(row));
      await this.#boss.insert(this.#name, jobs, client ? { db: executor(client) } : {});
    }
  }

  async take(limit: number): Promise<Delivery[]> {
    const jobs = await this.#boss.fetch<RowData>(this.#name, { batchSize: limit });
    return jobs.map(delivery);
  }

  /** The worker is alive and at it. */
  async touch(deliveries: readonly Delivery[]): Promise<void> {
    if (deliveries.length > 0) await this.#boss.touch(this.#name, deliveries.map(attempt));
  }

  async done(deliveries: readonly Delivery[], client?: PoolClient): Promise<void> {
    if (deliveries.length === 0) return;
    await this.#boss.complete(
      this.#name,
      deliveries.map(attempt),
      null,
      client ? { db: executor(client) } : {},
    );
  }

  /** Rows of any job whose deliveries were lost too often; the caller fails them in the ledger and says `buried`. */
  async takeDead(
    limit: number,
  ): Promise<{ id: string; retryCount: number; jobId: string; itemId: string }[]> {
    const jobs = await this.#boss.fetch<RowData>(DEAD_LETTERS, { batchSize: limit });
    return jobs.map((job) => ({ ...attempt(job), jobId: job.data.jobId, itemId: job.data.itemId }));
  }

  async buried(dead: readonly { id: string; retryCount: number }[]): Promise<void> {
    if (dead.length > 0) await this.#boss.complete(DEAD_LETTERS, dead.map(attempt));
  }

  async remove(): Promise<void> {
    await this.#boss.deleteQueue(this.#name);
  }

  #insert(row: QueuedRow): JobInsert<RowData> {
    return {
      data: { jobId: this.#jobId, itemId: row.itemId, rowIndex: row.rowIndex },
      singletonKey: row.itemId,
      // Higher goes first, so this is the table's order.
      priority: -row.rowIndex,
      ...(row.dueAtMs > 0 ? { startAfter: new Date(row.dueAtMs) } : {}),
    };
  }
}

interface RowData {
  jobId: string;
  itemId: string;
  rowIndex: number;
}

function delivery(job: Job<RowData>): Delivery {
  return { ...attempt(job), itemId: job.data.itemId, rowIndex: job.data.rowIndex };
}

function attempt({ id, retryCount }: { id: string; retryCount: number }): { id: string; retryCount: number } {
  return { id, retryCount };
}

/** Lets the engine's statement run inside the ledger's transaction. */
function executor(client: PoolClient) {
  return { executeSql: (text: string, values?: unknown[]) => client.query(text, values) };
}
