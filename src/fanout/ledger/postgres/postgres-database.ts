import type { Pool, PoolClient, QueryResult } from "pg";
import { type DatabaseRow, execute, type Statement } from "./statement.ts";

/** The ledger's connections, and the two ways its statements run: alone, or together in a transaction. */
export class PostgresDatabase {
  #pool: Pool;

  constructor(pool: Pool) {
    this.#pool = pool;
  }

  run(statement: Statement, values?: Readonly<Record<string, unknown>>): Promise<QueryResult<DatabaseRow>> {
    return execute(this.#pool, statement, values);
  }

  async all(statement: Statement, values?: Readonly<Record<string, unknown>>): Promise<DatabaseRow[]> {
    return (await this.run(statement, values)).rows;
  }

  /** All of the task's statements count, or none does. */
  async transaction<T>(task: (client: PoolClient) => Promise<T>): Promise<T> {
    const client = await this.#pool.connect();
    try {
      await client.query("BEGIN");
      const value = await task(client);
      await client.query("COMMIT");
      return value;
    } catch (error) {
      await client.query("ROLLBACK").catch(() => undefined);
      throw error;
    } finally {
      client.release();
    }
  }

  close(): Promise<void> {
    return this.#pool.end();
  }
}
