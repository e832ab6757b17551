/** The stream of a Chat Completions server, after the public description of that API; for `startMockResponses`. */

import type { MockAnswer, MockRequest } from "./mock-responses.ts";

export const chatChunk = (
  delta: object,
  finishReason: string | null = null,
  extra: Record<string, unknown> = {},
): object => ({
  id: "chatcmpl-1",
  object: "chat.completion.chunk",
  created: 1,
  model: "m",
  choices: [{ index: 0, delta, logprobs: null, finish_reason: finishReason }],
  ...extra,
});

/** The last chunk before `[DONE]`, if the request set `stream_options.include_usage`. */
export const chatUsage = (prompt = 10, completion = 5, cached = 4): object => ({
  id: "chatcmpl-1",
  object: "chat.completion.chunk",
  created: 1,
  model: "m",
  choices: [],
  usage: {
    prompt_tokens: prompt,
    completion_tokens: completion,
    total_tokens: prompt + completion,
    prompt_tokens_details: { cached_tokens: cached },
    completion_tokens_details: { reasoning_tokens: 2 },
  },
});

/** Returns a tool call in chunks: its name, then its arguments in two chunks. */
export function chatCall(index: number, id: string, name: string, args: unknown): object[] {
  const text = JSON.stringify(args);
  const half = Math.floor(text.length / 2);
  const piece = (call: object) => chatChunk({ tool_calls: [{ index, ...call }] });
  return [
    piece({ id, type: "function", function: { name, arguments: "" } }),
    piece({ function: { arguments: text.slice(0, half) } }),
    piece({ function: { arguments: text.slice(half) } }),
  ];
}

export const chatSays = (text: string, finishReason = "stop"): MockAnswer => ({
  type: "sse",
  events: [
    chatChunk({ role: "assistant", content: "" }),
    chatChunk({ content: text }),
    chatChunk({}, finishReason),
    chatUsage(),
  ],
});

export const chatCalls = (...calls: object[]): MockAnswer => ({
  type: "sse",
  events: [chatChunk({ role: "assistant", content: null }), ...calls, chatChunk({}, "tool_calls"), chatUsage()],
});

/** Returns the report of a row agent for its item. */
export function chatReport(request: MockRequest, result: unknown): MockAnswer {
  return chatCalls(...chatCall(0, "call-1", "report_agent_job_result", reportArguments(request, result)));
}

export function reportArguments({ item }: MockRequest, result: unknown): object {
  return { job_id: item?.jobId, item_id: item?.itemId, result };
}
