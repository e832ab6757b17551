import assert from "node:assert/strict";
import { after, test } from "node:test";
import { chatCompletionsDialect } from "../../../src/agent/api/chat-completions-dialect.ts";
import { createHttpModelApi } from "../../../src/agent/api/http-model-api.ts";
import type { ModelRequest } from "../../../src/agent/api/model-api.ts";
import { createModelCaller, type ModelAnswer } from "../../../src/agent/api/model-caller.ts";
import { ModelError } from "../../../src/agent/api/model-error.ts";
import { chatCall, chatCalls, chatChunk, chatSays, chatUsage } from "../../support/models/mock-chat.ts";
import { type MockAnswer, type MockHandler, startMockResponses } from "../../support/models/mock-responses.ts";

const request: ModelRequest = {
  model: "m",
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

let answer: MockAnswer | MockHandler = { type: "hang" };
const mock = await startMockResponses((seen) => (typeof answer === "function" ? answer(seen) : answer));
after(() => mock.close());

async function ask(modelRequest: ModelRequest = request): Promise<ModelAnswer> {
  const api = createHttpModelApi(chatCompletionsDialect, { baseUrl: mock.url, apiKey: "secret" });
  try {
    return await createModelCaller({ api, retry: NO_RETRY })(modelRequest, new AbortController().signal);
  } finally {
    api.close();
  }
}

test("a conversation is sent as messages: text, calls and their outputs, images and files", async () => {
  answer = chatSays("hello");
  await ask({
    ...request,
    reasoningEffort: "low",
    forcedTool: "t",
    tools: [{ name: "t", description: "d", parameters: { type: "object" }, strict: true }],
    options: { temperature: 0, maxOutputTokens: 7, serviceTier: "flex", extraBody: { top_k: 3 } },
    input: [
      {
        type: "message",
        role: "user",
        content: [
          { type: "input_text", text: "what is it" },
          { type: "input_image", image_url: "https://x/y.png" },
          { type: "input_file", filename: "a.pdf", file_data: "data:application/pdf;base64,AA==" },
        ],
      },
      { type: "reasoning", summary: [] },
      { type: "message", role: "assistant", content: [{ type: "output_text", text: "let me see" }] },
      { type: "function_call", call_id: "c1", name: "t", arguments: '{"a":1}' },
      { type: "function_call", call_id: "c2", name: "t", arguments: "{}" },
      { type: "function_call_output", call_id: "c1", output: "one" },
      { type: "function_call_output", call_id: "c2", output: "two" },
      { type: "message", role: "user", content: [{ type: "input_text", text: "go on" }] },
    ],
  });
  const seen = mock.requests.at(-1);
  assert.equal(seen?.path, "/v1/chat/completions");
  assert.equal(seen?.headers.authorization, "Bearer secret");
  const call = (id: string, args: string) => ({
    id,
    type: "function",
    function: { name: "t", arguments: args },
  });
  assert.deepEqual(seen?.body, {
    model: "m",
    messages: [
      { role: "system", content: "be brief" },
      {
        role: "user",
        content: [
          { type: "text", text: "what is it" },
          { type: "image_url", image_url: { url: "https://x/y.png" } },
          { type: "file", file: { filename: "a.pdf", file_data: "data:application/pdf;base64,AA==" } },
        ],
      },
      { role: "assistant", content: "let me see", tool_calls: [call("c1", '{"a":1}'), call("c2", "{}")] },
      { role: "tool", tool_call_id: "c1", content: "one" },
      { role: "tool", tool_call_id: "c2", content: "two" },
      { role: "user", content: "go on" },
    ],
    tools: [
      {
        type: "function",
        function: { name: "t", description: "d", parameters: { type: "object" }, strict: true },
      },
    ],
    tool_choice: { type: "function", function: { name: "t" } },
    reasoning_effort: "low",
    temperature: 0,
    max_tokens: 7,
    service_tier: "flex",
    stream: true,
    stream_options: { include_usage: true },
    prompt_cache_key: "key",
    parallel_tool_calls: false,
    top_k: 3,
  });
});

test("interleaved chunks of calls are assembled, with text, reasoning and usage", async () => {
  answer = {
    type: "sse",
    events: [
      chatChunk({ role: "assistant", reasoning_content: "hm" }),
      chatChunk({ content: "look" }),
      ...chatCall(0, "c1", "t", { a: "één" }),
      ...chatCall(1, "c2", "t", { b: 2 }),
      chatChunk({}, "tool_calls"),
      chatUsage(),
    ],
  };
  const { items, usage } = await ask();
  assert.deepEqual(usage, {
    inputTokens: 10,
    cachedInputTokens: 4,
    outputTokens: 5,
    reasoningOutputTokens: 2,
  });
  assert.deepEqual(
    items.map((item) => (item.type === "functionCall" ? [item.callId, item.arguments] : item.type)),
    ["reasoning", "message", ["c1", '{"a":"één"}'], ["c2", '{"b":2}']],
  );
});

test("calls without an index, complete calls in one chunk, and a stream without [DONE] are decoded", async () => {
  const whole = (id: string, args: unknown) =>
    chatChunk({ tool_calls: [{ id, type: "function", function: { name: "t", arguments: args } }] });
  const events = [whole("x", '{"a":1}'), whole("y", { b: 2 }), chatChunk({}, "stop")];
  answer = { type: "raw", text: events.map((event) => `data: ${JSON.stringify(event)}\n\n`).join("") };
  const { items } = await ask();
  assert.deepEqual(
    items.map((item) => (item.type === "functionCall" ? item.arguments : item.type)),
    ['{"a":1}', '{"b":2}'],
  );
});

test("an incomplete answer and a rejected request fail with the matching error kind", async () => {
  const status = (code: number, error: object, headers = {}): MockAnswer => ({
    type: "status",
    status: code,
    body: { error },
    headers,
  });
  const cases: [MockAnswer, ModelError["kind"]][] = [
    [chatSays("half", "length"), "invalid_request"],
    [chatSays("", "content_filter"), "refused"],
    [{ type: "cut", events: [chatChunk({ content: "ha" })] }, "transport"],
    [{ type: "sse", events: [chatChunk({ content: "ha" }), { error: { message: "x", code: 502 } }] }, "server"],
    [{ type: "sse", events: [{ error: { message: "slow", code: 429 } }] }, "rate_limit"],
    [
      status(429, { message: "slow down", type: "tokens", code: "rate_limit_exceeded" }, { "retry-after": "3" }),
      "rate_limit",
    ],
    [status(429, { message: "pay", code: "insufficient_quota" }), "quota"],
    [status(401, { message: "who", code: "invalid_api_key" }), "auth"],
    [status(400, { message: "This model's maximum context length is 4096 tokens", code: 400 }), "context_length"],
    [
      { type: "status", status: 400, body: { object: "error", message: "bad", type: "BadRequestError" } },
      "invalid_request",
    ],
    [{ type: "status", status: 503, body: [{ error: { message: "overloaded" } }] }, "overloaded"],
  ];
  for (const [given, kind] of cases) {
    answer = given;
    await assert.rejects(ask(), (error) => error instanceof ModelError && error.kind === kind, kind);
  }
});

test("a model without tools gets a request for the arguments of the forced call as a JSON answer", async () => {
  answer = ({ body }) =>
    "tools" in body
      ? {
          type: "status",
          status: 400,
          body: { error: { message: "library/gemma does not support tools", type: "api_error" } },
        }
      : chatSays('```json\n{"a":1}\n```');
  const { items } = await ask({
    ...request,
    input: [
      ...request.input,
      { type: "function_call", call_id: "c1", name: "t", arguments: '{"a":0}' },
      { type: "function_call_output", call_id: "c1", output: "a must be 1" },
    ],
  });
  const [item] = items;
  assert.ok(item?.type === "functionCall");
  assert.equal(item.name, "t");
  assert.equal(item.arguments, '{"a":1}');
  const body = mock.requests.at(-1)?.body;
  assert.deepEqual(body?.response_format, {
    type: "json_schema",
    json_schema: { name: "t", schema: { type: "object" }, strict: false },
  });
  assert.match(JSON.stringify(body?.messages), /In place of calling `t`/);
  assert.deepEqual((Array.isArray(body?.messages) ? body.messages : []).slice(2), [
    { role: "assistant", content: '{"a":0}' },
    { role: "user", content: "a must be 1" },
  ]);
});

test("a newer model gets the output limit under the parameter name it accepts", async () => {
  answer = ({ body }) =>
    "max_tokens" in body
      ? {
          type: "status",
          status: 400,
          body: {
            error: {
              message: "Unsupported parameter: 'max_tokens'. Use 'max_completion_tokens' instead.",
              param: "max_tokens",
              code: "unsupported_parameter",
            },
          },
        }
      : chatCalls(...chatCall(0, "c", "t", {}));
  await ask({ ...request, options: { maxOutputTokens: 9 } });
  assert.equal(mock.requests.at(-1)?.body.max_completion_tokens, 9);
});
