import assert from "node:assert/strict";
import { after, test } from "node:test";
import { anthropicDialect } from "../../../src/agent/api/anthropic-dialect.ts";
import { createHttpModelApi } from "../../../src/agent/api/http-model-api.ts";
import type { ModelRequest, ResponseHeaders } from "../../../src/agent/api/model-api.ts";
import { createModelCaller, type ModelAnswer } from "../../../src/agent/api/model-caller.ts";
import { ModelError } from "../../../src/agent/api/model-error.ts";
import {
  messageEnd,
  messageStart,
  messagesCall,
  messagesStream,
  ping,
  textBlock,
  thinkingBlock,
  toolBlock,
} from "../../support/models/mock-messages.ts";
import { type MockAnswer, startMockResponses } from "../../support/models/mock-responses.ts";

const request: ModelRequest = {
  model: "claude",
  instructions: "be brief",
  input: [{ type: "message", role: "user", content: [{ type: "input_text", text: "hi" }] }],
  tools: [{ name: "t", description: "d", parameters: { type: "object" } }],
  parallelToolCalls: false,
  cacheKey: "key",
};
const NO_RETRY = {
  transportRetries: 0,
  rateLimitRetries: 0,
  baseDelayMs: 1,
  maxDelayMs: 1,
  maxRetryAfterMs: 1e6,
};

let answer: MockAnswer = { type: "hang" };
const mock = await startMockResponses(() => answer);
const api = createHttpModelApi(anthropicDialect, { baseUrl: mock.url, apiKey: "secret" });
after(async () => {
  api.close();
  await mock.close();
});

const ask = (modelRequest: ModelRequest = request): Promise<ModelAnswer> =>
  createModelCaller({ api, retry: NO_RETRY })(modelRequest, new AbortController().signal);

test("a conversation is sent as messages of blocks, with an output limit and a cache marker after the common part", async () => {
  answer = messagesCall("c", "t", {});
  await ask({
    ...request,
    forcedTool: "t",
    reasoningEffort: "low",
    options: { temperature: 1, extraBody: { top_k: 3 } },
    input: [
      {
        type: "message",
        role: "user",
        content: [
          { type: "input_text", text: "what is it" },
          { type: "input_image", image_url: "data:image/png;base64,AA==" },
          { type: "input_file", filename: "a.pdf", file_url: "https://x/a.pdf" },
        ],
      },
      { type: "own", raw: { type: "thinking", thinking: "hm", signature: "s" } },
      { type: "function_call", call_id: "c1", name: "t", arguments: '{"a":1}' },
      { type: "function_call_output", call_id: "c1", output: "one" },
      { type: "message", role: "user", content: [{ type: "input_text", text: "go on" }] },
    ],
  });
  const seen = mock.requests.at(-1);
  assert.equal(seen?.path, "/v1/messages");
  assert.equal(seen?.headers["x-api-key"], "secret");
  assert.equal(seen?.headers.authorization, undefined);
  assert.equal(seen?.headers["anthropic-version"], "2023-06-01");
  assert.deepEqual(seen?.body, {
    model: "claude",
    max_tokens: 8192,
    system: [{ type: "text", text: "be brief", cache_control: { type: "ephemeral" } }],
    messages: [
      {
        role: "user",
        content: [
          { type: "text", text: "what is it" },
          { type: "image", source: { type: "base64", media_type: "image/png", data: "AA==" } },
          { type: "document", source: { type: "url", url: "https://x/a.pdf" } },
        ],
      },
      {
        role: "assistant",
        content: [
          { type: "thinking", thinking: "hm", signature: "s" },
          { type: "tool_use", id: "c1", name: "t", input: { a: 1 } },
        ],
      },
      {
        role: "user",
        content: [
          { type: "tool_result", tool_use_id: "c1", content: "one" },
          { type: "text", text: "go on" },
        ],
      },
    ],
    tools: [{ name: "t", description: "d", input_schema: { type: "object" } }],
    tool_choice: { type: "tool", name: "t", disable_parallel_tool_use: true },
    output_config: { effort: "low" },
    temperature: 1,
    stream: true,
    top_k: 3,
  });
});

test("blocks are assembled; cached tokens count as input; thinking is sent back unchanged", async () => {
  answer = messagesStream(
    messageStart({ cache_read_input_tokens: 100, cache_creation_input_tokens: 20 }),
    ping,
    ...thinkingBlock(0, "hm", "sig"),
    ...textBlock(1, "look", " here"),
    ...toolBlock(2, "c1", "t", { a: "één" }),
    ...messageEnd("tool_use", 7),
  );
  const { items, usage } = await ask();
  assert.deepEqual(usage, {
    inputTokens: 130,
    cachedInputTokens: 100,
    outputTokens: 7,
    reasoningOutputTokens: 0,
  });
  const [thinking, words, call] = items;
  assert.deepEqual(thinking?.raw, {
    type: "own",
    raw: { type: "thinking", thinking: "hm", signature: "sig" },
  });
  assert.ok(words?.type === "message" && words.text === "look here");
  assert.ok(call?.type === "functionCall" && call.arguments === '{"a":"één"}' && call.callId === "c1");
});

test("an incomplete answer and a rejected request fail with the matching error kind", async () => {
  const status = (code: number, type: string, message = "x"): MockAnswer => ({
    type: "status",
    status: code,
    body: { type: "error", error: { type, message }, request_id: "req_1" },
  });
  const cases: [MockAnswer, ModelError["kind"]][] = [
    [messagesStream(messageStart(), ...textBlock(0, "half"), ...messageEnd("max_tokens")), "invalid_request"],
    [messagesStream(messageStart(), ...textBlock(0, "half")), "transport"],
    [
      messagesStream(messageStart(), {
        type: "error",
        ...{ error: { type: "overloaded_error", message: "x" } },
      }),
      "overloaded",
    ],
    [status(429, "rate_limit_error"), "rate_limit"],
    [status(529, "overloaded_error"), "overloaded"],
    [status(401, "authentication_error"), "auth"],
    [status(403, "permission_error"), "auth"],
    [status(413, "request_too_large"), "context_length"],
    [status(400, "invalid_request_error", "prompt is too long: 9 tokens > 8 maximum"), "context_length"],
    [status(400, "invalid_request_error", "Your credit balance is too low to access the API"), "quota"],
    [status(400, "invalid_request_error", "messages: at least one"), "invalid_request"],
    [status(500, "api_error"), "server"],
  ];
  for (const [given, kind] of cases) {
    answer = given;
    await assert.rejects(ask(), (error) => error instanceof ModelError && error.kind === kind, kind);
  }
  answer = messagesStream(messageStart(), ...textBlock(0, "I will not"), ...messageEnd("refusal"));
  const last = (await ask()).items.at(-1);
  assert.ok(last?.type === "message" && last.refusal === "I will not");
});

test("rate-limit headers are translated to the names that the limiter reads", async () => {
  const reset = new Date(Date.now() + 30_000).toISOString();
  const headers = {
    "anthropic-ratelimit-requests-remaining": "12",
    "anthropic-ratelimit-requests-reset": reset,
    "anthropic-ratelimit-input-tokens-remaining": "0",
    "anthropic-ratelimit-input-tokens-reset": reset,
  };
  const seen: ResponseHeaders = anthropicDialect.limitHeaders?.(headers) ?? {};
  assert.equal(seen["x-ratelimit-remaining-requests"], undefined);
  assert.equal(seen["x-ratelimit-remaining-tokens"], "0");
  assert.match(String(seen["x-ratelimit-reset-tokens"]), /^\d+ms$/);
  // The clock of the API decides, because the reset time is of that clock.
  const date = new Date(Date.parse(reset) - 4_000).toUTCString();
  const inFourSeconds = anthropicDialect.limitHeaders?.({ ...headers, date }) ?? {};
  assert.match(String(inFourSeconds["x-ratelimit-reset-tokens"]), /^[45]\d{3}ms$/);
});
