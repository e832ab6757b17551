import { isStrict, type Wire } from "./api/model-api.ts";

/** What Chat Completions and the Responses API have in common. */

export function bearerHeaders(apiKey: string | undefined): Readonly<Record<string, string>> {
  return apiKey ? { authorization: `Bearer ${apiKey}` } : {};
}

/** Parameters that a server may refuse and a request can do without, in the order they are given up. */
export const SPAREABLE: Wire["spareable"] = [
  { name: "prompt_cache_key", refusal: /\bprompt_cache_key\b/ },
  { name: "parallel_tool_calls", refusal: /\bparallel_tool_calls\b/ },
  {
    name: "strict",
    refusal: /\bstrict\b|invalid_function_parameters|tools\[\d+\]\.(function\.)?parameters/,
    canSpare: isStrict,
  },
  {
    name: "tool_choice",
    refusal: /\btool_choice\b/,
    canSpare: (request) => request.forcedTool !== undefined,
  },
];
