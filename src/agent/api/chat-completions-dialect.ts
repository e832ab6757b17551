import type { JsonObject } from "../../base/json-fields.ts";
import { bearerHeaders, SPAREABLE } from "../openai-wire.ts";
import { ChatAnswer } from "./chat-completions-decoder.ts";
import { type InputPart, type InputStep, readSteps } from "./conversation-steps.ts";
import type { ModelRequest, Wire } from "./model-api.ts";

/**
 * Chat Completions, as vLLM, Ollama and most providers speak it. Where a model has no tools and there is only one to call,
 * the model is asked for that call's arguments as a JSON answer instead.
 */
export const chatCompletionsWire: Wire = {
  path: "/chat/completions",
  headers: bearerHeaders,
  spareable: [
    { name: "stream_options", refusal: /\bstream_options\b/ },
    { name: "max_tokens", refusal: /\bmax_completion_tokens\b/, canSpare: hasTokenLimit },
    ...SPAREABLE,
    {
      name: "tools",
      refusal:
        /not support (tool|function)|support tool use|tool choice requires|'tools'\), 'msg': 'Extra inputs/i,
      canSpare: (request) => request.tools.length === 1,
    },
    { name: "response_format", refusal: /\bresponse_format\b|json_schema/ },
  ],
  body: requestBody,
  batches: "files",
  wholeAnswer: (body) => JSON.stringify(body),
  decoder: (request, spared) => new ChatAnswer(spared.has("tools") ? request.tools[0]?.name : undefined),
};

function hasTokenLimit({ options }: ModelRequest): boolean {
  return options?.maxOutputTokens !== undefined;
}

function requestBody(request: ModelRequest, spared: ReadonlySet<string>): JsonObject {
  const { options = {} } = request;
  const asJson = spared.has("tools");
  const tool = asJson ? request.tools[0] : undefined;
  const system = tool
    ? `${request.instructions}\n\nYou cannot call tools here. In place of calling \`${tool.name}\`, answer with its arguments alone, as one JSON object that fits this schema:\n${JSON.stringify(tool.parameters)}`
    : request.instructions;
  const optional: JsonObject = {
    stream_options: { include_usage: true },
    prompt_cache_key: request.cacheKey,
    parallel_tool_calls: asJson || request.tools.length === 0 ? undefined : request.parallelToolCalls,
  };
  const answering = tool ? { response_format: jsonAnswer(tool, spared) } : toolFields(request, spared);
  return {
    model: request.model,
    messages: [{ role: "system", content: system }, ...messagesOf(readSteps(request.input), asJson)],
    ...answering,
    reasoning_effort: request.reasoningEffort,
    temperature: options.temperature,
    // Older servers know the first name only, newer models take the second only.
    [spared.has("max_tokens") ? "max_completion_tokens" : "max_tokens"]: options.maxOutputTokens,
    service_tier: options.serviceTier,
    stream: true,
    ...Object.fromEntries(Object.entries(optional).filter(([name]) => !spared.has(name))),
  };
}

function toolFields(request: ModelRequest, spared: ReadonlySet<string>): JsonObject {
  if (request.tools.length === 0) return {};
  return {
    tools: request.tools.map((tool) => ({
      type: "function",
      function: {
        name: tool.name,
        description: tool.description,
        parameters: tool.parameters,
        strict: tool.strict === true && !spared.has("strict") ? true : undefined,
      },
    })),
    tool_choice:
      request.forcedTool === undefined || spared.has("tool_choice")
        ? "auto"
        : { type: "function", function: { name: request.forcedTool } },
  };
}

function jsonAnswer(
  tool: ModelRequest["tools"][number],
  spared: ReadonlySet<string>,
): JsonObject | undefined {
  if (spared.has("response_format")) return undefined;
  const strict = tool.strict === true && !spared.has("strict");
  return { type: "json_schema", json_schema: { name: tool.name, schema: tool.parameters, strict } };
}

/** An assistant's words and its calls of one answer are one message here. */
function messagesOf(steps: readonly InputStep[], asJson: boolean): JsonObject[] {
  const messages: JsonObject[] = [];
  let calls: JsonObject[] | null = null;
  for (const step of steps) {
    if (step.type === "call" && !asJson) {
      const call = {
        id: step.callId,
        type: "function",
        function: { name: step.name, arguments: step.arguments },
      };
      if (calls) {
        calls.push(call);
        continue;
      }
      calls = [call];
      const last = messages.at(-1);
      if (last?.role === "assistant") messages.splice(-1, 1, { ...last, tool_calls: calls });
      else messages.push({ role: "assistant", content: null, tool_calls: calls });
      continue;
    }
    calls = null;
    messages.push(...plainMessage(step, asJson));
  }
  return messages;
}

function plainMessage(step: InputStep, asJson: boolean): JsonObject[] {
  switch (step.type) {
    case "user":
      return [{ role: "user", content: contentOf(step.parts) }];
    case "assistant":
      return [{ role: "assistant", content: step.text }];
    case "call":
      return [{ role: "assistant", content: step.arguments }];
    case "callOutput":
      return asJson
        ? [{ role: "user", content: step.output }]
        : [{ role: "tool", tool_call_id: step.callId, content: step.output }];
    case "own":
      return [];
  }
}

/** Plain text where that is all there is: not every server takes parts. */
function contentOf(parts: readonly InputPart[]): string | JsonObject[] {
  if (parts.every((part) => part.type === "text")) return parts.map((part) => part.text).join("\n");
  return parts.map((part) => {
    if (part.type === "text") return { type: "text", text: part.text };
    if (part.type === "image") return { type: "image_url", image_url: { url: part.url } };
    return { type: "file", file: { filename: part.name, file_data: part.url } };
  });
}
