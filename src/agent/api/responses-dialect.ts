import { bearerHeaders, SPAREABLE } from "../openai-wire.ts";
import { createHttpModelApi, type HttpModelApiOptions } from "./http-model-api.ts";
import type { ModelApi, ModelRequest, Wire } from "./model-api.ts";
import { decodeResponseEvent, type JsonObject } from "./response-events.ts";

/** The Responses API. History travels whole each time (`store: false`). */
export const responsesWire: Wire = {
  path: "/responses",
  headers: bearerHeaders,
  spareable: [{ name: "include", refusal: /\binclude\b|encrypted.content/i }, ...SPAREABLE],
  body: requestBody,
  batches: "files",
  wholeAnswer: (body) => {
    const { status } = body;
    const type = status === "failed" || status === "incomplete" ? status : "completed";
    return JSON.stringify({ type: `response.${type}`, response: body });
  },
  decoder: () => ({
    take: (data) => {
      const event = decodeResponseEvent(data);
      return event ? [event] : [];
    },
    end: () => [],
  }),
};

export function createHttpResponsesApi(options: HttpModelApiOptions): ModelApi {
  return createHttpModelApi(responsesWire, options);
}

function requestBody(request: ModelRequest, spared: ReadonlySet<string>): JsonObject {
  const { options = {} } = request;
  const optional: JsonObject = {
    parallel_tool_calls: request.parallelToolCalls,
    include: takesEncryptedReasoning(request.model) ? ["reasoning.encrypted_content"] : undefined,
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
      strict: tool.strict === true && !spared.has("strict"),
      parameters: tool.parameters,
    })),
    tool_choice:
      request.forcedTool === undefined || spared.has("tool_choice")
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
    ...Object.fromEntries(Object.entries(optional).filter(([name]) => !spared.has(name))),
  };
}

/** Models that reason and give their reasoning back sealed; all others refuse to be asked for it. */
function takesEncryptedReasoning(model: string): boolean {
  return /(^|\/)(gpt-([5-9]|oss)|o[1-9]|codex)/.test(model) && !/gpt-5(\.\d+)?-chat/.test(model);
}
