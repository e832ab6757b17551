import type { PoolClient } from "pg";
import { addUsage } from "../../../agent/token-usage.ts";
import { type FleetBudget, JobBudget, type Spending } from "../../cost/job-budget.ts";
import { decodeSpending } from "../record-codec.ts";
import type { PostgresDatabase } from "./postgres-database.ts";
import { CLAIM_ITEMS, COUNT_RUNNING, LOCK_KEY, SUM_ATTEMPTS } from "./postgres-statements.ts";
import { type DatabaseRow, execute } from "./statement.ts";

/** The newest attempts may commit out of the order of their ids, so this many are summed up again each time. */
const UNSETTLED_ATTEMPTS = 1_000;
/** No attempt has a higher id than this. */
const LAST_ID = Number.MAX_SAFE_INTEGER;

/**
 * The budget of a job that several processes work on. Rows are claimed under one lock, so that each process counts
 * what all others have under way: the budget is exceeded by no more than one row, however many processes there are.
 */
export class PostgresBudget {
  #database: PostgresDatabase;
  #jobId: string;
  /** The sum of the attempts up to this id, which no longer changes. */
  #settled = { lastId: 0, spending: decodeSpending(undefined) };

  constructor(database: PostgresDatabase, jobId: string) {
    this.#database = database;
    this.#jobId = jobId;
  }

  spending(budget: FleetBudget): Promise<Spending> {
    return this.#database.outage.ride(async () => {
      const client = await this.#database.connection();
      try {
        return await this.#spending(client, budget);
      } finally {
        client.release();
      }
    });
  }

  /** How many rows to request from the engine; at least one, because it may be a row that a dead process left. */
  async worthTaking(budget: FleetBudget, limit: number): Promise<number> {
    const room = await this.#database.transaction((client) => this.#room(client, budget, []));
    return Math.max(1, Math.min(limit, room));
  }

  /** Claims as many of these rows as the budget allows, in their order. */
  claim(
    budget: FleetBudget,
    values: { itemIds: readonly string[]; tokens: readonly string[]; now: number },
  ): Promise<DatabaseRow[]> {
    return this.#database.transaction(async (client) => {
      await execute(client, LOCK_KEY, { key: `budget of ${this.#jobId}` });
      const room = Math.max(0, await this.#room(client, budget, values.itemIds));
      const { rows } = await execute(client, CLAIM_ITEMS, {
        jobId: this.#jobId,
        itemIds: values.itemIds.slice(0, room),
        tokens: values.tokens.slice(0, room),
        now: values.now,
      });
      return rows;
    });
  }

  /** How many rows may begin besides those that other processes work on. */
  async #room(client: PoolClient, budget: FleetBudget, exceptItemIds: readonly string[]): Promise<number> {
    const jobBudget = new JobBudget(budget, budget.price ?? null);
    jobBudget.setSpending(await this.#spending(client, budget));
    const { rows } = await execute(client, COUNT_RUNNING, { jobId: this.#jobId, exceptItemIds });
    return jobBudget.affordableRows(Number(rows[0]?.n ?? 0));
  }

  async #spending(client: PoolClient, budget: FleetBudget): Promise<Spending> {
    const { lastId, spending } = this.#settled;
    const [recent, newestId] = await this.#sum(client, budget, lastId, LAST_ID);
    const settledId = newestId - UNSETTLED_ATTEMPTS;
    if (settledId > lastId + UNSETTLED_ATTEMPTS) {
      const [more] = await this.#sum(client, budget, lastId, settledId);
      this.#settled = { lastId: settledId, spending: added(spending, more) };
    }
    return added(spending, recent);
  }

  async #sum(
    client: PoolClient,
    { price }: FleetBudget,
    afterId: number,
    upToId: number,
  ): Promise<[Spending, number]> {
    const { rows } = await execute(client, SUM_ATTEMPTS, {
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

function added(a: Spending, b: Spending): Spending {
  return {
    used: addUsage(a.used, b.used),
    ended: a.ended + b.ended,
    dearestTokens: Math.max(a.dearestTokens, b.dearestTokens),
    dearestUsd: Math.max(a.dearestUsd, b.dearestUsd),
  };
}
