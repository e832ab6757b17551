import { isStrict, type ModelDialect } from "./model-api.ts";

/** Code shared by Chat Completions and the Responses API. */

export function bearerHeaders(apiKey: string | undefined): Readonly<Record<string, string>> {
  return apiKey ? { authorization: `Bearer ${apiKey}` } : {};
}

/** Droppable parameters, in the order in which requests omit them. */
export const DROPPABLE_PARAMETERS: ModelDialect["droppable"] = [
  { name: "prompt_cache_key", rejectionPattern: /\bprompt_cache_key\b/ },
  { name: "parallel_tool_calls", rejectionPattern: /\bparallel_tool_calls\b/ },
  {
    name: "strict",
    rejectionPattern: /\bstrict\b|invalid_function_parameters|tools\[\d+\]\.(function\.)?parameters/,
    canDrop: isStrict,
  },
  {
    name: "tool_choice",
    rejectionPattern: /\btool_choice\b/,
    canDrop: (request) => request.forcedTool !== undefined,
  },
];
