import { asArray, asObject, asString, type JsonObject } from "../../base/json-fields.ts";

/** One part of a user message. */
export type ContentPart =
  | { type: "text"; text: string }
  /** `url` may contain the data itself: `data:TYPE;base64,…`. */
  | { type: "image"; url: string }
  | { type: "file"; name: string; url: string };

/** One step of a conversation, for dialects whose history format differs from the Responses API. */
export type ConversationStep =
  | { type: "user"; parts: ContentPart[] }
  | { type: "assistant"; text: string }
  | { type: "call"; callId: string; name: string; arguments: string }
  | { type: "callOutput"; callId: string; output: string }
  /** An item that the dialect itself created and that the next request must contain unchanged. */
  | { type: "own"; raw: JsonObject };

/** Converts history items of the Responses API. Reasoning that other dialects cannot use is dropped. */
export function toConversationSteps(input: readonly JsonObject[]): ConversationStep[] {
  return input.flatMap((item) => readStep(item) ?? []);
}

function readStep(item: JsonObject): ConversationStep | null {
  switch (item.type) {
    case "message":
      return item.role === "assistant"
        ? { type: "assistant", text: textOf(item) }
        : { type: "user", parts: asArray(item.content).flatMap((part) => readPart(asObject(part)) ?? []) };
    case "function_call":
      return {
        type: "call",
        callId: asString(item.call_id),
        name: asString(item.name),
        arguments: asString(item.arguments) || "{}",
      };
    case "function_call_output":
      return { type: "callOutput", callId: asString(item.call_id), output: asString(item.output) };
    case "own":
      return { type: "own", raw: asObject(item.raw) };
    default:
      return null;
  }
}

function readPart(part: JsonObject): ContentPart | null {
  if (part.type === "input_text") return { type: "text", text: asString(part.text) };
  if (part.type === "input_image") return { type: "image", url: asString(part.image_url) };
  if (part.type === "input_file") {
    return {
      type: "file",
      name: asString(part.filename),
      url: asString(part.file_data) || asString(part.file_url),
    };
  }
  return null;
}

function textOf(item: JsonObject): string {
  return asArray(item.content)
    .map((part) => asString(asObject(part).text) || asString(asObject(part).refusal))
    .join("");
}

/** Returns an assistant message as an item of the Responses API. */
export function assistantMessage(text: string): JsonObject {
  return { type: "message", role: "assistant", content: [{ type: "output_text", text }] };
}

/** Returns a tool call as an item of the Responses API. */
export function callItem(callId: string, name: string, args: string): JsonObject {
  return { type: "function_call", call_id: callId, name, arguments: args };
}
