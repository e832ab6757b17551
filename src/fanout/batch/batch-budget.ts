import { asBatched, NO_USAGE, scaleUsage, totalTokens } from "../../agent/token-usage.ts";
import { costInUsd, type Price } from "../cost/price-table.ts";
import type { JobCounts } from "../job.ts";

/** Safety factor: later rows may cost more than the average, and a batch cannot be stopped within a row. */
const RESERVE = 1.25;

/** Returns how many more rows can be submitted while `rowsOut` are at the provider, by the average usage of a row. */
export function affordableBatchRows(
  limits: { tokens?: number | undefined; usd?: number | undefined },
  price: Price | null,
  counts: JobCounts,
  rowsOut: number,
): number {
  const done = counts.completed + counts.failed;
  const mean = done === 0 ? NO_USAGE : asBatched(scaleUsage(counts.usage, RESERVE / done));
  const tokens = rowsWithin(limits.tokens, totalTokens(counts.usage), totalTokens(mean));
  const usd = price
    ? rowsWithin(limits.usd, costInUsd(price, counts.usage), costInUsd(price, mean))
    : Number.POSITIVE_INFINITY;
  return Math.floor(Math.min(tokens, usd)) - rowsOut;
}

function rowsWithin(limit: number | undefined, used: number, perRow: number): number {
  if (limit === undefined) return Number.POSITIVE_INFINITY;
  // The usage of a row is unknown, so a single row measures it.
  return perRow === 0 ? 1 : (limit - used) / perRow;
}
