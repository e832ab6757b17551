import type { Pool, PoolClient, QueryResult } from "pg";
import type { OutageRetry } from "../../../async/outage-retry.ts";
import { toError } from "../../../base/error-message.ts";
import { grantDataRights } from "./postgres-migrations.ts";
import { type DatabaseRow, execute, type Statement } from "./statement.ts";

type Values = Readonly<Record<string, unknown>>;

/** The ledger's connections and statements. All methods retry during an outage, except `try…`. */
export class PostgresDatabase {
  readonly outage: OutageRetry;
  #pool: Pool;

  constructor(pool: Pool, outage: OutageRetry) {
    this.#pool = pool;
    this.outage = outage;
  }

  run(statement: Statement, values?: Values): Promise<QueryResult<DatabaseRow>> {
    return this.outage.run(() => execute(this.#pool, statement, values));
  }

  async all(statement: Statement, values?: Values): Promise<DatabaseRow[]> {
    return (await this.run(statement, values)).rows;
  }

  /**
   * Makes a change that is possible only once and returns its row. If the response was lost, `lookUp` finds the row of
   * a change that succeeded.
   */
  changeOnce(change: Statement, lookUp: Statement, values: Values): Promise<DatabaseRow | undefined> {
    return this.outage.run((isRepeat) => this.tryChangeOnce(change, lookUp, values, isRepeat));
  }

  /** `changeOnce` without retries, for a caller that handles outages itself. */
  tryChangeOnce(
    change: Statement,
    lookUp: Statement,
    values: Values,
    isRepeat: boolean,
  ): Promise<DatabaseRow | undefined> {
    return changeOnce(this.#pool, change, lookUp, values, isRepeat);
  }

  /** Commits all statements of the task, or none. */
  transaction<T>(task: (client: PoolClient, isRepeat: boolean) => Promise<T>): Promise<T> {
    return this.outage.run((isRepeat) => this.tryTransaction((client) => task(client, isRepeat)));
  }

  /** A transaction without retries, because its input can be read only once. */
  async tryTransaction<T>(task: (client: PoolClient) => Promise<T>): Promise<T> {
    const client = await this.#pool.connect();
    // A lost connection also emits an error event; the statement in flight reports the loss.
    let lost: Error | undefined;
    const onError = (error: Error) => {
      lost = error;
    };
    client.on("error", onError);
    try {
      await client.query("BEGIN");
      const value = await task(client);
      await client.query("COMMIT");
      return value;
    } catch (error) {
      await client.query("ROLLBACK").catch((failure: unknown) => {
        lost ??= toError(failure);
      });
      throw error;
    } finally {
      client.off("error", onError);
      client.release(lost);
    }
  }

  /** Returns a dedicated connection. Closing it releases its locks. */
  async connection(): Promise<PoolClient> {
    const client = await this.#pool.connect();
    // The statement in flight reports a lost connection. Without a listener, the event would also end this process.
    client.on("error", () => undefined);
    return client;
  }

  /** Grants a role access to the rows of the ledger and of these schemas. */
  grantDataRights(role: string, schemas: readonly string[]): Promise<void> {
    return grantDataRights(this.#pool, role, schemas);
  }

  close(): Promise<void> {
    return this.#pool.end();
  }
}

export async function changeOnce(
  client: Pool | PoolClient,
  change: Statement,
  lookUp: Statement,
  values: Values,
  isRepeat: boolean,
): Promise<DatabaseRow | undefined> {
  const { rows } = await execute(client, change, values);
  if (rows[0] || !isRepeat) return rows[0];
  return (await execute(client, lookUp, values)).rows[0];
}
