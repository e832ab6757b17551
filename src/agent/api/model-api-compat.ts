/**
 * Recognizes errors of model APIs that have only a text: APIs that use one code for all bad requests, delays that no header
 * contains, and the parameter that an API rejects. No other module decides by the words of an API.
 */

/** Returns the kind of a bad request from its message, or undefined if the message has no known words. */
export function kindOfText(status: number, message: string): "context_length" | "quota" | undefined {
  if (status !== 400 && status !== 413) return undefined;
  if (/maximum context length|prompt is too long|context window/i.test(message)) return "context_length";
  return /credit balance is too low/i.test(message) ? "quota" : undefined;
}

/**
 * Returns the delay in "Please try again in 1.5s", the text of rate-limit messages, in milliseconds. Returns undefined if
 * there is none or it is zero.
 */
export function retryAfterFromText(message: string): number | undefined {
  const match = /try again in\s*(\d+(?:\.\d+)?)\s*(ms|milliseconds?|s|seconds?|m|minutes?)\b/i.exec(message);
  if (!match?.[1] || !match[2]) return undefined;
  const amount = Number(match[1]);
  if (amount === 0) return undefined;
  const unit = match[2].toLowerCase();
  if (unit.startsWith("ms") || unit.startsWith("milli")) return amount;
  return unit.startsWith("s") ? amount * 1000 : amount * 60_000;
}

/** Patterns of the error response of an API that rejects the parameter. Most contain the name of the parameter. */
export const REJECTION_PATTERNS = {
  prompt_cache_key: /\bprompt_cache_key\b/,
  parallel_tool_calls: /\bparallel_tool_calls\b/,
  strict: /\bstrict\b|invalid_function_parameters|tools\[\d+\]\.(function\.)?parameters/,
  tool_choice: /\btool_choice\b/,
  include: /\binclude\b|encrypted.content/i,
  stream_options: /\bstream_options\b/,
  max_tokens: /\bmax_completion_tokens\b/,
  tools: /not support (tool|function)|support tool use|tool choice requires|'tools'\), 'msg': 'Extra inputs/i,
  response_format: /\bresponse_format\b|json_schema/,
} as const;

/** Patterns of the error response of Anthropic's API. */
export const ANTHROPIC_REJECTION_PATTERNS = {
  strict: /\bstrict\b|input_schema/,
  cache_control: /\bcache_control\b/,
  tool_choice: /\btool_choice\b|forces tool use/,
} as const;
