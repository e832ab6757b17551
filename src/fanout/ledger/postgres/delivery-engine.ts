/** The members of pg-boss that deliver rows. */
export interface DeliveryEngine {
  on(event: "error", listener: (error: unknown) => void): unknown;
  start(): Promise<unknown>;
  stop(options: { graceful: boolean }): Promise<void>;
  createQueue(name: string, options?: QueueOptions): Promise<void>;
  /** Finds workers without a recent heartbeat and delivers their rows to others. */
  supervise(): Promise<void>;
  deleteQueue(name: string): Promise<void>;
  insert(name: string, deliveries: NewDelivery[], options: InTransaction): Promise<unknown>;
  fetch(name: string, options: { batchSize: number }): Promise<EngineDelivery[]>;
  /** `touch` and `complete` affect only the named attempt. */
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
  /** Number of times the row was delivered again. */
  retryCount: number;
}

export interface EngineDelivery extends DeliveryAttempt {
  data: RowData;
}

/** Runs a statement of the engine within the ledger's transaction. */
export interface InTransaction {
  db?: { executeSql(text: string, values?: unknown[]): Promise<{ rows: unknown[] }> };
}
