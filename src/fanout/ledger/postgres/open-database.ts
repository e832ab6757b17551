import type { Pool } from "pg";
import { type Clock, systemClock } from "../../../async/clock.ts";
import { Outage } from "../../../async/outage.ts";
import { isLostConnection } from "./connection-loss.ts";
import type { DeliveryEngine, DeliveryEngineConstructor } from "./delivery-engine.ts";
import { PostgresDatabase } from "./postgres-database.ts";
import { migrate } from "./postgres-migrations.ts";
import { connectionUrl } from "./ssl-mode.ts";

export interface OpenDatabaseOptions {
  databaseUrl: string;
  /** Whether a database that is away at first is waited for, as it is later on. */
  waitToOpen?: boolean | undefined;
  /** How long the database may be unavailable before the work is given up. */
  outagePatienceMs?: number | undefined;
  /** How often the engine looks for workers without heartbeats. */
  monitorSeconds: number;
  /** Aborted when the user interrupts the run. */
  signal?: AbortSignal | undefined;
  clock?: Clock | undefined;
  /** Called with errors of background work, such as a lost connection that is being re-established. */
  onError: (error: unknown) => void;
}

/** The engine's tables. */
export const QUEUE_SCHEMA = "procwire_queue";
/** Connections per process: enough for its lanes to settle rows without long waits. */
const LEDGER_CONNECTIONS = 8;
const QUEUE_CONNECTIONS = 4;
/** A database that accepts no connection for this long counts as unavailable. */
const CONNECT_TIMEOUT_MS = 10_000;
/** Longer than a restart, a fail-over or an operator's mistake usually takes. */
const DEFAULT_OUTAGE_PATIENCE_MS = 10 * 60_000;

/** Connects to a database, brings its tables to this version and starts the engine. */
export async function openDatabase(
  options: OpenDatabaseOptions,
): Promise<{ database: PostgresDatabase; engine: DeliveryEngine }> {
  const { databaseUrl, onError } = options;
  const { Pool, Engine } = await loadPackages();
  const connect = (connectionString: string, max: number) =>
    new Pool({ connectionString, max, connectionTimeoutMillis: CONNECT_TIMEOUT_MS });
  /** Whether it offers encryption is known only once it has been reached. */
  const reach = async () => {
    const probe = connect(await connectionUrl(databaseUrl), 1);
    try {
      await probe.query("SELECT 1");
    } finally {
      await probe.end();
    }
  };
  let pool: Pool | null = null;
  const outage = new Outage({
    words: {
      waiting: "it is back",
      back: "the database is back",
      gaveUp: "the database has been away",
    },
    isLoss: isLostConnection,
    probe: () => pool?.query("SELECT 1") ?? reach(),
    patienceMs: options.outagePatienceMs ?? DEFAULT_OUTAGE_PATIENCE_MS,
    clock: options.clock ?? systemClock,
    signal: options.signal,
    tell: (message) => onError(new Error(message)),
  });
  const run = <T>(step: (isRepeat: boolean) => Promise<T>): Promise<T> =>
    options.waitToOpen ? outage.ride(step) : step(false);

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
      // What a start that failed half-way has begun.
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
