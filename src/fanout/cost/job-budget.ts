import { addUsage, NO_USAGE, type TokenUsage, totalTokens } from "../../agent/token-usage.ts";
import { costInUsd, formatUsdExact, type Price } from "./price-table.ts";

export interface BudgetLimits {
  tokens?: number | undefined;
  /** Limit in US dollars; requires a price. */
  usd?: number | undefined;
}

/** Usage of all attempts of a job, in all processes. */
export interface UsageTotals {
  used: TokenUsage;
  /** Number of ended attempts with any usage. */
  ended: number;
  /** Maximum of one attempt. */
  maxRowTokens: number;
  maxRowUsd: number;
}

/** The budget that the ledger enforces for all processes of a job. */
export interface SharedBudget extends BudgetLimits {
  /** Price of the model. */
  price?: Price | undefined;
}

/**
 * The usage of a job, and how many more rows it may start. A row starts only if the budget covers it and all rows in
 * flight, each estimated by the most expensive attempt so far; the last rows run one at a time. The budget is therefore
 * exceeded at most by the amount by which one row costs more than every row before it.
 */
export class JobBudget {
  #used: TokenUsage = NO_USAGE;
  #ended = 0;
  #quantities: BudgetedQuantity[] = [];

  constructor(limits: BudgetLimits, price: Price | null) {
    const { tokens, usd } = limits;
    if (tokens !== undefined) {
      this.#quantities.push({
        limit: tokens,
        measure: totalTokens,
        format: (count) => `${count} tokens`,
        maxOfAttempt: 0,
        readMax: (totals) => totals.maxRowTokens,
      });
    }
    if (usd !== undefined) {
      if (!price) throw new Error("a budget in dollars needs the price of the model");
      const measure = (usage: TokenUsage) => costInUsd(price, usage);
      this.#quantities.push({
        limit: usd,
        measure,
        format: formatUsdExact,
        maxOfAttempt: 0,
        readMax: (totals) => totals.maxRowUsd,
      });
    }
  }

  /** Adds the usage of an attempt that ended in this process. */
  spend(usage: TokenUsage): void {
    this.#used = addUsage(this.#used, usage);
    if (totalTokens(usage) > 0) this.#ended++;
    for (const quantity of this.#quantities)
      quantity.maxOfAttempt = Math.max(quantity.maxOfAttempt, quantity.measure(usage));
  }

  /** Sets the usage of the whole job, over all processes. */
  setUsed(usage: TokenUsage): void {
    this.#used = usage;
  }

  /** Replaces the local counts by the ledger's totals over all attempts. */
  setSpending(spending: UsageTotals): void {
    this.#used = spending.used;
    this.#ended = spending.ended;
    for (const quantity of this.#quantities) quantity.maxOfAttempt = quantity.readMax(spending);
  }

  /** Returns how many rows may start while `inFlight` rows are in flight; null without a budget. */
  affordableRows(inFlight: number): number | null {
    if (this.#quantities.length === 0) return null;
    if (this.#quantities.some((quantity) => quantity.measure(this.#used) >= quantity.limit)) return 0;
    // The first row measures the cost. Then concurrency doubles, so that a cheap first row does not start many
    // expensive ones.
    let maxRows = Math.max(1, 2 * this.#ended);
    for (const { limit, measure, maxOfAttempt } of this.#quantities) {
      if (maxOfAttempt === 0) continue;
      const left = (limit - measure(this.#used)) / maxOfAttempt;
      // Concurrent rows may all cost more than any row before; a single row may use the rest.
      maxRows = Math.min(maxRows, Math.max(Math.floor(left / RESERVE_FACTOR), Math.min(1, Math.floor(left))));
    }
    return maxRows - inFlight;
  }

  usedUpReason(): string {
    const texts = this.#quantities.map(
      ({ limit, measure, format }) =>
        `the budget of ${format(limit)} is used up (${withoutUnit(format(measure(this.#used)))} used)`,
    );
    return texts[this.#tightest()] ?? "";
  }

  /** Returns the index of the measure that allows the fewest rows. */
  #tightest(): number {
    const left = this.#quantities.map(
      ({ limit, measure, maxOfAttempt }) => (limit - measure(this.#used)) / (maxOfAttempt || limit),
    );
    return left.indexOf(Math.min(...left));
  }
}

/** Factor on the most expensive attempt that is reserved for each concurrent row. */
const RESERVE_FACTOR = 2;

/** One budgeted quantity: tokens or dollars. */
interface BudgetedQuantity {
  limit: number;
  measure(usage: TokenUsage): number;
  format(amount: number): string;
  /** Largest amount of one attempt so far. */
  maxOfAttempt: number;
  readMax(spending: UsageTotals): number;
}

/** Drops the unit: next to a budget in tokens, `6 tokens` becomes `6`. */
function withoutUnit(text: string): string {
  return text.replace(/ tokens$/, "");
}
