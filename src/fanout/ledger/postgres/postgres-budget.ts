import type { PoolClient } from "pg";
import { addUsage } from "../../../agent/token-usage.ts";
import { JobBudget, type SharedBudget, type UsageTotals } from "../../cost/job-budget.ts";
import { decodeSpending } from "../record-codec.ts";
import type { PostgresDatabase } from "./postgres-database.ts";
import * as sql from "./postgres-statements.ts";
import { type DatabaseRow, execute } from "./statement.ts";

/** Number of newest attempts that are summed again each time, because they may commit out of id order. */
const RECENT_ATTEMPTS = 1_000;
/** Larger than any attempt id. */
const MAX_ID = Number.MAX_SAFE_INTEGER;

/**
 * The budget of a job with several processes. Rows are leased under one lock, so that each process counts the rows in
 * flight of all others. The budget is exceeded by at most one row, for any number of processes.
 */
export class PostgresBudget {
  #database: PostgresDatabase;
  #jobId: string;
  /** Totals of the attempts up to `lastId`, which no longer change. */
  #finalTotals = { lastId: 0, spending: decodeSpending(undefined) };

  constructor(database: PostgresDatabase, jobId: string) {
    this.#database = database;
    this.#jobId = jobId;
  }

  spending(budget: SharedBudget): Promise<UsageTotals> {
    return this.#database.transaction((client) => this.#spending(client, budget));
  }

  /** Returns how many rows to request from the engine: at least one, because a dead process may have left a row. */
  async deliveryLimit(budget: SharedBudget, limit: number): Promise<number> {
    const affordable = await this.#database.transaction((client) => this.#affordableRows(client, budget, []));
    return Math.max(1, Math.min(limit, affordable ?? limit));
  }

  /** Leases as many of these rows as the budget allows, in order. */
  lease(
    budget: SharedBudget,
    values: { itemIds: readonly string[]; tokens: readonly string[]; now: number },
  ): Promise<DatabaseRow[]> {
    return this.#database.transaction(async (client) => {
      await execute(client, sql.LOCK_KEY, { key: `budget of ${this.#jobId}` });
      const affordable = await this.#affordableRows(client, budget, values.itemIds);
      const count = Math.max(0, affordable ?? values.itemIds.length);
      const { rows } = await execute(client, sql.LEASE_ITEMS, {
        jobId: this.#jobId,
        itemIds: values.itemIds.slice(0, count),
        tokens: values.tokens.slice(0, count),
        now: values.now,
      });
      return rows;
    });
  }

  /** Returns how many rows may start in addition to those of other processes; null without a limit. */
  async #affordableRows(
    client: PoolClient,
    budget: SharedBudget,
    exceptItemIds: readonly string[],
  ): Promise<number | null> {
    const jobBudget = new JobBudget(budget, budget.price ?? null);
    jobBudget.setSpending(await this.#spending(client, budget));
    const { rows } = await execute(client, sql.COUNT_RUNNING, { jobId: this.#jobId, exceptItemIds });
    return jobBudget.affordableRows(Number(rows[0]?.n ?? 0));
  }

  async #spending(client: PoolClient, budget: SharedBudget): Promise<UsageTotals> {
    const { lastId, spending } = this.#finalTotals;
    const [recent, newestId] = await this.#sum(client, budget, lastId, MAX_ID);
    const finalId = newestId - RECENT_ATTEMPTS;
    if (finalId > lastId + RECENT_ATTEMPTS) {
      const [more] = await this.#sum(client, budget, lastId, finalId);
      this.#finalTotals = { lastId: finalId, spending: addTotals(spending, more) };
    }
    return addTotals(spending, recent);
  }

  async #sum(
    client: PoolClient,
    { price }: SharedBudget,
    afterId: number,
    upToId: number,
  ): Promise<[UsageTotals, number]> {
    const { rows } = await execute(client, sql.SUM_ATTEMPTS, {
      jobId: this.#jobId,
      afterId,
      upToId,
      input: price?.input ?? 0,
      cachedInput: price?.cachedInput ?? 0,
      output: price?.output ?? 0,
    });
    return [decodeSpending(rows[0]), Number(rows[0]?.newest_id ?? 0)];
  }
}

function addTotals(a: UsageTotals, b: UsageTotals): UsageTotals {
  return {
    used: addUsage(a.used, b.used),
    ended: a.ended + b.ended,
    maxRowTokens: Math.max(a.maxRowTokens, b.maxRowTokens),
    maxRowUsd: Math.max(a.maxRowUsd, b.maxRowUsd),
  };
}
