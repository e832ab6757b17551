import { asArray, asCount, asObject, asString, type JsonObject, parseObject } from "../../base/json-fields.ts";
import { assistantMessage, callItem } from "./conversation-steps.ts";
import type { ResponseDecoder } from "./model-api.ts";
import type { OutputItem, ResponseEvent } from "./response-events.ts";

interface PartialBlock {
  start: JsonObject;
  text: string;
  json: string;
  signature: string;
}

/** Builds one answer from the content blocks of its events. */
export class AnthropicDecoder implements ResponseDecoder {
  #usage: JsonObject = {};
  #stopReason = "";
  #blocks = new Map<unknown, PartialBlock>();

  push(data: string): readonly ResponseEvent[] {
    const event = parseObject(data);
    switch (event?.type) {
      case "message_start":
        this.#addUsage(asObject(event.message).usage);
        return [];
      case "content_block_start": {
        const start = asObject(event.content_block);
        this.#blocks.set(event.index, { start, text: textOf(start), json: "", signature: "" });
        return [];
      }
      case "content_block_delta":
        this.#takeDelta(event.index, asObject(event.delta));
        return [];
      case "message_delta":
        this.#stopReason = asString(asObject(event.delta).stop_reason);
        this.#addUsage(event.usage);
        return [];
      case "message_stop":
        return [this.#endEvent()];
      // A complete answer that was not streamed, as in a batch.
      case "message":
        return [this.#decodeWhole(event)];
      case "error": {
        const error = asObject(event.error);
        return [{ type: "failed", code: asString(error.type) || undefined, message: asString(error.message) }];
      }
      default:
        return [];
    }
  }

  /** Without `message_stop`, the answer is incomplete. */
  end(): readonly ResponseEvent[] {
    return [];
  }

  #decodeWhole(message: JsonObject): ResponseEvent {
    this.#stopReason = asString(message.stop_reason);
    this.#addUsage(message.usage);
    for (const [index, block] of asArray(message.content).map(asObject).entries()) {
      const signature = asString(block.signature);
      this.#blocks.set(index, { start: block, text: textOf(block), json: "", signature });
    }
    return this.#endEvent();
  }

  #takeDelta(index: unknown, delta: JsonObject): void {
    const block = this.#blocks.get(index);
    if (!block) return;
    block.text += textOf(delta);
    block.json += asString(delta.partial_json);
    block.signature += asString(delta.signature);
  }

  /** Counts in later events are totals, not increments. */
  #addUsage(usage: unknown): void {
    const known = Object.entries(asObject(usage)).filter(([, value]) => typeof value === "number");
    this.#usage = { ...this.#usage, ...Object.fromEntries(known) };
  }

  #endEvent(): ResponseEvent {
    const usage = decodeUsage(this.#usage);
    switch (this.#stopReason) {
      case "max_tokens":
        return { type: "incomplete", reason: "max_output_tokens", usage };
      case "model_context_window_exceeded":
        return { type: "incomplete", reason: this.#stopReason, usage };
      default: {
        const output = [...this.#blocks.values()].flatMap((block) => decodeBlock(block) ?? []);
        if (this.#stopReason === "refusal") output.push(refusal(output));
        return { type: "completed", usage, output };
      }
    }
  }
}

function textOf(source: JsonObject): string {
  return asString(source.text) || asString(source.thinking);
}

function decodeBlock({ start, text, json, signature }: PartialBlock): OutputItem | null {
  switch (start.type) {
    case "text":
      return text === "" ? null : { type: "message", text, refusal: null, raw: assistantMessage(text) };
    case "tool_use": {
      const callId = asString(start.id);
      const name = asString(start.name);
      const args = json || JSON.stringify(asObject(start.input));
      return { type: "functionCall", callId, name, arguments: args, raw: callItem(callId, name, args) };
    }
    // The next request must contain thinking blocks unchanged, including their signature.
    case "thinking":
      return { type: "reasoning", summary: text, raw: toOwnItem({ type: "thinking", thinking: text, signature }) };
    default:
      return { type: "other", raw: toOwnItem(start) };
  }
}

function toOwnItem(raw: JsonObject): JsonObject {
  return { type: "own", raw };
}

function refusal(said: readonly OutputItem[]): OutputItem {
  const text = said.map((item) => (item.type === "message" ? item.text : "")).join("");
  const reason = text || "the model stopped with `refusal`";
  return { type: "message", text: "", refusal: reason, raw: assistantMessage("") };
}

/** In this dialect, `input_tokens` does not include cached tokens. */
function decodeUsage(usage: JsonObject) {
  const cached = asCount(usage.cache_read_input_tokens);
  return {
    inputTokens: asCount(usage.input_tokens) + cached + asCount(usage.cache_creation_input_tokens),
    cachedInputTokens: cached,
    outputTokens: asCount(usage.output_tokens),
    reasoningOutputTokens: 0,
  };
}
