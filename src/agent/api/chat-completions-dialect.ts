import type { JsonObject } from "../../base/json-fields.ts";
import { ChatCompletionsDecoder } from "./chat-completions-decoder.ts";
import { type ContentPart, type ConversationStep, toConversationSteps } from "./conversation-steps.ts";
import type { ModelDialect, ModelRequest } from "./model-api.ts";
import { REJECTION_PATTERNS } from "./model-api-compat.ts";
import { bearerHeaders, DROPPABLE_PARAMETERS } from "./openai-common.ts";

/**
 * The Chat Completions API of vLLM, Ollama and most providers. If a model does not support tools and the request forces
 * one, the request asks for the arguments of that tool as a JSON answer.
 */
export const chatCompletionsDialect: ModelDialect = {
  path: "/chat/completions",
  headers: bearerHeaders,
  droppable: [
    { name: "stream_options", rejectionPattern: REJECTION_PATTERNS.stream_options },
    {
      name: "max_tokens",
      rejectionPattern: REJECTION_PATTERNS.max_tokens,
      canDrop: ({ options }) => options?.maxOutputTokens !== undefined,
    },
    ...DROPPABLE_PARAMETERS,
    { name: "tools", rejectionPattern: REJECTION_PATTERNS.tools, canDrop: (request) => request.tools.length === 1 },
    { name: "response_format", rejectionPattern: REJECTION_PATTERNS.response_format },
  ],
  body: requestBody,
  batches: "files",
  decodeWhole: (body) => JSON.stringify(body),
  decoder: (request, dropped) => new ChatCompletionsDecoder(dropped.has("tools") ? request.tools[0]?.name : undefined),
};

function requestBody(request: ModelRequest, dropped: ReadonlySet<string>): JsonObject {
  const { options = {} } = request;
  const isJsonAnswer = dropped.has("tools");
  const tool = isJsonAnswer ? request.tools[0] : undefined;
  const system = tool
    ? `${request.instructions}\n\nYou cannot call tools here. In place of calling \`${tool.name}\`, answer with its arguments alone, as one JSON object that fits this schema:\n${JSON.stringify(tool.parameters)}`
    : request.instructions;
  const optional: JsonObject = {
    stream_options: { include_usage: true },
    prompt_cache_key: request.cacheKey,
    parallel_tool_calls: isJsonAnswer || request.tools.length === 0 ? undefined : request.parallelToolCalls,
  };
  const answerFields = tool ? { response_format: jsonAnswer(tool, dropped) } : toolFields(request, dropped);
  return {
    model: request.model,
    messages: [{ role: "system", content: system }, ...toMessages(toConversationSteps(request.input), isJsonAnswer)],
    ...answerFields,
    reasoning_effort: request.reasoningEffort,
    temperature: options.temperature,
    // Older servers accept only `max_tokens`, newer models only `max_completion_tokens`.
    [dropped.has("max_tokens") ? "max_completion_tokens" : "max_tokens"]: options.maxOutputTokens,
    service_tier: options.serviceTier,
    stream: true,
    ...Object.fromEntries(Object.entries(optional).filter(([name]) => !dropped.has(name))),
  };
}

function toolFields(request: ModelRequest, dropped: ReadonlySet<string>): JsonObject {
  if (request.tools.length === 0) return {};
  return {
    tools: request.tools.map((tool) => ({
      type: "function",
      function: {
        name: tool.name,
        description: tool.description,
        parameters: tool.parameters,
        strict: tool.strict === true && !dropped.has("strict") ? true : undefined,
      },
    })),
    tool_choice:
      request.forcedTool === undefined || dropped.has("tool_choice")
        ? "auto"
        : { type: "function", function: { name: request.forcedTool } },
  };
}

function jsonAnswer(tool: ModelRequest["tools"][number], dropped: ReadonlySet<string>): JsonObject | undefined {
  if (dropped.has("response_format")) return undefined;
  const strict = tool.strict === true && !dropped.has("strict");
  return { type: "json_schema", json_schema: { name: tool.name, schema: tool.parameters, strict } };
}

/** Builds the messages. The text and the calls of one answer are one message in this dialect. */
function toMessages(steps: readonly ConversationStep[], isJsonAnswer: boolean): JsonObject[] {
  const messages: JsonObject[] = [];
  let calls: JsonObject[] | null = null;
  for (const step of steps) {
    if (step.type === "call" && !isJsonAnswer) {
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
    messages.push(...plainMessage(step, isJsonAnswer));
  }
  return messages;
}

function plainMessage(step: ConversationStep, isJsonAnswer: boolean): JsonObject[] {
  switch (step.type) {
    case "user":
      return [{ role: "user", content: toContent(step.parts) }];
    case "assistant":
      return [{ role: "assistant", content: step.text }];
    case "call":
      return [{ role: "assistant", content: step.arguments }];
    case "callOutput":
      return isJsonAnswer
        ? [{ role: "user", content: step.output }]
        : [{ role: "tool", tool_call_id: step.callId, content: step.output }];
    case "own":
      return [];
  }
}

/** Returns plain text if there is no other content, because some servers do not accept content parts. */
function toContent(parts: readonly ContentPart[]): string | JsonObject[] {
  if (parts.every((part) => part.type === "text")) return parts.map((part) => part.text).join("\n");
  return parts.map((part) => {
    if (part.type === "text") return { type: "text", text: part.text };
    if (part.type === "image") return { type: "image_url", image_url: { url: part.url } };
    return { type: "file", file: { filename: part.name, file_data: part.url } };
  });
}
