import { addUsage, NO_USAGE, type TokenUsage, totalTokens } from "../../agent/usage.ts";
import { costOf, moneyText, type Price } from "./price-table.ts";

export interface BudgetLimits {
  tokens?: number | undefined;
  /** Needs a price. */
  usd?: number | undefined;
}

/** What all attempts at a job's rows have cost, whoever made them. */
export interface Spending {
  used: TokenUsage;
  /** Attempts that cost anything. */
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
 * What a job has used, and how many more rows it may begin. A row is begun only when enough is left for it and for each row
 * under way, by the dearest attempt so far; the last ones go one by one. So the budget is passed by what one row costs more
 * than all before it, not by a whole wave.
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

  /** An attempt of this process has come to its end. */
  spend(usage: TokenUsage): void {
    this.#used = addUsage(this.#used, usage);
    if (totalTokens(usage) > 0) this.#ended++;
    for (const measure of this.#measures) measure.dearest = Math.max(measure.dearest, measure.of(usage));
  }

  /** All that the job has used, whoever used it. */
  setUsed(usage: TokenUsage): void {
    this.#used = usage;
  }

  /** What the ledger knows of all attempts, in place of what was counted here. */
  setSpending(spending: Spending): void {
    this.#used = spending.used;
    this.#ended = spending.ended;
    for (const measure of this.#measures) measure.dearest = measure.dearestOf(spending);
  }

  /** How many rows may be begun while so many are under way. */
  affordableRows(underWay: number): number {
    if (this.#measures.length === 0) return Number.POSITIVE_INFINITY;
    if (this.#measures.some((measure) => measure.of(this.#used) >= measure.limit)) return 0;
    // The first row tells what a row costs; then the lanes double, so that a cheap first row opens no flood.
    let most = Math.max(1, 2 * this.#ended);
    for (const { limit, of, dearest } of this.#measures) {
      if (dearest === 0) continue;
      const left = (limit - of(this.#used)) / dearest;
      // Rows side by side may all turn out dearer than any before; one alone may take what is left.
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

  /** The measure that leaves the fewest rows. */
  #scarcest(): number {
    const left = this.#measures.map(
      ({ limit, of, dearest }) => (limit - of(this.#used)) / (dearest || limit),
    );
    return left.indexOf(Math.min(...left));
  }
}

/** How many times the dearest attempt is put aside for each of several rows at once. */
const RESERVE = 2;

/** One thing that is counted: tokens, or dollars. */
interface Measure {
  limit: number;
  of(usage: TokenUsage): number;
  text(amount: number): string;
  /** The most that one attempt has cost. */
  dearest: number;
  dearestOf(spending: Spending): number;
}

/** `6 tokens` of a budget that was told in tokens is just `6`. */
function usedText(text: string): string {
  return text.replace(/ tokens$/, "");
}
