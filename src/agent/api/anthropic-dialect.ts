import { asObject, type JsonObject } from "../../base/json-fields.ts";
import { parseExactJson } from "../../base/lossless-json.ts";
import { MessagesAnswer } from "./anthropic-decoder.ts";
import { type InputPart, type InputStep, readSteps } from "./conversation-steps.ts";
import { isStrict, type ModelRequest, type ResponseHeaders, type Wire } from "./model-api.ts";

/** The version of the wire that this file speaks. */
const VERSION = "2023-06-01";

/** The API wants a bound; this one holds for every current model and is above any result of a row. */
const DEFAULT_MAX_TOKENS = 8_192;

/** Anthropic's Messages API. */
export const anthropicMessagesWire: Wire = {
  path: "/messages",
  headers: (apiKey): Readonly<Record<string, string>> =>
    apiKey ? { "anthropic-version": VERSION, "x-api-key": apiKey } : { "anthropic-version": VERSION },
  spareable: [
    { name: "strict", refusal: /\bstrict\b|input_schema/, canSpare: isStrict },
    { name: "cache_control", refusal: /\bcache_control\b/, canSpare: () => true },
    {
      name: "tool_choice",
      refusal: /\btool_choice\b|forces tool use/,
      canSpare: (request) => request.forcedTool !== undefined,
    },
  ],
  body: requestBody,
  decoder: () => new MessagesAnswer(),
  batches: "messages",
  wholeAnswer: (body) => JSON.stringify(body),
  limitHeaders,
};

function requestBody(request: ModelRequest, spared: ReadonlySet<string>): JsonObject {
  const { options = {} } = request;
  const cache = spared.has("cache_control") ? undefined : { type: "ephemeral" };
  return {
    model: request.model,
    max_tokens: options.maxOutputTokens ?? DEFAULT_MAX_TOKENS,
    system: [{ type: "text", text: request.instructions, cache_control: cache }],
    messages: messagesOf(readSteps(request.input)),
    ...toolFields(request, spared),
    output_config: request.reasoningEffort ? { effort: request.reasoningEffort } : undefined,
    temperature: options.temperature,
    service_tier: options.serviceTier,
    stream: true,
  };
}

function toolFields(request: ModelRequest, spared: ReadonlySet<string>): JsonObject {
  if (request.tools.length === 0) return {};
  const forced = spared.has("tool_choice") ? undefined : request.forcedTool;
  return {
    tools: request.tools.map((tool) => ({
      name: tool.name,
      description: tool.description,
      input_schema: tool.parameters,
      strict: tool.strict === true && !spared.has("strict") ? true : undefined,
    })),
    tool_choice: {
      type: forced === undefined ? "auto" : "tool",
      name: forced,
      disable_parallel_tool_use: request.parallelToolCalls ? undefined : true,
    },
  };
}

/** Turns alternate: what one side said in a row is one message of several blocks. */
function messagesOf(steps: readonly InputStep[]): JsonObject[] {
  const turns: { role: "user" | "assistant"; content: JsonObject[] }[] = [];
  for (const step of steps) {
    const role = step.type === "user" || step.type === "callOutput" ? "user" : "assistant";
    const blocks = blocksOf(step);
    if (blocks.length === 0) continue;
    const last = turns.at(-1);
    if (last?.role === role) last.content.push(...blocks);
    else turns.push({ role, content: blocks });
  }
  return turns;
}

function blocksOf(step: InputStep): JsonObject[] {
  switch (step.type) {
    case "user":
      return step.parts.map(partBlock);
    case "assistant":
      return step.text === "" ? [] : [{ type: "text", text: step.text }];
    case "call":
      return [{ type: "tool_use", id: step.callId, name: step.name, input: argumentsOf(step.arguments) }];
    case "callOutput":
      return [{ type: "tool_result", tool_use_id: step.callId, content: step.output }];
    case "own":
      return [step.raw];
  }
}

/** A call whose arguments could not be read is told as one without any. */
function argumentsOf(text: string): JsonObject {
  try {
    return asObject(parseExactJson(text));
  } catch {
    return {};
  }
}

function partBlock(part: InputPart): JsonObject {
  if (part.type === "text") return { type: "text", text: part.text };
  return { type: part.type === "image" ? "image" : "document", source: sourceOf(part.url) };
}

function sourceOf(url: string): JsonObject {
  const data = /^data:([^;,]+);base64,(.*)$/s.exec(url);
  return data ? { type: "base64", media_type: data[1], data: data[2] } : { type: "url", url };
}

/** Told as the time of day when there is more; all else here reads how long that is from now. */
function limitHeaders(headers: ResponseHeaders): ResponseHeaders {
  const found: Record<string, string> = {};
  for (const what of ["requests", "tokens", "input-tokens", "output-tokens"]) {
    const remaining = headers[`anthropic-ratelimit-${what}-remaining`];
    const reset = Date.parse(`${headers[`anthropic-ratelimit-${what}-reset`]}`);
    if (remaining !== "0" || Number.isNaN(reset)) continue;
    const kind = what === "requests" ? "requests" : "tokens";
    found[`x-ratelimit-remaining-${kind}`] = "0";
    found[`x-ratelimit-reset-${kind}`] = `${Math.max(0, reset - Date.now())}ms`;
  }
  return { ...headers, ...found };
}
