import { asArray, asCount, asObject, asString, parseObject } from "../../base/json-fields.ts";
import { isObject } from "../../base/type-guards.ts";
import { NO_USAGE, type TokenUsage } from "../token-usage.ts";
import { assistantMessage, callItem } from "./conversation-steps.ts";
import type { ResponseDecoder } from "./model-api.ts";
import type { JsonObject, OutputItem, ResponseEvent } from "./response-events.ts";

interface PartialCall {
  id: string;
  name: string;
  arguments: string;
}

/**
 * Builds one answer from its chunks. The answer is complete only with `[DONE]`, because the usage follows the last
 * content chunk.
 */
export class ChatCompletionsDecoder implements ResponseDecoder {
  #text = "";
  #refusal = "";
  #reasoning = "";
  #calls = new Map<number | string, PartialCall>();
  #lastCall: PartialCall | null = null;
  #finishReason = "";
  #usage: TokenUsage = NO_USAGE;
  #jsonTool: string | undefined;

  /** `jsonTool`: the answer is the JSON arguments of this tool, because the model does not support tool calls. */
  constructor(jsonTool?: string) {
    this.#jsonTool = jsonTool;
  }

  push(data: string): readonly ResponseEvent[] {
    if (data.trim() === "[DONE]") return this.end();
    const chunk = parseObject(data);
    if (!chunk) return [];
    if (isObject(chunk.error)) return [failure(chunk.error)];
    if (isObject(chunk.usage)) this.#usage = decodeUsage(chunk.usage);
    const choice = asObject(asArray(chunk.choices)[0]);
    this.#finishReason ||= asString(choice.finish_reason);
    // Some servers ignore `stream` and send the complete message at once.
    this.#takeDelta(isObject(choice.delta) ? choice.delta : asObject(choice.message));
    return [];
  }

  end(): readonly ResponseEvent[] {
    const reason = this.#finishReason;
    if (reason === "") return [];
    if (reason === "length") return [{ type: "incomplete", reason: "max_output_tokens", usage: this.#usage }];
    if (reason === "content_filter") return [{ type: "incomplete", reason, usage: this.#usage }];
    return [{ type: "completed", usage: this.#usage, output: this.#items() }];
  }

  #takeDelta(delta: JsonObject): void {
    this.#text += asString(delta.content);
    this.#refusal += asString(delta.refusal);
    this.#reasoning += asString(delta.reasoning_content) || asString(delta.reasoning);
    for (const call of asArray(delta.tool_calls).map(asObject)) this.#takeCall(call);
  }

  /** Merges a chunk into its call by index. Servers that send complete calls may omit the index. */
  #takeCall(callChunk: JsonObject): void {
    const id = asString(callChunk.id);
    const key = typeof callChunk.index === "number" ? callChunk.index : id;
    let call = key === "" ? this.#lastCall : (this.#calls.get(key) ?? null);
    if (!call) {
      call = { id: "", name: "", arguments: "" };
      this.#calls.set(key === "" ? `call_${this.#calls.size}` : key, call);
    }
    this.#lastCall = call;
    const details = asObject(callChunk.function);
    call.id ||= id;
    call.name ||= asString(details.name);
    call.arguments += isObject(details.arguments) ? JSON.stringify(details.arguments) : asString(details.arguments);
  }

  #items(): OutputItem[] {
    const items: OutputItem[] = [];
    if (this.#reasoning !== "") {
      items.push({ type: "reasoning", summary: this.#reasoning, raw: { type: "reasoning" } });
    }
    const jsonCall = this.#jsonTool === undefined ? null : this.#jsonCall(this.#jsonTool);
    if (jsonCall) return [...items, jsonCall];
    if (this.#text !== "" || this.#refusal !== "") {
      const { text, refusal } = { text: this.#text, refusal: this.#refusal || null };
      items.push({ type: "message", text, refusal, raw: assistantMessage(text || (refusal ?? "")) });
    }
    let number = 0;
    for (const call of this.#calls.values()) items.push(functionCall(call, number++));
    return items;
  }

  #jsonCall(name: string): OutputItem | null {
    const args = extractJson(this.#text);
    return args === null ? null : functionCall({ id: "call_json", name, arguments: args }, 0);
  }
}

function functionCall(call: PartialCall, number: number): OutputItem {
  const callId = call.id || `call_${number}`;
  const { name, arguments: args } = call;
  return { type: "functionCall", callId, name, arguments: args, raw: callItem(callId, name, args) };
}

/** Returns the JSON object in a text, with or without a Markdown fence, or null if the text is not a JSON object. */
export function extractJson(text: string): string | null {
  const fenced = /^\s*```(?:json)?\s*\n([\s\S]*?)\n?```\s*$/.exec(text)?.[1];
  const json = fenced ?? text;
  return parseObject(json) === null ? null : json.trim();
}

function failure(error: JsonObject): ResponseEvent {
  const code = typeof error.code === "number" ? `${error.code}` : asString(error.code) || asString(error.type);
  return { type: "failed", code: code || undefined, message: asString(error.message) };
}

function decodeUsage(usage: JsonObject): TokenUsage {
  return {
    inputTokens: asCount(usage.prompt_tokens),
    // DeepSeek uses `prompt_cache_hit_tokens`, all other providers the first field.
    cachedInputTokens:
      asCount(asObject(usage.prompt_tokens_details).cached_tokens) || asCount(usage.prompt_cache_hit_tokens),
    outputTokens: asCount(usage.completion_tokens),
    reasoningOutputTokens: asCount(asObject(usage.completion_tokens_details).reasoning_tokens),
  };
}
