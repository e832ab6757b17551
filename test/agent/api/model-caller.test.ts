import assert from "node:assert/strict";
import { test } from "node:test";
import type { ModelApi, ModelRequest } from "../../../src/agent/api/model-api.ts";
import { createModelCaller, DEFAULT_RETRY_POLICY } from "../../../src/agent/api/model-caller.ts";
import { ModelError } from "../../../src/agent/api/model-error.ts";
import type { RequestGate, RequestOutcome } from "../../../src/agent/api/request-gate.ts";
import type { ResponseEvent } from "../../../src/agent/api/response-events.ts";
import { NO_USAGE } from "../../../src/agent/token-usage.ts";
import { RateLimiter } from "../../../src/fanout/run/rate-limiter.ts";
import { ManualClock } from "../../support/manual-clock.ts";

const request: ModelRequest = {
  model: "m",
  instructions: "",
  input: [],
  tools: [],
  parallelToolCalls: false,
  cacheKey: "k",
};

const done: ResponseEvent = { type: "completed", usage: NO_USAGE, output: [] };

type Script = (ModelError | (ResponseEvent | "cut")[])[];

/** An API that answers from a script, one entry per request, repeating the last one. */
function scripted(script: Script): ModelApi & { sent: number } {
  const api: ModelApi & { sent: number } = {
    sent: 0,
    async send(_request, _signal, listener) {
      const step = script[Math.min(api.sent++, script.length - 1)] ?? [];
      if (step instanceof ModelError) throw step;
      listener.onAccepted?.({});
      for (const event of step) {
        if (event === "cut") throw new ModelError("transport", "cut");
        listener.onEvent(event);
      }
    },
    close() {},
  };
  return api;
}

const limited = (retryAfterMs?: number) =>
  new ModelError("rate_limit", "429", retryAfterMs === undefined ? {} : { retryAfterMs });
const server = () => new ModelError("server", "500");

/** Runs a call to its end on a manual clock; returns the delays it waited. */
async function run(script: Script, gate?: RequestGate) {
  const clock = new ManualClock();
  const api = scripted(script);
  const delays: number[] = [];
  const call = createModelCaller({ api, clock, random: () => 0.5, ...(gate ? { gate } : {}) });
  let settled = false;
  const outcome = call(request, new AbortController().signal, {
    onRetry: (_error, delayMs) => delays.push(Math.round(delayMs)),
  }).then(
    (answer) => ({ answer, error: null }),
    (error: unknown) => ({ answer: null, error }),
  );
  outcome.then(() => (settled = true)).catch(() => undefined);
  for (let step = 0; step < 200 && !settled; step++) await clock.advance(30_000);
  return { ...(await outcome), delays, sent: api.sent };
}

test("a server error is retried with a delay that doubles", async () => {
  const { answer, delays, sent } = await run([server(), server(), server(), [done]]);
  assert.ok(answer);
  assert.deepEqual(delays, [200, 400, 800]);
  assert.equal(sent, 4);
});

test("a stream that breaks in the middle leaves none of its items behind", async () => {
  const item: ResponseEvent = {
    type: "itemDone",
    item: { type: "message", text: "half", refusal: null, raw: {} },
  };
  const whole: ResponseEvent = {
    type: "itemDone",
    item: { type: "message", text: "whole", refusal: null, raw: {} },
  };
  const { answer } = await run([
    [item, "cut"],
    [whole, done],
  ]);
  assert.deepEqual(
    answer?.items.map((seen) => seen.type === "message" && seen.text),
    ["whole"],
  );
});

test("a call waits after a 429 at least as long as Retry-After requests", async () => {
  const { answer, delays } = await run([limited(7_000), [done]]);
  assert.ok(answer);
  assert.deepEqual(delays, [7_350]);
});

test("a rate limit within the stream is also awaited", async () => {
  const { answer, delays } = await run([
    [{ type: "failed", code: "rate_limit_exceeded", message: "try again in 2s" }],
    [done],
  ]);
  assert.ok(answer);
  assert.deepEqual(delays, [2_100]);
});

test("the retry budgets for faults and for rate limits are separate and do not multiply", async () => {
  const { error, sent } = await run([server(), limited(10), server()]);
  assert.equal((error as ModelError).kind, "server");
  assert.equal(sent, 1 + DEFAULT_RETRY_POLICY.transportRetries + 1);
});

test("a permanent error is not retried", async () => {
  for (const kind of ["quota", "auth", "context_length", "refused", "invalid_request"] as const) {
    const { error, sent } = await run([new ModelError(kind, "no")]);
    assert.equal((error as ModelError).kind, kind);
    assert.equal(sent, 1);
  }
});

test("a Retry-After of hours fails the call as a quota error instead of a wait", async () => {
  const { error, sent } = await run([limited(6 * 3600_000)]);
  assert.equal((error as ModelError).kind, "quota");
  assert.equal(sent, 1);
});

test("a Retry-After of hours does not delay the calls that wait at the limiter", async () => {
  const clock = new ManualClock();
  const limiter = new RateLimiter({ width: 1, clock });
  const api = scripted([limited(6 * 3600_000), [done]]);
  const call = createModelCaller({ api, clock, gate: limiter });
  const { signal } = new AbortController();
  const calls = Promise.allSettled([call(request, signal), call(request, signal)]);
  await clock.advance(1_000);
  assert.equal(api.sent, 2);
  assert.deepEqual(
    (await calls).map(({ status }) => status),
    ["rejected", "fulfilled"],
  );
});

test("a keep-alive connection that the server closed is replaced at once without spending a retry", async () => {
  const stale = new ModelError("transport", "reset", { staleConnection: true });
  const { answer, delays, sent } = await run([stale, [done]]);
  assert.ok(answer);
  assert.deepEqual(delays, []);
  assert.equal(sent, 2);
});

test("an incomplete answer fails with its reason and its usage", async () => {
  const usage = { ...NO_USAGE, outputTokens: 9 };
  const { error } = await run([[{ type: "incomplete", reason: "max_output_tokens", usage }]]);
  assert.ok(error instanceof ModelError);
  assert.equal(error.kind, "invalid_request");
  assert.equal(error.usage.outputTokens, 9);
  const filtered = await run([[{ type: "incomplete", reason: "content_filter", usage }]]);
  assert.equal((filtered.error as ModelError).kind, "refused");
});

test("every request passes the gate and releases its permit once", async () => {
  const ends: RequestOutcome["type"][] = [];
  let open = 0;
  const gate: RequestGate = {
    async enter() {
      open++;
      return {
        onAccepted: () => undefined,
        release: (end) => {
          open--;
          ends.push(end.type);
        },
      };
    },
  };
  await run([server(), limited(1), [done]], gate);
  assert.deepEqual(ends, ["failed", "failed", "answered"]);
  assert.equal(open, 0);
});

test("an abort ends a backoff at once", async () => {
  const clock = new ManualClock();
  const call = createModelCaller({ api: scripted([limited(60_000)]), clock });
  const controller = new AbortController();
  const answer = call(request, controller.signal);
  await clock.advance(1);
  controller.abort(new Error("enough"));
  await assert.rejects(answer, /enough/);
  assert.equal(clock.pendingTimers, 0);
});
