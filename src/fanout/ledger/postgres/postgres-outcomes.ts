import { rmSync } from "node:fs";
import type { PoolClient } from "pg";
import type { Clock } from "../../../async/clock.ts";
import { type LeasedAttempt, OutcomeSpool, type SpooledOutcome } from "../outcome-spool.ts";
import { type AttemptEnd, usageValues } from "../record-codec.ts";
import { isLostConnection } from "./connection-loss.ts";
import { changeOnce, type PostgresDatabase } from "./postgres-database.ts";
import * as sql from "./postgres-statements.ts";
import { type DatabaseRow, storable } from "./statement.ts";

export interface PostgresOutcomesOptions {
  database: PostgresDatabase;
  jobId: string;
  clock: Clock;
  /** Cancels the job within a transaction, because an agent's report requests it. */
  cancelJob(client: PoolClient): Promise<void>;
  report(message: string): void;
}

/**
 * A database that does not store an outcome within this time may be unavailable, even if no connection has been lost.
 */
const SPOOL_AFTER_MS = 1_000;

/** Finishes rows of a job in a database. During an outage, paid outcomes are also spooled to a local file. */
export class PostgresOutcomes {
  readonly #options: PostgresOutcomesOptions;
  readonly spool: OutcomeSpool;

  constructor(options: PostgresOutcomesOptions) {
    this.#options = options;
    const { jobId, report } = options;
    this.spool = new OutcomeSpool({ jobId, report });
  }

  /** Finishes a row. Returns the row, or undefined if the attempt no longer holds it. */
  async store(outcome: SpooledOutcome): Promise<DatabaseRow | undefined> {
    const { database, clock } = this.#options;
    let isSpooled = false;
    const spoolOnce = () => {
      if (!isSpooled) this.spool.add(outcome);
      isSpooled = true;
    };
    const spoolTimer = clock.after(SPOOL_AFTER_MS, spoolOnce, { keepAlive: false });
    try {
      const row = await database.outage.run((isRepeat) =>
        this.#apply(outcome, isRepeat).catch((error: unknown) => {
          if (isLostConnection(error)) spoolOnce();
          throw error;
        }),
      );
      if (isSpooled) this.spool.remove();
      return row;
    } finally {
      spoolTimer.cancel();
    }
  }

  /**
   * Applies the outcomes that processes of this host spooled. If such a process still runs, it then finds its row
   * finished by its own attempt.
   */
  async applySpooled(outputPath: string, options?: { dead?: boolean }): Promise<void> {
    for (const { file, outcomes } of this.spool.pending(outputPath, options)) {
      for (const outcome of outcomes) {
        await this.#options.database.outage.run(() => this.#apply(outcome, false));
      }
      rmSync(file, { force: true });
    }
  }

  #apply(outcome: SpooledOutcome, isRepeat: boolean): Promise<DatabaseRow | undefined> {
    const { database, cancelJob } = this.#options;
    const { attempt } = outcome;
    if (outcome.type === "failed") {
      const values = this.endValues(attempt, outcome.failure);
      return database.tryChangeOnce(sql.FAIL_ITEM, sql.READ_FINISHED_BY, values, isRepeat);
    }
    const { report } = outcome;
    const values = { ...this.endValues(attempt, report), result: report.result };
    if (!report.stop) {
      return database.tryChangeOnce(sql.COMPLETE_ITEM, sql.READ_FINISHED_BY, values, isRepeat);
    }
    return database.tryTransaction(async (client) => {
      const finished = await changeOnce(client, sql.COMPLETE_ITEM, sql.READ_FINISHED_BY, values, isRepeat);
      if (finished) await cancelJob(client);
      return finished;
    });
  }

  /** Returns the parameters that identify an attempt and describe its end. */
  endValues({ rowIndex, token }: LeasedAttempt, end: AttemptEnd): Record<string, unknown> {
    const { usage, errorClass, message, transcript } = end;
    return {
      jobId: this.#options.jobId,
      rowIndex,
      token,
      now: this.#options.clock.now(),
      errorClass,
      message: message === undefined ? undefined : storable(message),
      transcript: transcript === undefined ? null : storable(transcript),
      ...usageValues(usage),
    };
  }
}
