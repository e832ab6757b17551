import type { Pool } from "pg";
import type { PgBoss } from "pg-boss";
import { type Clock, systemClock } from "../../../async/clock.ts";
import { OutageRetry } from "../../../async/outage-retry.ts";
import { DEFAULT_OUTAGE_TIMEOUT_MS } from "../../job-settings.ts";
import { isLostConnection } from "./connection-loss.ts";
import { PostgresDatabase } from "./postgres-database.ts";
import { migrate } from "./postgres-migrations.ts";
import { connectionUrl } from "./ssl-mode.ts";

export interface OpenDatabaseOptions {
  databaseUrl: string;
  /** Whether to wait for a database that is unavailable at the start, as during the run. */
  waitToOpen?: boolean | undefined;
  /** Maximum outage of the database before the run fails. */
  outageTimeoutMs?: number | undefined;
  /** Interval at which the delivery engine (pg-boss) searches for workers without heartbeats. */
  monitorSeconds: number;
  /** Aborts when the user interrupts the run. */
  signal?: AbortSignal | undefined;
  clock?: Clock | undefined;
  /** Called with errors of background work, such as a lost connection that is being re-established. */
  onError: (error: unknown) => void;
}

/** Schema of the delivery engine's tables. */
export const QUEUE_SCHEMA = "procwire_queue";
/** Connections per process: enough for its slots to store outcomes without long waits. */
const LEDGER_CONNECTIONS = 8;
const QUEUE_CONNECTIONS = 4;
/** Maximum time to open a connection. After it, the database counts as unavailable. */
const CONNECT_TIMEOUT_MS = 10_000;

/** Connects to a database, migrates its tables and starts the engine. */
export async function openDatabase(
  options: OpenDatabaseOptions,
): Promise<{ database: PostgresDatabase; engine: PgBoss }> {
  const { databaseUrl, onError } = options;
  const { Pool, Engine } = await loadPackages();
  const connect = (connectionString: string, max: number) =>
    new Pool({ connectionString, max, connectionTimeoutMillis: CONNECT_TIMEOUT_MS });
  /** Connects once. Only a reachable server shows whether it supports TLS. */
  const connectOnce = async () => {
    const probe = connect(await connectionUrl(databaseUrl), 1);
    try {
      await probe.query("SELECT 1");
    } finally {
      await probe.end();
    }
  };
  let pool: Pool | null = null;
  const outage = new OutageRetry({
    messages: {
      waiting: "it is back",
      back: "the database is back",
      gaveUp: "the database has been away",
    },
    isOutage: isLostConnection,
    probe: () => pool?.query("SELECT 1") ?? connectOnce(),
    timeoutMs: options.outageTimeoutMs ?? DEFAULT_OUTAGE_TIMEOUT_MS,
    clock: options.clock ?? systemClock,
    signal: options.signal,
    report: (message) => onError(new Error(message)),
  });
  const run = <T>(step: (isRepeat: boolean) => Promise<T>): Promise<T> =>
    options.waitToOpen ? outage.run(step) : step(false);

  const connectionString = await run(() => connectionUrl(databaseUrl));
  const opened = connect(connectionString, LEDGER_CONNECTIONS);
  pool = opened;
  pool.on("error", onError);
  const engine = new Engine({
    connectionString,
    schema: QUEUE_SCHEMA,
    schedule: false,
    supervise: false,
    monitorIntervalSeconds: options.monitorSeconds,
    max: QUEUE_CONNECTIONS,
  });
  engine.on("error", onError);
  const stopEngine = () => engine.stop({ graceful: false }).catch(onError);
  try {
    await run(() => migrate(opened));
    await run(async (isRepeat) => {
      // Stops the parts that a failed start left running.
      if (isRepeat) await stopEngine();
      await engine.start();
    });
    return { database: new PostgresDatabase(opened, outage), engine };
  } catch (error) {
    await stopEngine();
    await opened.end();
    throw error;
  }
}

async function loadPackages() {
  try {
    const { default: pg } = await import("pg");
    return { Pool: pg.Pool, Engine: (await import("pg-boss")).PgBoss };
  } catch (error) {
    throw new Error("--database-url requires the packages pg and pg-boss, which are not installed", {
      cause: error,
    });
  }
}
