import type { ModelDialect, ModelRequest } from "./model-api.ts";
import { REJECTION_PATTERNS } from "./model-api-compat.ts";
import { bearerHeaders, DROPPABLE_PARAMETERS } from "./openai-common.ts";
import { decodeResponseEvent, type JsonObject } from "./response-events.ts";

/** The Responses API. Every request contains the whole history (`store: false`). */
export const responsesDialect: ModelDialect = {
  path: "/responses",
  headers: bearerHeaders,
  droppable: [{ name: "include", rejectionPattern: REJECTION_PATTERNS.include }, ...DROPPABLE_PARAMETERS],
  body: requestBody,
  batches: "files",
  decodeWhole: (body) => {
    const { status } = body;
    const type = status === "failed" || status === "incomplete" ? status : "completed";
    return JSON.stringify({ type: `response.${type}`, response: body });
  },
  decoder: () => ({
    push: (data) => {
      const event = decodeResponseEvent(data);
      return event ? [event] : [];
    },
    end: () => [],
  }),
};

function requestBody(request: ModelRequest, dropped: ReadonlySet<string>): JsonObject {
  const { options = {} } = request;
  const optional: JsonObject = {
    parallel_tool_calls: request.parallelToolCalls,
    include: supportsEncryptedReasoning(request.model) ? ["reasoning.encrypted_content"] : undefined,
    prompt_cache_key: request.cacheKey,
  };
  return {
    model: request.model,
    instructions: request.instructions,
    input: request.input,
    tools: request.tools.map((tool) => ({
      type: "function",
      name: tool.name,
      description: tool.description,
      strict: tool.strict === true && !dropped.has("strict"),
      parameters: tool.parameters,
    })),
    tool_choice:
      request.forcedTool === undefined || dropped.has("tool_choice")
        ? "auto"
        : { type: "function", name: request.forcedTool },
    reasoning: request.reasoningEffort ? { effort: request.reasoningEffort } : undefined,
    temperature: options.temperature,
    max_output_tokens: options.maxOutputTokens,
    service_tier: options.serviceTier,
    text: request.outputSchema && {
      format: { type: "json_schema", name: "output_schema", strict: true, schema: request.outputSchema },
    },
    store: false,
    stream: true,
    ...Object.fromEntries(Object.entries(optional).filter(([name]) => !dropped.has(name))),
  };
}

/** Reports whether a model returns encrypted reasoning. Other models reject the request for it. */
function supportsEncryptedReasoning(model: string): boolean {
  return /(^|\/)(gpt-([5-9]|oss)|o[1-9]|codex)/.test(model) && !/gpt-5(\.\d+)?-chat/.test(model);
}
