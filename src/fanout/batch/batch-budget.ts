import { asBatched, NO_USAGE, scaleUsage, totalTokens } from "../../agent/token-usage.ts";
import { costInUsd, type Price } from "../cost/price-table.ts";
import type { JobCounts } from "../job.ts";

/** Safety factor: later rows may cost more than the average, and a submitted batch does not stop at the limit. */
const RESERVE_FACTOR = 1.25;

/**
 * Returns how many more rows the budget allows while `rowsAtProvider` rows are in batches. Estimates by the average
 * usage of a row that called the model.
 */
export function affordableBatchRows(
  limits: { tokens?: number | undefined; usd?: number | undefined },
  price: Price | null,
  counts: JobCounts,
  rowsAtProvider: number,
): number {
  const { finishedWithUsage } = counts;
  const meanUsage =
    finishedWithUsage === 0 ? NO_USAGE : asBatched(scaleUsage(counts.usage, RESERVE_FACTOR / finishedWithUsage));
  const tokens = rowsWithin(limits.tokens, totalTokens(counts.usage), totalTokens(meanUsage));
  const usd = price
    ? rowsWithin(limits.usd, costInUsd(price, counts.usage), costInUsd(price, meanUsage))
    : Number.POSITIVE_INFINITY;
  return Math.floor(Math.min(tokens, usd)) - rowsAtProvider;
}

function rowsWithin(limit: number | undefined, used: number, perRow: number): number {
  if (limit === undefined) return Number.POSITIVE_INFINITY;
  // The usage of a row is still unknown: one row measures it.
  return perRow === 0 ? 1 : (limit - used) / perRow;
}
