import { DatabaseSync, type SQLInputValue, type SQLOutputValue, type StatementSync } from "node:sqlite";
import { isObject } from "../../../agent/api/response-events.ts";
import { migrate } from "./sqlite-migrations.ts";

/** A statement's values by their names. */
type Values = Readonly<Record<string, SQLInputValue>>;

/** How long a statement waits for one of another process (a `jobs cancel`) before it gives up. */
const BUSY_TIMEOUT_MS = 5_000;

/** SQLite's usual pages would stay empty to a fifth with rows of a kilobyte, of which only whole ones fit. */
const PAGE_BYTES = 8192;

/**
 * A ledger's file and its prepared statements. WAL with `synchronous = NORMAL`: what was committed survives
 * the death of the process at any instant; a power cut may lose the last commits, whose rows are then asked again.
 */
export class SqliteDatabase {
  #db: DatabaseSync;
  #statements = new Map<string, StatementSync>();

  /**
   * `isNew`: the file is discarded unless it is written completely, so it needs no journal, which would double its use of the
   * disk.
   */
  constructor(path: string, options: { isNew?: boolean } = {}) {
    this.#db = new DatabaseSync(path, { timeout: BUSY_TIMEOUT_MS });
    const journal = options.isNew ? "OFF" : "WAL";
    if (options.isNew) this.#db.exec(`PRAGMA page_size = ${PAGE_BYTES}`);
    this.#db.exec(`PRAGMA journal_mode = ${journal}; PRAGMA synchronous = NORMAL`);
    migrate(this.#db);
  }

  /** Returns how many rows it changed. */
  run(sql: string, values: Values = {}): number {
    return Number(this.#statement(sql).run(values).changes);
  }

  /**
   * The first row of a statement, which still runs to its end: a change is committed only there, and the driver's
   * own `get` stops before and never reports a failed commit.
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

  /** For a transaction with asynchronous work between its statements; closing without a commit rolls it back. */
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
 * The right to run a job is an open transaction on a separate file: the system ends it with the process, however that
 * ends. Null: another process had it during the whole wait.
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

/** Another process holds the lock. */
const SQLITE_BUSY = 5;
