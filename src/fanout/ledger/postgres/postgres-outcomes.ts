import { rmSync } from "node:fs";
import type { PoolClient } from "pg";
import type { Clock } from "../../../async/clock.ts";
import type { Report } from "../job-ledger.ts";
import { type LeasedAttempt, OutcomeSpool, type SpooledOutcome } from "../outcome-spool.ts";
import { usageValues } from "../record-codec.ts";
import { isLostConnection } from "./connection-loss.ts";
import { changeOnce, type PostgresDatabase } from "./postgres-database.ts";
import { COMPLETE_ITEM, FAIL_ITEM, READ_FINISHED_BY } from "./postgres-statements.ts";
import { type DatabaseRow, type Statement, storable } from "./statement.ts";

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
  async settle(settlement: SpooledOutcome): Promise<DatabaseRow | undefined> {
    const { database, clock } = this.#options;
    let isSpooled = false;
    const keep = () => {
      if (!isSpooled) this.spool.add(settlement);
      isSpooled = true;
    };
    const isLate = clock.after(SPOOL_AFTER_MS, keep, { keepAlive: false });
    try {
      const row = await database.outage.run((isRepeat) =>
        this.#apply(settlement, isRepeat).catch((error: unknown) => {
          if (isLostConnection(error)) keep();
          throw error;
        }),
      );
      if (isSpooled) this.spool.remove();
      return row;
    } finally {
      isLate.cancel();
    }
  }

  /**
   * Applies the outcomes that processes of this machine could not store before they ended. A running process that holds
   * such an outcome finds its row finished by its own attempt.
   */
  async applySpooled(outputPath: string, options?: { dead?: boolean }): Promise<void> {
    for (const { file, settlements } of this.spool.pending(outputPath, options)) {
      for (const settlement of settlements) {
        await this.#options.database.outage.run(() => this.#apply(settlement, false));
      }
      rmSync(file, { force: true });
    }
  }

  #apply(settlement: SpooledOutcome, isRepeat: boolean): Promise<DatabaseRow | undefined> {
    const { database, cancelJob } = this.#options;
    const { change, values } = this.#change(settlement);
    if (settlement.type === "failed" || !settlement.report.stop) {
      return database.tryChangeOnce(change, READ_FINISHED_BY, values, isRepeat);
    }
    return database.tryTransaction(async (client) => {
      const settled = await changeOnce(client, change, READ_FINISHED_BY, values, isRepeat);
      if (settled) await cancelJob(client);
      return settled;
    });
  }

  #change(settlement: SpooledOutcome): { change: Statement; values: Readonly<Record<string, unknown>> } {
    if (settlement.type === "reported") {
      const { report } = settlement;
      const values = { ...this.#leaseGuard(settlement.attempt, report), result: report.result };
      return { change: COMPLETE_ITEM, values };
    }
    const { failure } = settlement;
    const message = storable(failure.message);
    const values = {
      ...this.#leaseGuard(settlement.attempt, failure),
      errorClass: failure.errorClass,
      message,
    };
    return { change: FAIL_ITEM, values };
  }

  /** Returns the parameters that identify an attempt and its end. */
  #leaseGuard({ rowIndex, token }: LeasedAttempt, { usage, transcript }: Spent): Record<string, unknown> {
    return {
      jobId: this.#options.jobId,
      rowIndex,
      token,
      now: this.#options.clock.now(),
      transcript: transcript === undefined ? null : storable(transcript),
      ...usageValues(usage),
    };
  }
}

type Spent = Pick<Report, "usage" | "transcript">;
