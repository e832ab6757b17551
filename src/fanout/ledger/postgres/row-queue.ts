import type { PoolClient } from "pg";
import type { Outage } from "../../../async/outage.ts";
import type {
  DeliveryAttempt,
  DeliveryEngine,
  EngineDelivery,
  InTransaction,
  NewDelivery,
} from "./delivery-engine.ts";

/** The right to work on one row, given by the engine. */
export interface Delivery extends DeliveryAttempt {
  itemId: string;
  rowIndex: number;
}

export interface QueuedRow {
  itemId: string;
  rowIndex: number;
  /** Not delivered before then. */
  dueAtMs: number;
}

/** The queue for rows whose workers died too often. */
const DEAD_LETTERS = "dead-rows";
/** How many workers may die at one row before the row itself is considered the cause. */
export const MAX_DELIVERIES_LOST = 5;
/** The engine's own time limit for a delivery; the row's deadline ends it long before. */
const EXPIRE_SECONDS = 23 * 3600;
/** How long the engine keeps finished deliveries, which nobody needs. */
const DELETE_AFTER_SECONDS = 600;
/** Rows put into the queue by one statement. */
const INSERT_BATCH = 1_000;

/**
 * The rows of one job as the engine (pg-boss) delivers them: each to one worker at a time, again when that worker's heartbeat
 * stops, and to the dead letters when that happens too often. The ledger stays authoritative for what is finished.
 */
export class RowQueue {
  #engine: DeliveryEngine;
  #jobId: string;
  #name: string;
  #heartbeatSeconds: number;
  #outage: Outage;

  constructor(engine: DeliveryEngine, jobId: string, heartbeatSeconds: number, outage: Outage) {
    this.#outage = outage;
    this.#engine = engine;
    this.#jobId = jobId;
    this.#name = `job-${jobId}`;
    this.#heartbeatSeconds = heartbeatSeconds;
  }

  create(): Promise<void> {
    return this.#outage.ride(() => this.#create());
  }

  async #create(): Promise<void> {
    await this.#engine.createQueue(DEAD_LETTERS);
    await this.#engine.createQueue(this.#name, {
      // At most one live delivery per row: queueing a row twice has no effect.
      policy: "exclusive",
      heartbeatSeconds: this.#heartbeatSeconds,
      retryLimit: MAX_DELIVERIES_LOST,
      expireInSeconds: EXPIRE_SECONDS,
      deleteAfterSeconds: DELETE_AFTER_SECONDS,
      deadLetter: DEAD_LETTERS,
    });
  }

  /** Rows that are already queued stay as they are. */
  async put(rows: readonly QueuedRow[], client?: PoolClient): Promise<void> {
    for (let from = 0; from < rows.length; from += INSERT_BATCH) {
      const deliveries = rows.slice(from, from + INSERT_BATCH).map((row) => this.#insert(row));
      const insert = () => this.#engine.insert(this.#name, deliveries, inTransaction(client));
      await (client ? insert() : this.#outage.ride(insert));
    }
  }

  async take(limit: number): Promise<Delivery[]> {
    // Rows whose delivery was lost on the way are delivered again after a heartbeat timeout.
    const given = await this.#outage.ride(() => this.#engine.fetch(this.#name, { batchSize: limit }));
    return given.map(delivery);
  }

  /** Heartbeat: the worker is alive and works on these rows. */
  async touch(deliveries: readonly Delivery[]): Promise<void> {
    if (deliveries.length > 0) await this.#engine.touch(this.#name, deliveries.map(attempt));
  }

  async done(deliveries: readonly Delivery[], client?: PoolClient): Promise<void> {
    if (deliveries.length === 0) return;
    const complete = () =>
      this.#engine.complete(this.#name, deliveries.map(attempt), null, inTransaction(client));
    await (client ? complete() : this.#outage.ride(complete));
  }

  /** Rows of any job whose deliveries were lost too often; the caller fails them in the ledger and calls `buried`. */
  async takeDead(limit: number): Promise<DeadRow[]> {
    const dead = await this.#outage.ride(() => this.#engine.fetch(DEAD_LETTERS, { batchSize: limit }));
    return dead.map((one) => ({ ...attempt(one), jobId: one.data.jobId, itemId: one.data.itemId }));
  }

  async buried(dead: readonly DeliveryAttempt[]): Promise<void> {
    if (dead.length === 0) return;
    await this.#outage.ride(() => this.#engine.complete(DEAD_LETTERS, dead.map(attempt), null, {}));
  }

  async remove(): Promise<void> {
    await this.#outage.ride(() => this.#engine.deleteQueue(this.#name));
  }

  #insert(row: QueuedRow): NewDelivery {
    const delivery: NewDelivery = {
      data: { jobId: this.#jobId, itemId: row.itemId, rowIndex: row.rowIndex },
      singletonKey: row.itemId,
      // Higher priority goes first, so this gives the table's order.
      priority: -row.rowIndex,
    };
    if (row.dueAtMs > 0) delivery.startAfter = new Date(row.dueAtMs);
    return delivery;
  }
}

/** A row whose workers died too often. */
interface DeadRow extends DeliveryAttempt {
  jobId: string;
  itemId: string;
}

function delivery(given: EngineDelivery): Delivery {
  return { ...attempt(given), itemId: given.data.itemId, rowIndex: given.data.rowIndex };
}

function attempt({ id, retryCount }: DeliveryAttempt): DeliveryAttempt {
  return { id, retryCount };
}

function inTransaction(client: PoolClient | undefined): InTransaction {
  return client ? { db: { executeSql: (text, values) => client.query(text, values) } } : {};
}
