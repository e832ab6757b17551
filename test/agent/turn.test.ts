import assert from "node:assert/strict";
import { test } from "node:test";
import type { AgentNotification } from "../../src/agent/agent-notification.ts";
import type { ModelRequest } from "../../src/agent/api/model-api.ts";
import type { CallModel } from "../../src/agent/api/model-caller.ts";
import { ModelError } from "../../src/agent/api/model-error.ts";
import type { JsonObject, OutputItem } from "../../src/agent/api/response-events.ts";
import { NO_USAGE } from "../../src/agent/token-usage.ts";
import { runTurn, type TurnOptions } from "../../src/agent/turn.ts";
import type { Tool, ToolOutput } from "../../src/tools/tool.ts";

const say = (text: string): OutputItem => ({
  type: "message",
  text,
  refusal: null,
  raw: { type: "message", role: "assistant", content: [{ type: "output_text", text }] },
});

const want = (callId: string, name: string, args: unknown): OutputItem => {
  const text = typeof args === "string" ? args : JSON.stringify(args);
  return {
    type: "functionCall",
    callId,
    name,
    arguments: text,
    raw: { type: "function_call", call_id: callId, name, arguments: text },
  };
};

function tool(name: string, call: (args: unknown) => ToolOutput | Promise<ToolOutput>): Tool {
  return {
    definition: { name, description: name, parameters: { type: "object" } },
    call: async (args) => call(args),
  };
}

/** A model that returns the given answers in order and records its requests in `requests`. */
function model(answers: (OutputItem[] | ModelError)[]): { callModel: CallModel; requests: ModelRequest[] } {
  const requests: ModelRequest[] = [];
  return {
    requests,
    callModel: async (request) => {
      requests.push({ ...request, input: [...request.input] });
      const answer = answers[requests.length - 1];
      if (!answer) throw new Error("more model calls than answers");
      if (answer instanceof ModelError) throw answer;
      return { items: answer, usage: { ...NO_USAGE, inputTokens: 10, outputTokens: 1 } };
    },
  };
}

function turn(callModel: CallModel, tools: Tool[], extra: Partial<TurnOptions> = {}) {
  const history: JsonObject[] = [{ type: "message", role: "user", content: [] }];
  return runTurn({
    threadId: "thread",
    turnId: "turn",
    model: "m",
    instructions: "",
    cacheKey: "k",
    tools,
    history,
    signal: new AbortController().signal,
    callModel,
    ...extra,
  });
}

test("a turn ends with the first answer without a call; usage is the sum", async () => {
  const { callModel, requests } = model([[want("c1", "double", { n: 4 })], [say("8")]]);
  const double = tool("double", (args) => ({ text: String((args as { n: number }).n * 2), ok: true }));
  const outcome = await turn(callModel, [double]);
  assert.deepEqual(outcome, {
    type: "completed",
    usage: { ...NO_USAGE, inputTokens: 20, outputTokens: 2 },
    lastMessage: "8",
    refusal: null,
  });
  assert.deepEqual(requests[1]?.input.slice(1), [
    { type: "function_call", call_id: "c1", name: "double", arguments: '{"n":4}' },
    { type: "function_call_output", call_id: "c1", output: "8" },
  ]);
});

test("tool calls of one answer run concurrently, and their outputs are in the order of the calls", async () => {
  const { callModel, requests } = model([[want("c1", "slow", {}), want("c2", "fast", {})], [say("ok")]]);
  const fastRan = Promise.withResolvers<void>();
  const slow = tool("slow", async () => {
    await fastRan.promise;
    return { text: "slow", ok: true };
  });
  const fast = tool("fast", () => {
    fastRan.resolve();
    return { text: "fast", ok: true };
  });
  await turn(callModel, [slow, fast]);
  assert.deepEqual(
    requests[1]?.input.slice(3).map((item) => item.output),
    ["slow", "fast"],
  );
});

test("an invalid call is reported to the model and the turn continues", async () => {
  const { callModel, requests } = model([
    [want("c1", "missing", {}), want("c2", "broken", {}), want("c3", "broken", "{not json")],
    [say("sorry")],
  ]);
  const broken = tool("broken", () => Promise.reject(new Error("disk on fire")));
  assert.equal((await turn(callModel, [broken])).type, "completed");
  const outputs = requests[1]?.input.slice(4).map((item) => String(item.output)) ?? [];
  assert.equal(outputs[0], "unsupported call: missing");
  assert.equal(outputs[1], "broken failed: disk on fire");
  assert.match(outputs[2] ?? "", /^failed to parse function arguments: /);
});

test("a tool can end the turn, and later calls of the same answer do not run", async () => {
  const { callModel, requests } = model([[want("c1", "end", {}), want("c2", "end", {})]]);
  let calls = 0;
  const end = tool("end", () => ({ text: "done", ok: ++calls > 0 }));
  const outcome = await turn(callModel, [end], { endsTurn: (name, output) => name === "end" && output.ok });
  assert.equal(outcome.type, "completed");
  assert.equal(calls, 1);
  assert.equal(requests.length, 1);
});

test("a turn fails when it reaches the maximum number of model calls", async () => {
  const again = [want("c", "again", {})];
  const { callModel, requests } = model([again, again, again, again]);
  const outcome = await turn(callModel, [tool("again", () => ({ text: "", ok: true }))], {
    maxModelCalls: 3,
  });
  assert.equal(outcome.type, "failed");
  assert.equal(requests.length, 3);
});

test("a failed call fails the turn and is reported as an error before the end", async () => {
  const { callModel } = model([new ModelError("invalid_request", "no such model")]);
  const notifications: AgentNotification[] = [];
  const outcome = await turn(callModel, [], { notify: (notification) => notifications.push(notification) });
  assert.equal(outcome.type, "failed");
  assert.deepEqual(
    notifications.map((notification) => notification.method),
    ["turn/started", "thread/tokenUsage", "error", "turn/completed"],
  );
  assert.deepEqual(notifications.at(-1), {
    method: "turn/completed",
    threadId: "thread",
    turn: { id: "turn", items: [], status: "failed", error: { message: "no such model" } },
  });
});

test("an interrupted turn waits for its tool to finish", async () => {
  const { callModel } = model([[want("c1", "job", {})], [say("never")]]);
  const controller = new AbortController();
  let woundUp = false;
  const job: Tool = {
    definition: { name: "job", description: "", parameters: {} },
    call: async (_args, context) => {
      controller.abort(new Error("SIGINT"));
      assert.equal(context?.signal?.aborted, true);
      await Promise.resolve();
      woundUp = true;
      return { text: "partial", ok: true };
    },
  };
  const outcome = await turn(callModel, [job], { signal: controller.signal });
  assert.equal(outcome.type, "interrupted");
  assert.equal(woundUp, true);
});

test("a command that could not start is reported by the turn, and a command that ran by its events", async () => {
  const { callModel } = model([
    [want("c1", "exec_command", { cmd: "false" }), want("c2", "exec_command", { cmd: "rm x" })],
    [say("it failed")],
  ]);
  const exec: Tool = {
    ...tool("exec_command", (args) =>
      JSON.stringify(args).includes("rm")
        ? {
            text: "refused: no",
            ok: false,
            structured: { not_started: "declined", argv: ["sh", "-c", "rm x"], reason: "no" },
          }
        : { text: "Process exited with code 1", ok: true, structured: { exit_code: 1 } },
    ),
    emitsOwnItems: true,
  };
  const notifications: AgentNotification[] = [];
  await turn(callModel, [exec], { notify: (notification) => notifications.push(notification) });
  const items = notifications.flatMap((notification) =>
    notification.method === "item/completed" && notification.item.type === "commandExecution"
      ? [notification.item]
      : [],
  );
  assert.deepEqual(items, [
    {
      type: "commandExecution",
      id: "item_0",
      command: "rm x",
      argv: ["sh", "-c", "rm x"],
      output: "no",
      exitCode: -1,
      status: "declined",
    },
  ]);
});

test("a call begins as soon as its item has arrived, and a stream that breaks later is continued from there", async () => {
  const began = Promise.withResolvers<void>();
  const requests: JsonObject[][] = [];
  const callModel: CallModel = async (request, _signal, hooks) => {
    hooks?.onItem?.(want("c1", "work", {}));
    await began.promise;
    hooks?.onRetry?.(new ModelError("transport", "cut"), 10, { count: 1, of: 5 });
    await hooks?.beforeRetry?.();
    requests.push([...request.input]);
    hooks?.onItem?.(say("done"));
    return { items: [say("done")], usage: NO_USAGE };
  };
  const work = tool("work", () => {
    began.resolve();
    return { text: "worked", ok: true };
  });
  const notifications: AgentNotification[] = [];
  const outcome = await turn(callModel, [work], { notify: (notification) => notifications.push(notification) });
  assert.equal(outcome.type, "completed");
  assert.deepEqual(
    requests[0]?.slice(1).map(({ type, output }) => [type, output]),
    [
      ["function_call", undefined],
      ["function_call_output", "worked"],
    ],
  );
  const errors = notifications.flatMap((one) => (one.method === "error" ? [one.message] : []));
  assert.deepEqual(errors, ["Reconnecting... 1/5 (cut)"]);
});
