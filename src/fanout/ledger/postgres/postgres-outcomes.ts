import { rmSync } from "node:fs";
import type { PoolClient } from "pg";
import type { Clock } from "../../../async/clock.ts";
import type { Report } from "../job-ledger.ts";
import { type KeptAttempt, type KeptSettlement, KeptSettlements } from "../outcome-spool.ts";
import { usageValues } from "../record-codec.ts";
import { isLostConnection } from "./connection-loss.ts";
import { changeOnce, type PostgresDatabase } from "./postgres-database.ts";
import { COMPLETE_ITEM, FAIL_ITEM, READ_SETTLED_BY } from "./postgres-statements.ts";
import { type DatabaseRow, type Statement, storable } from "./statement.ts";

export interface PostgresSettlementsOptions {
  database: PostgresDatabase;
  jobId: string;
  clock: Clock;
  /** Cancels the job inside a transaction, because an agent's report requests it. */
  cancelJob(client: PoolClient): Promise<void>;
  tell(message: string): void;
}

/** A database that has not stored an outcome after this long may be away, although no connection has been lost yet. */
const KEEP_AFTER_MS = 1_000;

/** Settles the rows of a job in a database. While that is away, the paid outcomes are kept in a file of this machine too. */
export class PostgresSettlements {
  /** Path of the job's output; may name a folder that this machine does not have. */
  outputPath = "";
  #options: PostgresSettlementsOptions;
  #kept: KeptSettlements;

  constructor(options: PostgresSettlementsOptions) {
    this.#options = options;
    const { jobId, tell } = options;
    this.#kept = new KeptSettlements({ jobId, outputPath: () => this.outputPath, tell });
  }

  /** The row as it is then; undefined when the attempt no longer holds it. */
  async settle(settlement: KeptSettlement): Promise<DatabaseRow | undefined> {
    const { database, clock } = this.#options;
    let isKept = false;
    const keep = () => {
      if (!isKept) this.#kept.keep(settlement);
      isKept = true;
    };
    const isLate = clock.after(KEEP_AFTER_MS, keep, { keepAlive: false });
    try {
      const row = await database.outage.ride((isRepeat) =>
        this.#apply(settlement, isRepeat).catch((error: unknown) => {
          if (isLostConnection(error)) keep();
          throw error;
        }),
      );
      if (isKept) this.#kept.settled();
      return row;
    } finally {
      isLate.cancel();
    }
  }

  /**
   * Settles the outcomes that processes of this machine could not store before they ended. One that still runs and
   * holds such an outcome itself finds its row settled by its own attempt.
   */
  async settleLeft(options?: { dead?: boolean }): Promise<void> {
    for (const { file, settlements } of this.#kept.left(options)) {
      for (const settlement of settlements) {
        await this.#options.database.outage.ride(() => this.#apply(settlement, false));
      }
      rmSync(file, { force: true });
    }
  }

  #apply(settlement: KeptSettlement, isRepeat: boolean): Promise<DatabaseRow | undefined> {
    const { database, cancelJob } = this.#options;
    const { change, values } = this.#change(settlement);
    if (settlement.type === "failed" || !settlement.report.stop) {
      return database.tryChangeOnce(change, READ_SETTLED_BY, values, isRepeat);
    }
    return database.tryTransaction(async (client) => {
      const settled = await changeOnce(client, change, READ_SETTLED_BY, values, isRepeat);
      if (settled) await cancelJob(client);
      return settled;
    });
  }

  #change(settlement: KeptSettlement): { change: Statement; values: Readonly<Record<string, unknown>> } {
    if (settlement.type === "reported") {
      const { report } = settlement;
      const values = { ...this.#held(settlement.attempt, report), result: report.result };
      return { change: COMPLETE_ITEM, values };
    }
    const { failure } = settlement;
    const message = storable(failure.message);
    const values = { ...this.#held(settlement.attempt, failure), errorClass: failure.errorClass, message };
    return { change: FAIL_ITEM, values };
  }

  /** The values that identify an attempt, and how it ended. */
  #held({ rowIndex, token }: KeptAttempt, { usage, transcript }: Spent): Record<string, unknown> {
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
