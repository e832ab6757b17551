import { asBatched, NO_USAGE, type TokenUsage, totalTokens } from "../../agent/token-usage.ts";
import { costOf, type Price } from "../cost/price-table.ts";
import type { JobCounts } from "../job.ts";

/** Later rows may cost more than the average so far, and a batch cannot be stopped in the middle of a row. */
const RESERVE = 1.25;

/** How many more rows can be submitted while `rowsOut` are at the provider, by the average usage of a row so far. */
export function affordableBatchRows(
  limits: { tokens?: number | undefined; usd?: number | undefined },
  price: Price | null,
  counts: JobCounts,
  rowsOut: number,
): number {
  const done = counts.completed + counts.failed;
  const mean = done === 0 ? NO_USAGE : asBatched(scaled(counts.usage, RESERVE / done));
  const tokens = rowsWithin(limits.tokens, totalTokens(counts.usage), totalTokens(mean));
  const usd = price
    ? rowsWithin(limits.usd, costOf(price, counts.usage), costOf(price, mean))
    : Number.POSITIVE_INFINITY;
  return Math.floor(Math.min(tokens, usd)) - rowsOut;
}

function rowsWithin(limit: number | undefined, used: number, perRow: number): number {
  if (limit === undefined) return Number.POSITIVE_INFINITY;
  // The cost of a row is not known yet: one row measures it.
  return perRow === 0 ? 1 : (limit - used) / perRow;
}

function scaled(usage: TokenUsage, by: number): TokenUsage {
  return {
    inputTokens: usage.inputTokens * by,
    cachedInputTokens: usage.cachedInputTokens * by,
    outputTokens: usage.outputTokens * by,
    reasoningOutputTokens: usage.reasoningOutputTokens * by,
  };
}
