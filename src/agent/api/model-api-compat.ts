/**
 * Recognizes errors of model APIs that have only a text: APIs that use one code for all bad requests, and delays that no
 * header contains. Other modules search an API's error only for names of parameters (`rejectionPattern`).
 */

/** Returns the kind of a bad request from its message, or undefined if the message has no known words. */
export function kindOfText(status: number, message: string): "context_length" | "quota" | undefined {
  if (status !== 400 && status !== 413) return undefined;
  if (/maximum context length|prompt is too long|context window/i.test(message)) return "context_length";
  return /credit balance is too low/i.test(message) ? "quota" : undefined;
}

/** Returns the delay in "Please try again in 1.5s", the text of rate-limit messages, in milliseconds, or undefined. */
export function retryAfterFromText(message: string): number | undefined {
  const match = /try again in\s*(\d+(?:\.\d+)?)\s*(ms|milliseconds?|s|seconds?|m|minutes?)\b/i.exec(message);
  if (!match?.[1] || !match[2]) return undefined;
  const amount = Number(match[1]);
  const unit = match[2].toLowerCase();
  if (unit.startsWith("ms") || unit.startsWith("milli")) return amount;
  return unit.startsWith("s") ? amount * 1000 : amount * 60_000;
}

/** Matches the response to a forced tool of a Claude model that does not support it. */
export const FORCED_TOOL_REJECTED = /\btool_choice\b|forces tool use/;

/** Matches the response to tools of a model, or a server of Chat Completions, that does not support them. */
export const TOOLS_REJECTED =
  /not support (tool|function)|support tool use|tool choice requires|'tools'\), 'msg': 'Extra inputs/i;
