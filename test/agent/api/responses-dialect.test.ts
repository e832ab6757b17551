import assert from "node:assert/strict";
import { once } from "node:events";
import http from "node:http";
import { after, test } from "node:test";
import { setImmediate } from "node:timers/promises";
import { createHttpModelApi } from "../../../src/agent/api/http-model-api.ts";
import type { ModelRequest } from "../../../src/agent/api/model-api.ts";
import { createModelCaller } from "../../../src/agent/api/model-caller.ts";
import { ModelError } from "../../../src/agent/api/model-error.ts";
import type { ResponseEvent } from "../../../src/agent/api/response-events.ts";
import { responsesDialect } from "../../../src/agent/api/responses-dialect.ts";
import {
  completed,
  created,
  functionCall,
  type MockAnswer,
  message,
  startMockResponses,
} from "../../support/models/mock-responses.ts";

const request: ModelRequest = {
  model: "gpt-5",
  instructions: "be brief",
  input: [{ type: "message", role: "user", content: [{ type: "input_text", text: "hi" }] }],
  tools: [{ name: "t", description: "d", parameters: { type: "object" } }],
  parallelToolCalls: false,
  cacheKey: "key",
};

let answer: MockAnswer = { type: "hang" };
const mock = await startMockResponses(() => answer);
const api = createHttpModelApi(responsesDialect, { baseUrl: `${mock.url}/`, apiKey: "secret" });
after(async () => {
  api.close();
  await mock.close();
});

async function ask(signal = new AbortController().signal, from = api): Promise<ResponseEvent[]> {
  const events: ResponseEvent[] = [];
  await from.send(request, signal, { onEvent: (event) => events.push(event) });
  return events;
}

test("a request has the members that the Responses API requires and asks it to store nothing", async () => {
  answer = { type: "sse", events: [created(), completed()] };
  await ask();
  const seen = mock.requests.at(-1);
  assert.equal(seen?.path, "/v1/responses");
  assert.equal(seen?.headers.authorization, "Bearer secret");
  assert.equal(seen?.headers.accept, "text/event-stream");
  assert.deepEqual(seen?.body, {
    model: "gpt-5",
    instructions: "be brief",
    input: [{ type: "message", role: "user", content: [{ type: "input_text", text: "hi" }] }],
    tools: [{ type: "function", name: "t", description: "d", strict: false, parameters: { type: "object" } }],
    tool_choice: "auto",
    parallel_tool_calls: false,
    store: false,
    stream: true,
    include: ["reasoning.encrypted_content"],
    prompt_cache_key: "key",
  });
});

test("items, text and usage are decoded; unknown events and text that is not JSON are skipped", async () => {
  answer = {
    type: "raw",
    text: [
      "data: not json\n\n",
      'data: {"type":"response.new_kind"}\n\n',
      'data: {"type":"response.output_text.delta","delta":"he"}\n\n',
      `event: x\ndata: ${JSON.stringify(message("hello"))}\n\n`,
      `data: ${JSON.stringify(functionCall("c1", "t", { a: 1 }))}\n\n`,
      `data: ${JSON.stringify(completed({ input: 10, cached: 4, output: 3 }))}\n\n`,
      "data: [DONE]\n\n",
    ].join(""),
  };
  assert.deepEqual(await ask(), [
    {
      type: "itemDone",
      item: {
        type: "message",
        text: "hello",
        refusal: null,
        raw: { type: "message", role: "assistant", content: [{ type: "output_text", text: "hello" }] },
      },
    },
    {
      type: "itemDone",
      item: {
        type: "functionCall",
        callId: "c1",
        name: "t",
        arguments: '{"a":1}',
        raw: { type: "function_call", call_id: "c1", name: "t", arguments: '{"a":1}' },
      },
    },
    {
      type: "completed",
      usage: { inputTokens: 10, cachedInputTokens: 4, outputTokens: 3, reasoningOutputTokens: 0 },
      output: [],
    },
  ]);
});

for (const [name, lineEnd] of [
  ["LF", "\n"],
  ["CR LF", "\r\n"],
  ["CR", "\r"],
] as const) {
  test(`a stream with ${name} line ends is decoded for any chunk boundaries`, async () => {
    const events = [created(), message("é and 😀"), completed()];
    const lines = [": keep-alive", ...events.flatMap((event) => [`data: ${JSON.stringify(event)}`, ""]), ":"];
    const bytes = Buffer.from(lines.map((line) => `${line}${lineEnd}`).join(""));
    // One byte a chunk cuts everywhere at once: in a line end, in a character, in a field's name.
    const drip = async (outgoing: http.ServerResponse) => {
      outgoing.writeHead(200, { "content-type": "text/event-stream" });
      outgoing.socket?.setNoDelay(true);
      for (const byte of bytes) {
        outgoing.write(Buffer.of(byte));
        await setImmediate();
      }
      outgoing.end();
    };
    const server = http.createServer((incoming, outgoing) => {
      incoming.resume();
      void drip(outgoing);
    });
    server.listen(0, "127.0.0.1");
    await once(server, "listening");
    const address = server.address();
    const port = typeof address === "object" ? address?.port : 0;
    const own = createHttpModelApi(responsesDialect, { baseUrl: `http://127.0.0.1:${port}`, apiKey: undefined });
    try {
      const [item, end] = await ask(undefined, own);
      assert.equal(item?.type === "itemDone" && item.item.type === "message" && item.item.text, "é and 😀");
      assert.equal(end?.type, "completed");
    } finally {
      own.close();
      server.close();
    }
  });
}

test("a connection is reused for the next request", async () => {
  answer = { type: "sse", events: [created(), completed()] };
  const counting = await startMockResponses(() => answer);
  const own = createHttpModelApi(responsesDialect, { baseUrl: counting.url, apiKey: undefined });
  try {
    for (let round = 0; round < 5; round++) await ask(undefined, own);
    assert.equal(counting.requests.length, 5);
    assert.equal(counting.connections, 1);
  } finally {
    own.close();
    await counting.close();
  }
});

test("an answer is complete with response.completed, even if its stream does not end", async () => {
  answer = { type: "sse", events: [created(), message("done"), completed()], keepOpen: true };
  assert.equal((await ask()).at(-1)?.type, "completed");
});

const faults: { what: string; answer: MockAnswer; expected: Partial<ModelError> }[] = [
  {
    what: "429 with Retry-After",
    answer: {
      type: "status",
      status: 429,
      headers: { "retry-after": "7" },
      body: { error: { code: "rate_limit_exceeded", message: "slow down" } },
    },
    expected: { kind: "rate_limit", retryable: true, retryAfterMs: 7_000, status: 429 },
  },
  {
    what: "429 with a Retry-After of zero",
    answer: { type: "status", status: 429, headers: { "retry-after": "0" }, body: "slow down" },
    expected: { kind: "rate_limit", retryAfterMs: undefined },
  },
  {
    what: "503 with a Retry-After in the past",
    answer: { type: "status", status: 503, headers: { "retry-after": "Wed, 21 Oct 2015 07:28:00 GMT" }, body: "" },
    expected: { kind: "overloaded", retryAfterMs: undefined },
  },
  {
    what: "429 with a Retry-After by an API whose clock is slow",
    answer: {
      type: "status",
      status: 429,
      headers: { date: "Wed, 21 Oct 2015 07:28:00 GMT", "retry-after": "Wed, 21 Oct 2015 07:28:07 GMT" },
      body: "slow down",
    },
    expected: { kind: "rate_limit", retryAfterMs: 7_000 },
  },
  {
    what: "429 with the delay in its text",
    answer: { type: "status", status: 429, body: { error: { message: "Please try again in 250ms." } } },
    expected: { kind: "rate_limit", retryAfterMs: 250 },
  },
  {
    what: "429 for a used-up quota",
    answer: { type: "status", status: 429, body: { error: { code: "insufficient_quota", message: "pay" } } },
    expected: { kind: "quota", retryable: false },
  },
  {
    what: "503",
    answer: { type: "status", status: 503, body: { error: { code: "server_is_overloaded" } } },
    expected: { kind: "overloaded", retryable: true },
  },
  {
    what: "500 with a page instead of JSON",
    answer: { type: "status", status: 500, body: "<html>oops</html>" },
    expected: { kind: "server", retryable: true, message: "the API answered 500: <html>oops</html>" },
  },
  {
    what: "401",
    answer: { type: "status", status: 401, body: { error: { message: "bad key" } } },
    expected: { kind: "auth", retryable: false },
  },
  {
    what: "400 for a prompt that is too long",
    answer: {
      type: "status",
      status: 400,
      body: { error: { code: "context_length_exceeded", message: "long" } },
    },
    expected: { kind: "context_length", retryable: false },
  },
  {
    what: "400",
    answer: { type: "status", status: 400, body: { error: { message: "no such model" } } },
    expected: { kind: "invalid_request", retryable: false, message: "the API answered 400: no such model" },
  },
  {
    what: "a stream that is cut",
    answer: { type: "cut", events: [created(), message("half")] },
    expected: { kind: "transport", retryable: true },
  },
  {
    what: "a stream that ends early",
    answer: { type: "raw", text: `data: ${JSON.stringify(created())}\n\n` },
    expected: {
      kind: "transport",
      retryable: true,
      message: "the stream was closed before its end",
    },
  },
  { what: "a reset", answer: { type: "reset" }, expected: { kind: "transport", retryable: true } },
  {
    what: "garbage",
    answer: { type: "raw", text: "<html>hello</html>", contentType: "text/html" },
    expected: { kind: "transport", retryable: true },
  },
];
for (const fault of faults) {
  test(`${fault.what} rejects with the error kind ${fault.expected.kind}`, async () => {
    answer = fault.answer;
    const error = await ask().then(
      () => assert.fail("it answered"),
      (reason: unknown) => reason,
    );
    assert.ok(error instanceof ModelError);
    for (const [key, value] of Object.entries(fault.expected)) {
      assert.equal(Reflect.get(error, key), value, key);
    }
  });
}

test("a silent server fails the call after the idle timeout", async () => {
  answer = { type: "hang" };
  const impatient = createHttpModelApi(responsesDialect, { baseUrl: mock.url, apiKey: undefined, idleTimeoutMs: 50 });
  try {
    await assert.rejects(ask(undefined, impatient), {
      name: "ModelError",
      kind: "transport",
      message: "the API was silent for 0.05 s",
    });
  } finally {
    impatient.close();
  }
});

test("an abort rejects with its own reason, before and after the answer has begun", async () => {
  const reason = new Error("enough");
  answer = { type: "hang" };
  const before = new AbortController();
  const pending = ask(before.signal);
  before.abort(reason);
  await assert.rejects(pending, reason);

  answer = { type: "sse", events: [created(), message("half")], keepOpen: true };
  const during = new AbortController();
  const reading = api.send(request, during.signal, {
    onEvent: (event) => {
      if (event.type === "itemDone") during.abort(reason);
    },
  });
  await assert.rejects(reading, reason);
});

test("a refused connection is a transport error", async () => {
  const gone = await startMockResponses(() => ({ type: "hang" }));
  await gone.close();
  const lonely = createHttpModelApi(responsesDialect, { baseUrl: gone.url, apiKey: undefined });
  await assert.rejects(ask(undefined, lonely), {
    kind: "transport",
    code: "ECONNREFUSED",
    retryable: true,
  });
});

test("later requests omit a parameter that the API rejects, unless the user set it", async () => {
  const refusing = await startMockResponses(({ body }) => {
    const refused = ["include", "prompt_cache_key", "temperature"].find((name) => name in body);
    return refused === undefined
      ? { type: "sse", events: [created(), completed()] }
      : {
          type: "status",
          status: 400,
          body: { error: { message: `Unsupported parameter: ${refused}`, param: refused, code: null } },
        };
  });
  const own = createHttpModelApi(responsesDialect, { baseUrl: refusing.url, apiKey: undefined });
  const call = createModelCaller({ api: own });
  const { signal } = new AbortController();
  await Promise.all([call(request, signal), call(request, signal), call(request, signal)]);
  const before = refusing.requests.length;
  await call(request, signal);
  assert.equal(refusing.requests.length, before + 1, "what was learnt stays");
  await assert.rejects(call({ ...request, options: { temperature: 0 } }, signal), /temperature/);
  assert.equal(refusing.requests.length, before + 2);
  own.close();
  await refusing.close();
});

test("encrypted reasoning is requested only from models that support it", async () => {
  answer = { type: "sse", events: [created(), completed()] };
  for (const [model, isAsked] of [
    ["o4-mini", true],
    ["openai/gpt-5.1", true],
    ["gpt-4o-mini", false],
    ["llama3", false],
  ] as const) {
    await api.send({ ...request, model }, new AbortController().signal, { onEvent: () => undefined });
    assert.equal("include" in (mock.requests.at(-1)?.body ?? {}), isAsked, model);
  }
});
