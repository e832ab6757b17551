import { DatabaseSync, type SQLInputValue, type SQLOutputValue, type StatementSync } from "node:sqlite";
import { isObject } from "../../../base/type-guards.ts";
import { migrate } from "./sqlite-migrations.ts";

/** Named parameters of a statement. */
type Values = Readonly<Record<string, SQLInputValue>>;

/** Maximum wait for a statement of another process, such as `jobs cancel`. */
const BUSY_TIMEOUT_MS = 5_000;

/** Page size. With rows of a kilobyte, a fifth of each default page would stay empty, because only whole rows fit. */
const PAGE_BYTES = 8192;

/**
 * The file of a ledger and its prepared statements. WAL with `synchronous = NORMAL`: commits survive the death of the
 * process at any time. A power failure may lose the last commits, whose rows are then executed again.
 */
export class SqliteDatabase {
  #db: DatabaseSync;
  #statements = new Map<string, StatementSync>();

  /**
   * `isNew`: the file is discarded unless it is written completely. It therefore needs no journal, which would double
   * its disk usage.
   */
  constructor(path: string, options: { isNew?: boolean } = {}) {
    this.#db = new DatabaseSync(path, { timeout: BUSY_TIMEOUT_MS });
    const journal = options.isNew ? "OFF" : "WAL";
    if (options.isNew) this.#db.exec(`PRAGMA page_size = ${PAGE_BYTES}`);
    this.#db.exec(`PRAGMA journal_mode = ${journal}; PRAGMA synchronous = NORMAL`);
    migrate(this.#db);
  }

  /** Returns the number of changed rows. */
  run(sql: string, values: Values = {}): number {
    return Number(this.#statement(sql).run(values).changes);
  }

  /**
   * Runs a statement to its end and returns its first row. SQLite commits a change only at the end; the driver's own
   * `get` stops earlier and never reports a failed commit.
   */
  get(sql: string, values: Values = {}): Record<string, SQLOutputValue> | undefined {
    return this.all(sql, values)[0];
  }

  all(sql: string, values: Values = {}): Record<string, SQLOutputValue>[] {
    return this.#statement(sql).all(values);
  }

  transaction<T>(task: () => T): T {
    this.begin();
    try {
      const value = task();
      this.commit();
      return value;
    } catch (error) {
      // A full disk has already ended the transaction.
      if (this.#db.isTransaction) this.#db.exec("ROLLBACK");
      throw error;
    }
  }

  /** Begins a transaction with asynchronous work between its statements. `close` without `commit` rolls it back. */
  begin(): void {
    this.#db.exec("BEGIN IMMEDIATE");
  }

  commit(): void {
    this.#db.exec("COMMIT");
  }

  close(): void {
    if (this.#db.isOpen) this.#db.close();
  }

  #statement(sql: string): StatementSync {
    let statement = this.#statements.get(sql);
    if (!statement) {
      statement = this.#db.prepare(sql);
      this.#statements.set(sql, statement);
    }
    return statement;
  }
}

/**
 * Acquires a lock, such as the right to run a job: an open transaction on a separate file, which the system ends with
 * the process. Returns null if another process held the lock during the whole wait.
 */
export function takeLock(path: string, waitMs = 0): DatabaseSync | null {
  const lock = new DatabaseSync(path, { timeout: waitMs });
  try {
    lock.exec("BEGIN EXCLUSIVE");
    return lock;
  } catch (error) {
    lock.close();
    if (isObject(error) && error.errcode === SQLITE_BUSY) return null;
    throw error;
  }
}

/** SQLite result code: another process holds the lock. */
const SQLITE_BUSY = 5;
