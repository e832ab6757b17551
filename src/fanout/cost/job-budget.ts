import { addUsage, NO_USAGE, type TokenUsage, totalTokens } from "../../agent/token-usage.ts";
import { costOf, moneyText, type Price } from "./price-table.ts";

export interface BudgetLimits {
  tokens?: number | undefined;
  /** Limit in US dollars; needs a price. */
  usd?: number | undefined;
}

/** What all attempts at a job's rows have cost, in all processes. */
export interface Spending {
  used: TokenUsage;
  /** Number of ended attempts that cost anything. */
  ended: number;
  /** The most that one attempt has cost. */
  dearestTokens: number;
  dearestUsd: number;
}

/** A budget as the ledger keeps it for all processes that work on a job. */
export interface FleetBudget extends BudgetLimits {
  /** What the job's model costs. */
  price?: Price | undefined;
}

/**
 * What a job has used, and how many more rows it may begin. A row begins only when enough is left for it and for each row
 * under way, estimated by the dearest attempt so far; the last rows run one by one. So the budget is exceeded at most by what
 * one row costs more than all before it, not by a whole wave of rows.
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
        dearestOf: (all) => all.dearestTokens,
      });
    }
    if (usd !== undefined) {
      if (!price) throw new Error("a budget in dollars needs the price of the model");
      const of = (usage: TokenUsage) => costOf(price, usage);
      this.#measures.push({
        limit: usd,
        of,
        text: moneyText,
        dearest: 0,
        dearestOf: (all) => all.dearestUsd,
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

  /** Replaces what was counted here by the ledger's sum over all attempts. */
  setSpending(spending: Spending): void {
    this.#used = spending.used;
    this.#ended = spending.ended;
    for (const measure of this.#measures) measure.dearest = measure.dearestOf(spending);
  }

  /** How many rows may begin while `underWay` rows are under way. */
  affordableRows(underWay: number): number {
    if (this.#measures.length === 0) return Number.POSITIVE_INFINITY;
    if (this.#measures.some((measure) => measure.of(this.#used) >= measure.limit)) return 0;
    // The first row measures the cost; then the number of rows at once doubles, so that a cheap first row starts no flood.
    let most = Math.max(1, 2 * this.#ended);
    for (const { limit, of, dearest } of this.#measures) {
      if (dearest === 0) continue;
      const left = (limit - of(this.#used)) / dearest;
      // Concurrent rows may all cost more than any before; a single row may use what is left.
      most = Math.min(most, Math.max(Math.floor(left / RESERVE), Math.min(1, Math.floor(left))));
    }
    return most - underWay;
  }

  usedUpReason(): string {
    const texts = this.#measures.map(
      ({ limit, of, text }) =>
        `the budget of ${text(limit)} is used up (${usedText(text(of(this.#used)))} used)`,
    );
    return texts[this.#scarcest()] ?? "";
  }

  /** Index of the measure that leaves the fewest rows. */
  #scarcest(): number {
    const left = this.#measures.map(
      ({ limit, of, dearest }) => (limit - of(this.#used)) / (dearest || limit),
    );
    return left.indexOf(Math.min(...left));
  }
}

/** How many times the cost of the dearest attempt is reserved for each of several concurrent rows. */
const RESERVE = 2;

/** One budgeted quantity: tokens or dollars. */
interface Measure {
  limit: number;
  of(usage: TokenUsage): number;
  text(amount: number): string;
  /** The most that one attempt has cost. */
  dearest: number;
  dearestOf(spending: Spending): number;
}

/** Drops the unit: beside a budget in tokens, `6 tokens` becomes `6`. */
function usedText(text: string): string {
  return text.replace(/ tokens$/, "");
}
