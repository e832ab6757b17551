import type { PoolClient } from "pg";
import type { ConnectionOptions, Job, JobInsert, PgBoss } from "pg-boss";
import type { OutageRetry } from "../../../async/outage-retry.ts";

/** The data of a delivery. */
interface RowData {
  jobId: string;
  itemId: string;
  rowIndex: number;
}

/** A lease on one row, delivered by the engine. */
export type Delivery = Pick<Job<RowData>, "id" | "retryCount" | "data">;

export interface QueuedRow {
  itemId: string;
  rowIndex: number;
  /** Earliest delivery time. */
  dueAtMs: number;
}

/** The queue for rows whose workers died too often. */
const DEAD_LETTERS = "dead-rows";
/** Maximum number of workers that may die at one row; then the row is considered the cause. */
export const MAX_LOST_DELIVERIES = 5;
/** The engine's own timeout of a delivery. The row timeout ends it much earlier. */
const EXPIRE_SECONDS = 23 * 3600;
/** How long the engine stores finished deliveries, which are not needed. */
const DELETE_AFTER_SECONDS = 600;
/** Rows queued by one statement. */
const INSERT_BATCH = 1_000;

/**
 * The delivery queue of one job (pg-boss). Each row goes to one worker at a time, again if that worker's heartbeats
 * stop, and to the dead letters if that happens too often. The ledger stays authoritative for finished rows.
 */
export class RowQueue {
  #engine: PgBoss;
  #jobId: string;
  #name: string;
  #heartbeatSeconds: number;
  #outage: OutageRetry;

  constructor(engine: PgBoss, jobId: string, heartbeatSeconds: number, outage: OutageRetry) {
    this.#outage = outage;
    this.#engine = engine;
    this.#jobId = jobId;
    this.#name = `job-${jobId}`;
    this.#heartbeatSeconds = heartbeatSeconds;
  }

  create(): Promise<void> {
    return this.#outage.run(async () => {
      await this.#engine.createQueue(DEAD_LETTERS);
      await this.#engine.createQueue(this.#name, {
        // At most one active delivery per row: queueing a row twice has no effect.
        policy: "exclusive",
        heartbeatSeconds: this.#heartbeatSeconds,
        retryLimit: MAX_LOST_DELIVERIES,
        expireInSeconds: EXPIRE_SECONDS,
        deleteAfterSeconds: DELETE_AFTER_SECONDS,
        deadLetter: DEAD_LETTERS,
      });
    });
  }

  /** Queues rows. A row that is queued already stays unchanged. */
  async put(rows: readonly QueuedRow[], client?: PoolClient): Promise<void> {
    for (let from = 0; from < rows.length; from += INSERT_BATCH) {
      const deliveries = rows.slice(from, from + INSERT_BATCH).map((row) => this.#toInsert(row));
      const insert = () => this.#engine.insert(this.#name, deliveries, inTransaction(client));
      await (client ? insert() : this.#outage.run(insert));
    }
  }

  take(limit: number): Promise<Delivery[]> {
    // If the response is lost, the rows are delivered again after a heartbeat timeout.
    return this.#outage.run(() => this.#engine.fetch<RowData>(this.#name, { batchSize: limit }));
  }

  /** Sends a heartbeat for these rows. */
  async touch(deliveries: readonly Delivery[]): Promise<void> {
    if (deliveries.length > 0) await this.#engine.touch(this.#name, deliveries.map(toDeliveryKey));
  }

  async done(deliveries: readonly Delivery[], client?: PoolClient): Promise<void> {
    if (deliveries.length === 0) return;
    const complete = () =>
      this.#engine.complete(this.#name, deliveries.map(toDeliveryKey), null, inTransaction(client));
    await (client ? complete() : this.#outage.run(complete));
  }

  /** Fetches dead letters of any job. The caller fails their rows in the ledger and then calls `removeDeadLetters`. */
  takeDeadLetters(limit: number): Promise<Delivery[]> {
    return this.#outage.run(() => this.#engine.fetch<RowData>(DEAD_LETTERS, { batchSize: limit }));
  }

  async removeDeadLetters(dead: readonly Delivery[]): Promise<void> {
    if (dead.length === 0) return;
    await this.#outage.run(() => this.#engine.complete(DEAD_LETTERS, dead.map(toDeliveryKey), null, {}));
  }

  async remove(): Promise<void> {
    await this.#outage.run(() => this.#engine.deleteQueue(this.#name));
  }

  #toInsert({ itemId, rowIndex, dueAtMs }: QueuedRow): JobInsert<RowData> {
    const delivery: JobInsert<RowData> = {
      data: { jobId: this.#jobId, itemId, rowIndex },
      singletonKey: itemId,
      // Higher priorities are delivered first, so this yields table order.
      priority: -rowIndex,
    };
    if (dueAtMs > 0) delivery.startAfter = new Date(dueAtMs);
    return delivery;
  }
}

/** Returns the fields that limit a change to this delivery. */
function toDeliveryKey({ id, retryCount }: Delivery): Pick<Delivery, "id" | "retryCount"> {
  return { id, retryCount };
}

/** Runs a statement of the engine within the ledger's transaction. */
function inTransaction(client: PoolClient | undefined): ConnectionOptions {
  return client ? { db: { executeSql: (text, values) => client.query(text, values) } } : {};
}
