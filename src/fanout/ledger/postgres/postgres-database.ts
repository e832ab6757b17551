import type { Pool, PoolClient, QueryResult } from "pg";
import type { Outage } from "../../../async/outage.ts";
import { grantDataRights } from "./postgres-migrations.ts";
import { type DatabaseRow, execute, type Statement } from "./statement.ts";

type Values = Readonly<Record<string, unknown>>;

/** The ledger's connections, and the ways its statements run. All but those that try retry through an outage. */
export class PostgresDatabase {
  readonly outage: Outage;
  #pool: Pool;

  constructor(pool: Pool, outage: Outage) {
    this.#pool = pool;
    this.outage = outage;
  }

  run(statement: Statement, values?: Values): Promise<QueryResult<DatabaseRow>> {
    return this.outage.ride(() => execute(this.#pool, statement, values));
  }

  async all(statement: Statement, values?: Values): Promise<DatabaseRow[]> {
    return (await this.run(statement, values)).rows;
  }

  /**
   * For a change that can be made only once and returns its row. Where the answer to it was lost, `lookUp` finds the row
   * if the change was made after all.
   */
  changeOnce(change: Statement, lookUp: Statement, values: Values): Promise<DatabaseRow | undefined> {
    return this.outage.ride((isRepeat) => this.tryChangeOnce(change, lookUp, values, isRepeat));
  }

  /** For a caller that acts on an outage itself. */
  tryChangeOnce(
    change: Statement,
    lookUp: Statement,
    values: Values,
    isRepeat: boolean,
  ): Promise<DatabaseRow | undefined> {
    return changeOnce(this.#pool, change, lookUp, values, isRepeat);
  }

  /** All of the task's statements are committed, or none. */
  transaction<T>(task: (client: PoolClient, isRepeat: boolean) => Promise<T>): Promise<T> {
    return this.outage.ride((isRepeat) => this.tryTransaction((client) => task(client, isRepeat)));
  }

  /** A transaction that cannot be repeated, because its input can be read only once. */
  async tryTransaction<T>(task: (client: PoolClient) => Promise<T>): Promise<T> {
    const client = await this.#pool.connect();
    // A connection that is lost while checked out also emits an error itself; the statement under way reports it to us.
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
        lost ??= failure instanceof Error ? failure : new Error(String(failure));
      });
      throw error;
    } finally {
      client.off("error", onError);
      client.release(lost);
    }
  }

  /** A dedicated connection for as long as the caller wants; its locks are released with it. */
  async connection(): Promise<PoolClient> {
    const client = await this.#pool.connect();
    // The statement under way reports a lost connection; without a listener the event would also end the program.
    client.on("error", () => undefined);
    return client;
  }

  /** Lets a role read and write the rows of these schemas besides the ledger's own. */
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
