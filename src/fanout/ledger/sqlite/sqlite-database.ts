import { DatabaseSync, type SQLInputValue, type SQLOutputValue, type StatementSync } from "node:sqlite";
import { isObject } from "../../../agent/response-events.ts";
import { migrate } from "./sqlite-migrations.ts";

/** A statement's values by their names. */
type Values = Readonly<Record<string, SQLInputValue>>;

/** How long a statement waits for another process's (a `jobs cancel`) before it gives up. */
const BUSY_TIMEOUT_MS = 5_000;

/**
 * A ledger's file and the statements that were made for it. WAL with `synchronous = NORMAL`: what was committed survives
 * the death of the process at any instant; a power cut may take back the last moments, which then are asked again.
 */
export class SqliteDatabase {
  #db: DatabaseSync;
  #statements = new Map<string, StatementSync>();

  /**
   * `isNew`: the file is thrown away unless all of it is written, so it needs no journal, which would take as much of the
   * disk once more.
   */
  constructor(path: string, options: { isNew?: boolean } = {}) {
    this.#db = new DatabaseSync(path, { timeout: BUSY_TIMEOUT_MS });
    const journal = options.isNew ? "OFF" : "WAL";
    this.#db.exec(`PRAGMA journal_mode = ${journal}; PRAGMA synchronous = NORMAL`);
    migrate(this.#db);
  }

  /** Tells how many rows it changed. */
  run(sql: string, values: Values = {}): number {
    return Number(this.#statement(sql).run(values).changes);
  }

  /**
   * The first row of a statement, which is run to its end all the same: a change is committed only there, and the driver's
   * own `get` leaves it before and never says when the commit failed.
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
      // A full disk has ended it already.
      if (this.#db.isTransaction) this.#db.exec("ROLLBACK");
      throw error;
    }
  }

  /** For a transaction that waits for something between its statements; closing without a commit takes it back. */
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
 * The right to run a job is an open transaction on a file of its own: the system ends it with the process, however that
 * ends. Null: another process has it, and had it all the time that was waited.
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
