import { asArray, asCount, asObject, asString, type JsonObject, parseObject } from "../../base/json-fields.ts";
import { isObject } from "../../base/type-guards.ts";
import { NO_USAGE, type TokenUsage } from "../token-usage.ts";

export type { JsonObject } from "../../base/json-fields.ts";

/** An output item of a model, as in `output_item.done` of the Responses API. The next request contains `raw`. */
export type OutputItem =
  | { type: "message"; text: string; refusal: string | null; raw: JsonObject }
  | { type: "functionCall"; callId: string; name: string; arguments: string; raw: JsonObject }
  | { type: "reasoning"; summary: string; raw: JsonObject }
  | { type: "other"; raw: JsonObject };

export type ResponseEvent =
  | { type: "itemDone"; item: OutputItem }
  /** `output` repeats the items; some servers send them only here. */
  | { type: "completed"; usage: TokenUsage; output: OutputItem[] }
  | { type: "failed"; code: string | undefined; message: string }
  | { type: "incomplete"; reason: string; usage: TokenUsage };

/** Decodes an event. Returns null for unknown types, for `[DONE]`, and for data that is not JSON. */
export function decodeResponseEvent(data: string): ResponseEvent | null {
  const event = parseObject(data);
  if (!event) return null;
  const response = asObject(event.response);
  switch (event.type) {
    case "response.output_item.done": {
      const item = decodeItem(event.item);
      return item ? { type: "itemDone", item } : null;
    }
    case "response.completed":
    case "response.done":
      return {
        type: "completed",
        usage: decodeUsage(response.usage),
        output: asArray(response.output).flatMap((item) => decodeItem(item) ?? []),
      };
    case "response.failed": {
      const error = asObject(response.error);
      return { type: "failed", code: asString(error.code) || undefined, message: asString(error.message) };
    }
    case "error": {
      const error = event.error === undefined ? event : asObject(event.error);
      return { type: "failed", code: asString(error.code) || undefined, message: asString(error.message) };
    }
    case "response.incomplete":
      return {
        type: "incomplete",
        reason: asString(asObject(response.incomplete_details).reason) || "unknown",
        usage: decodeUsage(response.usage),
      };
    default:
      return null;
  }
}

function decodeItem(value: unknown): OutputItem | null {
  if (!isObject(value) || typeof value.type !== "string") return null;
  const raw = withoutServerFields(value);
  switch (value.type) {
    case "message": {
      const parts = asArray(value.content).map(asObject);
      const refusal = parts.find((part) => part.type === "refusal");
      return {
        type: "message",
        text: parts.map((part) => (part.type === "output_text" ? asString(part.text) : "")).join(""),
        refusal: refusal ? asString(refusal.refusal) : null,
        raw,
      };
    }
    case "function_call":
      return {
        type: "functionCall",
        callId: asString(value.call_id) || asString(value.id),
        name: asString(value.name),
        arguments: asString(value.arguments),
        raw,
      };
    case "reasoning":
      return {
        type: "reasoning",
        summary: asArray(value.summary)
          .map((part) => asString(asObject(part).text))
          .join("\n"),
        raw,
      };
    default:
      return { type: "other", raw };
  }
}

/** With `store: false`, the server rejects its own item ids in the input. */
function withoutServerFields(item: JsonObject): JsonObject {
  const { id: _id, status: _status, ...rest } = item;
  return rest;
}

function decodeUsage(value: unknown): TokenUsage {
  if (!isObject(value)) return NO_USAGE;
  return {
    inputTokens: asCount(value.input_tokens),
    cachedInputTokens: asCount(asObject(value.input_tokens_details).cached_tokens),
    outputTokens: asCount(value.output_tokens),
    reasoningOutputTokens: asCount(asObject(value.output_tokens_details).reasoning_tokens),
  };
}
