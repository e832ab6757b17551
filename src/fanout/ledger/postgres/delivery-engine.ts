/**
 * The interface of the part of pg-boss that delivers rows: exactly what is used of it.
 */
export interface DeliveryEngine {
  on(event: "error", listener: (error: unknown) => void): unknown;
  start(): Promise<unknown>;
  stop(options: { graceful: boolean }): Promise<void>;
  createQueue(name: string, options?: QueueOptions): Promise<void>;
  /** Looks for workers without a recent heartbeat, and gives their rows to others. */
  supervise(): Promise<void>;
  deleteQueue(name: string): Promise<void>;
  insert(name: string, deliveries: NewDelivery[], options: InTransaction): Promise<unknown>;
  fetch(name: string, options: { batchSize: number }): Promise<EngineDelivery[]>;
  /** These two take effect only for exactly the named attempt. */
  touch(name: string, attempts: DeliveryAttempt[]): Promise<unknown>;
  complete(name: string, attempts: DeliveryAttempt[], data: null, options: InTransaction): Promise<unknown>;
}

export type DeliveryEngineConstructor = new (options: {
  connectionString: string;
  schema: string;
  schedule: boolean;
  supervise: boolean;
  monitorIntervalSeconds: number;
  max: number;
}) => DeliveryEngine;

export interface QueueOptions {
  policy: "exclusive";
  heartbeatSeconds: number;
  retryLimit: number;
  expireInSeconds: number;
  deleteAfterSeconds: number;
  deadLetter: string;
}

export interface RowData {
  jobId: string;
  itemId: string;
  rowIndex: number;
}

export interface NewDelivery {
  data: RowData;
  singletonKey: string;
  priority: number;
  startAfter?: Date;
}

export interface DeliveryAttempt {
  id: string;
  /** Incremented each time the delivery is given to another worker. */
  retryCount: number;
}

export interface EngineDelivery extends DeliveryAttempt {
  data: RowData;
}

/** Lets a statement of the engine run inside the ledger's transaction. */
export interface InTransaction {
  db?: { executeSql(text: string, values?: unknown[]): Promise<{ rows: unknown[] }> };
}
