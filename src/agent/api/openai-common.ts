import { isStrict, type ModelDialect } from "./model-api.ts";
import { REJECTION_PATTERNS } from "./model-api-compat.ts";

/** Code shared by Chat Completions and the Responses API. */

export function bearerHeaders(apiKey: string | undefined): Readonly<Record<string, string>> {
  return apiKey ? { authorization: `Bearer ${apiKey}` } : {};
}

/** Droppable parameters, in the order in which requests omit them. */
export const DROPPABLE_PARAMETERS: ModelDialect["droppable"] = [
  { name: "prompt_cache_key", rejectionPattern: REJECTION_PATTERNS.prompt_cache_key },
  { name: "parallel_tool_calls", rejectionPattern: REJECTION_PATTERNS.parallel_tool_calls },
  { name: "strict", rejectionPattern: REJECTION_PATTERNS.strict, canDrop: isStrict },
  {
    name: "tool_choice",
    rejectionPattern: REJECTION_PATTERNS.tool_choice,
    canDrop: (request) => request.forcedTool !== undefined,
  },
];
