const COLUMNS = [
  "input",
  "cached_input",
  "output",
  "reasoning_output",
  "batch_input",
  "batch_cached_input",
  "batch_output",
];

/** Columns with the sums of usage, under the names of the single columns. */
export const SUM_USAGE_SQL = COLUMNS.map((name) => `SUM(${name}_tokens) AS ${name}_tokens`).join(", ");

/** Column with the number of rows that have any usage. */
export const COUNT_WITH_USAGE_SQL = "COUNT(*) FILTER (WHERE input_tokens + output_tokens > 0) AS with_usage";

/** SQL that ends an attempt: clears its token and adds its usage. Parameters: `usageValues`. */
export const ADD_USAGE_SQL = `attempt_token = NULL, input_tokens = input_tokens + :inputTokens,
    cached_input_tokens = cached_input_tokens + :cachedInputTokens, output_tokens = output_tokens + :outputTokens,
    reasoning_output_tokens = reasoning_output_tokens + :reasoningOutputTokens,
    batch_input_tokens = batch_input_tokens + :batchInputTokens,
    batch_cached_input_tokens = batch_cached_input_tokens + :batchCachedInputTokens,
    batch_output_tokens = batch_output_tokens + :batchOutputTokens`;
