/**
 * Token counts of a model call, attempt or job. `inputTokens` includes cached tokens, `outputTokens` includes reasoning
 * tokens.
 */
export interface TokenUsage {
  inputTokens: number;
  cachedInputTokens: number;
  outputTokens: number;
  reasoningOutputTokens: number;
  /** Tokens of provider batches, which cost less; absent: none. */
  batched?: BatchedTokens | undefined;
}

export interface BatchedTokens {
  inputTokens: number;
  cachedInputTokens: number;
  outputTokens: number;
}

export const NO_USAGE: TokenUsage = {
  inputTokens: 0,
  cachedInputTokens: 0,
  outputTokens: 0,
  reasoningOutputTokens: 0,
};

/** Approximate characters of a token in English text; accurate enough for rate limits and estimates. */
export const CHARS_PER_TOKEN = 4;

export function addUsage(a: TokenUsage, b: TokenUsage): TokenUsage {
  const sum = combine(a, b, (x, y) => x + y);
  if (a.batched || b.batched) sum.batched = addBatched(a.batched, b.batched);
  return sum;
}

/** Combines the counts of two usages, without their batched counts. */
function combine(a: TokenUsage, b: TokenUsage, operation: (x: number, y: number) => number): TokenUsage {
  return {
    inputTokens: operation(a.inputTokens, b.inputTokens),
    cachedInputTokens: operation(a.cachedInputTokens, b.cachedInputTokens),
    outputTokens: operation(a.outputTokens, b.outputTokens),
    reasoningOutputTokens: operation(a.reasoningOutputTokens, b.reasoningOutputTokens),
  };
}

/** Marks the whole usage as batched. */
export function asBatched(usage: TokenUsage): TokenUsage {
  const { inputTokens, cachedInputTokens, outputTokens } = usage;
  return { ...usage, batched: { inputTokens, cachedInputTokens, outputTokens } };
}

function addBatched(a: BatchedTokens = NO_USAGE, b: BatchedTokens = NO_USAGE): BatchedTokens {
  return {
    inputTokens: a.inputTokens + b.inputTokens,
    cachedInputTokens: a.cachedInputTokens + b.cachedInputTokens,
    outputTokens: a.outputTokens + b.outputTokens,
  };
}

/** Returns the usage between two totals. */
export function subtractUsage(after: TokenUsage, before: TokenUsage): TokenUsage {
  return combine(after, before, (x, y) => x - y);
}

export function scaleUsage(usage: TokenUsage, factor: number): TokenUsage {
  return combine(usage, usage, (count) => count * factor);
}

export function totalTokens(usage: TokenUsage): number {
  return usage.inputTokens + usage.outputTokens;
}

/** Returns the counts under the names of the event stream and of summaries. */
export function usageFields(usage: TokenUsage): Record<string, number> {
  return {
    input_tokens: usage.inputTokens,
    cached_input_tokens: usage.cachedInputTokens,
    output_tokens: usage.outputTokens,
    reasoning_output_tokens: usage.reasoningOutputTokens,
  };
}
