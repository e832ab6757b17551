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
 * exceeded at most by the amount by which one row costs more than all before it.
 */
export class JobBudget {
  #used: TokenUsage = NO_USAGE;
  #ended = 0;
  #measures: Measure[] = [];

  constructor(limits: BudgetLimits, price: Price | null) {
    const { tokens, usd } = limits;
    if (tokens !== undefined) {
      this.#measures.push({
        limit: tokens,
        of: totalTokens,
        text: (n) => `${n} tokens`,
        dearest: 0,
        dearestOf: (all) => all.maxRowTokens,
      });
    }
    if (usd !== undefined) {
      if (!price) throw new Error("a budget in dollars needs the price of the model");
      const of = (usage: TokenUsage) => costInUsd(price, usage);
      this.#measures.push({
        limit: usd,
        of,
        text: formatUsdExact,
        dearest: 0,
        dearestOf: (all) => all.maxRowUsd,
      });
    }
  }

  /** Adds the usage of an attempt that ended in this process. */
  spend(usage: TokenUsage): void {
    this.#used = addUsage(this.#used, usage);
    if (totalTokens(usage) > 0) this.#ended++;
    for (const measure of this.#measures) measure.dearest = Math.max(measure.dearest, measure.of(usage));
  }

  /** Sets the usage of the whole job, over all processes. */
  setUsed(usage: TokenUsage): void {
    this.#used = usage;
  }

  /** Replaces the local counts by the ledger's totals over all attempts. */
  setSpending(spending: UsageTotals): void {
    this.#used = spending.used;
    this.#ended = spending.ended;
    for (const measure of this.#measures) measure.dearest = measure.dearestOf(spending);
  }

  /** Returns how many rows may start while `inFlight` rows are in flight. */
  affordableRows(inFlight: number): number {
    if (this.#measures.length === 0) return Number.POSITIVE_INFINITY;
    if (this.#measures.some((measure) => measure.of(this.#used) >= measure.limit)) return 0;
    // The first row measures the cost. Then concurrency doubles, so that a cheap first row does not start many
    // expensive ones.
    let most = Math.max(1, 2 * this.#ended);
    for (const { limit, of, dearest } of this.#measures) {
      if (dearest === 0) continue;
      const left = (limit - of(this.#used)) / dearest;
      // Concurrent rows may all cost more than any row before; a single row may use the rest.
      most = Math.min(most, Math.max(Math.floor(left / RESERVE), Math.min(1, Math.floor(left))));
    }
    return most - inFlight;
  }

  usedUpReason(): string {
    const texts = this.#measures.map(
      ({ limit, of, text }) => `the budget of ${text(limit)} is used up (${usedText(text(of(this.#used)))} used)`,
    );
    return texts[this.#tightest()] ?? "";
  }

  /** Returns the index of the measure that allows the fewest rows. */
  #tightest(): number {
    const left = this.#measures.map(({ limit, of, dearest }) => (limit - of(this.#used)) / (dearest || limit));
    return left.indexOf(Math.min(...left));
  }
}

/** Factor on the most expensive attempt that is reserved for each concurrent row. */
const RESERVE = 2;

/** One budgeted quantity: tokens or dollars. */
interface Measure {
  limit: number;
  of(usage: TokenUsage): number;
  text(amount: number): string;
  /** Maximum of one attempt. */
  dearest: number;
  dearestOf(spending: UsageTotals): number;
}

/** Drops the unit: next to a budget in tokens, `6 tokens` becomes `6`. */
function usedText(text: string): string {
  return text.replace(/ tokens$/, "");
}
