import { asObject, type JsonObject } from "../../base/json-fields.ts";
import { parseLosslessJson } from "../../base/lossless-json.ts";
import { AnthropicDecoder } from "./anthropic-decoder.ts";
import { type ContentPart, type ConversationStep, toConversationSteps } from "./conversation-steps.ts";
import { isStrict, type ModelDialect, type ModelRequest, type ResponseHeaders } from "./model-api.ts";
import { ANTHROPIC_REJECTION_PATTERNS } from "./model-api-compat.ts";
import { apiTimeMs } from "./model-error.ts";

/** The API version that this dialect implements. */
const API_VERSION = "2023-06-01";

/** The API requires a limit. All current models support this limit, and it exceeds any result of a row. */
const DEFAULT_MAX_TOKENS = 8_192;

/** Anthropic's Messages API. */
export const anthropicDialect: ModelDialect = {
  path: "/messages",
  headers: (apiKey): Readonly<Record<string, string>> =>
    apiKey ? { "anthropic-version": API_VERSION, "x-api-key": apiKey } : { "anthropic-version": API_VERSION },
  droppable: [
    { name: "strict", rejectionPattern: ANTHROPIC_REJECTION_PATTERNS.strict, canDrop: isStrict },
    { name: "cache_control", rejectionPattern: ANTHROPIC_REJECTION_PATTERNS.cache_control, canDrop: () => true },
    {
      name: "tool_choice",
      rejectionPattern: ANTHROPIC_REJECTION_PATTERNS.tool_choice,
      canDrop: (request) => request.forcedTool !== undefined,
    },
  ],
  body: requestBody,
  decoder: () => new AnthropicDecoder(),
  batches: "messages",
  decodeWhole: (body) => JSON.stringify(body),
  limitHeaders,
};

function requestBody(request: ModelRequest, dropped: ReadonlySet<string>): JsonObject {
  const { options = {} } = request;
  const cache = dropped.has("cache_control") ? undefined : { type: "ephemeral" };
  return {
    model: request.model,
    max_tokens: options.maxOutputTokens ?? DEFAULT_MAX_TOKENS,
    system: [{ type: "text", text: request.instructions, cache_control: cache }],
    messages: toMessages(toConversationSteps(request.input)),
    ...toolFields(request, dropped),
    output_config: request.reasoningEffort ? { effort: request.reasoningEffort } : undefined,
    temperature: options.temperature,
    service_tier: options.serviceTier,
    stream: true,
  };
}

function toolFields(request: ModelRequest, dropped: ReadonlySet<string>): JsonObject {
  if (request.tools.length === 0) return {};
  const forced = dropped.has("tool_choice") ? undefined : request.forcedTool;
  return {
    tools: request.tools.map((tool) => ({
      name: tool.name,
      description: tool.description,
      input_schema: tool.parameters,
      strict: tool.strict === true && !dropped.has("strict") ? true : undefined,
    })),
    tool_choice: {
      type: forced === undefined ? "auto" : "tool",
      name: forced,
      disable_parallel_tool_use: request.parallelToolCalls ? undefined : true,
    },
  };
}

/** Roles must alternate, so consecutive steps of one role become blocks of one message. */
function toMessages(steps: readonly ConversationStep[]): JsonObject[] {
  const messages: { role: "user" | "assistant"; content: JsonObject[] }[] = [];
  for (const step of steps) {
    const role = step.type === "user" || step.type === "callOutput" ? "user" : "assistant";
    const blocks = toBlocks(step);
    if (blocks.length === 0) continue;
    const last = messages.at(-1);
    if (last?.role === role) last.content.push(...blocks);
    else messages.push({ role, content: blocks });
  }
  return messages;
}

function toBlocks(step: ConversationStep): JsonObject[] {
  switch (step.type) {
    case "user":
      return step.parts.map(partBlock);
    case "assistant":
      return step.text === "" ? [] : [{ type: "text", text: step.text }];
    case "call":
      return [{ type: "tool_use", id: step.callId, name: step.name, input: parseCallArguments(step.arguments) }];
    case "callOutput":
      return [{ type: "tool_result", tool_use_id: step.callId, content: step.output }];
    case "own":
      return [step.raw];
  }
}

/** Parses the arguments of a call. Invalid arguments become an empty object, because the API accepts only objects. */
function parseCallArguments(text: string): JsonObject {
  try {
    return asObject(parseLosslessJson(text));
  } catch {
    return {};
  }
}

function partBlock(part: ContentPart): JsonObject {
  if (part.type === "text") return { type: "text", text: part.text };
  return { type: part.type === "image" ? "image" : "document", source: toSource(part.url) };
}

function toSource(url: string): JsonObject {
  const data = /^data:([^;,]+);base64,(.*)$/s.exec(url);
  return data ? { type: "base64", media_type: data[1], data: data[2] } : { type: "url", url };
}

/** Converts reset times to durations: Anthropic sends a point in time, the other APIs send the remaining time. */
function limitHeaders(headers: ResponseHeaders): ResponseHeaders {
  const found: Record<string, string> = {};
  for (const limitName of ["requests", "tokens", "input-tokens", "output-tokens"]) {
    const remaining = headers[`anthropic-ratelimit-${limitName}-remaining`];
    const reset = Date.parse(`${headers[`anthropic-ratelimit-${limitName}-reset`]}`);
    if (remaining !== "0" || Number.isNaN(reset)) continue;
    const kind = limitName === "requests" ? "requests" : "tokens";
    found[`x-ratelimit-remaining-${kind}`] = "0";
    found[`x-ratelimit-reset-${kind}`] = `${Math.max(0, reset - apiTimeMs(headers))}ms`;
  }
  return { ...headers, ...found };
}
