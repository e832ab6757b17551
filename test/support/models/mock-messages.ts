/** The stream of Anthropic's Messages API, after its public description; for `startMockResponses`. */

import type { MockAnswer } from "./mock-responses.ts";

/** Encodes an event. Its type is in the `event` line and in the data. */
export const messagesStream = (...events: { type: string }[]): MockAnswer => ({
  type: "raw",
  text: events.map((event) => `event: ${event.type}\ndata: ${JSON.stringify(event)}\n\n`).join(""),
});

export const messageStart = (usage: Record<string, unknown> = {}) => ({
  type: "message_start",
  message: {
    id: "msg_1",
    type: "message",
    role: "assistant",
    model: "claude",
    content: [],
    stop_reason: null,
    usage: { input_tokens: 10, output_tokens: 1, ...usage },
  },
});

export const ping = { type: "ping" };

export function textBlock(index: number, ...pieces: string[]) {
  return block(index, { type: "text", text: "" }, ...pieces.map((text) => ({ type: "text_delta", text })));
}

export function toolBlock(index: number, id: string, name: string, args: unknown) {
  const json = JSON.stringify(args);
  const half = Math.floor(json.length / 2);
  const pieces = ["", json.slice(0, half), json.slice(half)];
  const deltas = pieces.map((partial) => ({ type: "input_json_delta", partial_json: partial }));
  return block(index, { type: "tool_use", id, name, input: {} }, ...deltas);
}

export function thinkingBlock(index: number, text: string, signature: string) {
  return block(
    index,
    { type: "thinking", thinking: "", signature: "" },
    { type: "thinking_delta", thinking: text },
    { type: "signature_delta", signature },
  );
}

function block(index: number, start: object, ...deltas: object[]) {
  return [
    { type: "content_block_start", index, content_block: start },
    ...deltas.map((delta) => ({ type: "content_block_delta", index, delta })),
    { type: "content_block_stop", index },
  ];
}

export const messageEnd = (stopReason: string, outputTokens = 5) => [
  {
    type: "message_delta",
    delta: { stop_reason: stopReason, stop_sequence: null },
    usage: { output_tokens: outputTokens },
  },
  { type: "message_stop" },
];

export const messagesCall = (id: string, name: string, args: unknown): MockAnswer =>
  messagesStream(messageStart(), ping, ...toolBlock(0, id, name, args), ...messageEnd("tool_use"));
