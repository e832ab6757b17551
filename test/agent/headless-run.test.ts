import assert from "node:assert/strict";
import { PassThrough } from "node:stream";
import { test } from "node:test";
import { createHttpModelApi } from "../../src/agent/api/http-model-api.ts";
import { createModelCaller } from "../../src/agent/api/model-caller.ts";
import { responsesDialect } from "../../src/agent/api/responses-dialect.ts";
import { type HeadlessRunOptions, type RunContext, runHeadless } from "../../src/agent/headless-run.ts";
import { HumanOutput } from "../../src/agent/output/human-output.ts";
import { JsonlOutput } from "../../src/agent/output/jsonl-output.ts";
import type { Tool } from "../../src/tools/tool.ts";
import {
  answer,
  functionCall,
  type MockHandler,
  message,
  says,
  startMockResponses,
} from "../support/models/mock-responses.ts";

class Capture extends PassThrough {
  text = "";
  constructor() {
    super();
    this.setEncoding("utf8");
    this.on("data", (chunk: string) => {
      this.text += chunk;
    });
  }
  get events(): Record<string, unknown>[] {
    return this.text
      .split("\n")
      .filter((line) => line !== "")
      .map((line) => JSON.parse(line));
  }
}

/** Warnings are items of type error. */
function warningsOf(stdout: Capture): string[] {
  return stdout.events.flatMap(({ item }) => {
    const { type, message: text } = (item ?? {}) as { type?: string; message?: string };
    return type === "error" ? [String(text)] : [];
  });
}

interface Setup {
  handler: MockHandler;
  tools?: (context: RunContext) => Tool[];
  json?: boolean;
  signal?: AbortSignal;
  streamCapacity?: number;
}

async function run(setup: Setup) {
  const mock = await startMockResponses(setup.handler);
  const api = createHttpModelApi(responsesDialect, { baseUrl: mock.url, apiKey: undefined });
  const stdout = new Capture();
  const stderr = new Capture();
  let ids = 0;
  let closed = 0;
  const options: HeadlessRunOptions = {
    prompt: "do it",
    model: "m",
    instructions: "",
    callModel: createModelCaller({ api }),
    createTools: async (context) => ({
      tools: setup.tools?.(context) ?? [],
      close: async () => {
        closed++;
      },
    }),
    output: setup.json === false ? new HumanOutput({ stdout, stderr, banner: ["hello"] }) : new JsonlOutput(stdout),
    signal: setup.signal ?? new AbortController().signal,
    newId: () => `id-${++ids}`,
    ...(setup.streamCapacity === undefined ? {} : { streamCapacity: setup.streamCapacity }),
  };
  try {
    const { type: end, lastMessage } = await runHeadless(options);
    assert.equal(closed, 1);
    return { end, lastMessage, stdout, stderr, mock };
  } finally {
    api.close();
    await mock.close();
  }
}

const toolNamed = (name: string, call: Tool["call"]): Tool => ({
  definition: { name, description: "", parameters: { type: "object" } },
  call,
});

test("a run emits its thread, turn, items and usage as JSON lines", async () => {
  const { end, stdout } = await run({
    handler: (request) =>
      request.index === 0 ? answer(message("looking"), functionCall("c", "look", { at: "sky" })) : says("blue"),
    tools: () => [toolNamed("look", async () => ({ text: "it is blue", ok: true }))],
  });
  assert.equal(end, "completed");
  assert.deepEqual(stdout.events, [
    { type: "thread.started", thread_id: "id-1" },
    { type: "turn.started" },
    { type: "item.completed", item: { id: "item_0", type: "agent_message", text: "looking" } },
    {
      type: "item.started",
      item: {
        id: "item_1",
        type: "tool_call",
        tool: "look",
        arguments: { at: "sky" },
        output: "",
        status: "in_progress",
      },
    },
    {
      type: "item.completed",
      item: {
        id: "item_1",
        type: "tool_call",
        tool: "look",
        arguments: { at: "sky" },
        output: "it is blue",
        status: "completed",
      },
    },
    { type: "item.completed", item: { id: "item_2", type: "agent_message", text: "blue" } },
    {
      type: "turn.completed",
      usage: {
        input_tokens: 2,
        cached_input_tokens: 0,
        output_tokens: 2,
        reasoning_output_tokens: 0,
        cache_write_input_tokens: 0,
      },
    },
  ]);
});

test("stdout contains only the final message, stderr everything else", async () => {
  const { end, lastMessage, stdout, stderr } = await run({ handler: () => says("forty-two"), json: false });
  assert.equal(end, "completed");
  assert.equal(lastMessage, "forty-two");
  assert.equal(stdout.text, "forty-two\n");
  assert.equal(stderr.text, "hello\nagent\nforty-two\ntokens used: 2\n");
});

test("a turn that fails emits an error and then the failed turn", async () => {
  const { end, stdout } = await run({
    handler: () => ({ type: "status", status: 400, body: { error: { message: "no such model" } } }),
  });
  assert.equal(end, "failed");
  assert.deepEqual(stdout.events.slice(-2), [
    { type: "error", message: "the API answered 400: no such model" },
    { type: "turn.failed", error: { message: "the API answered 400: no such model" } },
  ]);
});

test("a retry is reported with its count, and the run completes", async () => {
  const { end, stdout } = await run({
    handler: (request) => (request.index === 0 ? { type: "status", status: 500 } : says("ok")),
  });
  assert.equal(end, "completed");
  const errors = stdout.events.flatMap((event) => (event.type === "error" ? [event.message] : []));
  assert.deepEqual(errors, ["Reconnecting... 1/5 (the API answered 500)"]);
});

test("completions and shutdowns of workers do not end the run", async () => {
  const { end, stdout } = await run({
    handler: (request) => (request.index === 0 ? answer(functionCall("c", "spawn", {})) : says("all done")),
    tools: (context) => [
      toolNamed("spawn", async () => {
        for (const worker of ["w1", "w2"]) {
          const turn = { id: context.turnId, items: [], status: "failed" as const, error: { message: "no" } };
          context.notify({ method: "turn/completed", threadId: worker, turn });
          context.notify({ method: "error", threadId: worker, turnId: "x", message: "no", willRetry: false });
          context.notify({ method: "thread/closed", threadId: worker });
        }
        context.notify({
          method: "turn/completed",
          threadId: context.threadId,
          turn: { id: "other turn", items: [], status: "completed", error: null },
        });
        return { text: "spawned", ok: true };
      }),
    ],
  });
  assert.equal(end, "completed");
  assert.equal(stdout.events.at(-1)?.type, "turn.completed");
});

test("an error of the primary turn that will not be retried fails the run although the turn completes", async () => {
  const { end } = await run({
    handler: (request) => (request.index === 0 ? answer(functionCall("c", "bad", {})) : says("done")),
    tools: ({ notify, threadId, turnId }) => [
      toolNamed("bad", async () => {
        notify({ method: "error", threadId, turnId, message: "lost", willRetry: false }, { required: true });
        return { text: "", ok: true };
      }),
    ],
  });
  assert.equal(end, "failed");
});

test("the tokens of workers are counted in the usage and reported separately", async () => {
  const { stdout } = await run({
    handler: (request) => (request.index === 0 ? answer(functionCall("c", "spawn", {})) : says("done")),
    tools: (context) => [
      toolNamed("spawn", async () => {
        const usage = { inputTokens: 100, cachedInputTokens: 50, outputTokens: 10, reasoningOutputTokens: 1 };
        context.addSubagentsUsage(usage);
        return { text: "", ok: true };
      }),
    ],
  });
  assert.deepEqual(stdout.events.at(-1), {
    type: "turn.completed",
    usage: {
      input_tokens: 102,
      cached_input_tokens: 50,
      output_tokens: 12,
      reasoning_output_tokens: 1,
      cache_write_input_tokens: 0,
    },
    workers_usage: {
      input_tokens: 100,
      cached_input_tokens: 50,
      output_tokens: 10,
      reasoning_output_tokens: 1,
    },
  });
});

test("events beyond the capacity of the stream are dropped, counted and reported as a warning; the end still arrives", async () => {
  const { end, stdout } = await run({
    handler: (request) => (request.index === 0 ? answer(functionCall("c", "chatty", {})) : says("done")),
    tools: ({ notify, threadId, turnId }) => [
      toolNamed("chatty", async () => {
        // All in one tick, so that the reader cannot read in between.
        for (let n = 0; n < 50; n++) {
          notify({
            method: "tool/event",
            threadId,
            turnId,
            event: { json: JSON.stringify({ type: "job.progress", n }) },
          });
        }
        return { text: "", ok: true };
      }),
    ],
    streamCapacity: 10,
  });
  assert.equal(end, "completed");
  const progress = stdout.events.filter((event) => event.type === "job.progress");
  assert.equal(progress.length, 10);
  assert.deepEqual(warningsOf(stdout), ["the event stream lagged; 40 events were dropped"]);
  assert.equal(stdout.events.at(-1)?.type, "turn.completed");
});

test("an interrupt ends the run as interrupted without a turn event", async () => {
  const controller = new AbortController();
  const { end, stdout } = await run({
    handler: () => {
      controller.abort(new Error("SIGINT"));
      return { type: "hang" };
    },
    signal: controller.signal,
  });
  assert.equal(end, "interrupted");
  assert.deepEqual(
    stdout.events.map((event) => event.type),
    ["thread.started", "turn.started"],
  );
});

test("tools that never close do not delay the exit of a finished run", async () => {
  const mock = await startMockResponses(() => says("done"));
  const api = createHttpModelApi(responsesDialect, { baseUrl: mock.url, apiKey: undefined });
  const stdout = new Capture();
  try {
    const { type } = await runHeadless({
      prompt: "x",
      model: "m",
      instructions: "",
      callModel: createModelCaller({ api }),
      createTools: async () => ({ tools: [], close: () => new Promise(() => undefined) }),
      output: new JsonlOutput(stdout),
      signal: new AbortController().signal,
      newId: () => "id",
      shutdownMs: 20,
    });
    assert.equal(type, "completed");
    assert.match(warningsOf(stdout)[0] ?? "", /^shutdown: timed out waiting for the tools to close/);
  } finally {
    api.close();
    await mock.close();
  }
});

test("tools that cannot be created fail the run before any model call", async () => {
  const stdout = new Capture();
  const { type: end } = await runHeadless({
    prompt: "x",
    model: "m",
    instructions: "",
    callModel: () => assert.fail("a model call was made"),
    createTools: () => Promise.reject(new Error("no server there")),
    output: new JsonlOutput(stdout),
    signal: new AbortController().signal,
    newId: () => "id",
  });
  assert.equal(end, "failed");
  assert.deepEqual(stdout.events, [{ type: "error", message: "no server there" }]);
});
