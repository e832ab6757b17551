import assert from "node:assert/strict";
import { suite, test } from "node:test";
import { setImmediate } from "node:timers/promises";
import { CANCELLED_BY_ROW_AGENT } from "../../../src/fanout/job.ts";
import type { JobStore } from "../../../src/fanout/ledger/job-ledger.ts";
import { SqliteStore } from "../../../src/fanout/ledger/sqlite/sqlite-store.ts";
import type { Tool } from "../../../src/tools/tool.ts";
import {
  answer,
  completed,
  created,
  failed,
  functionCall,
  inputTexts,
  type MockAnswer,
  type MockRequest,
  message,
  refusal,
  report,
  says,
  toolOutputs,
} from "../../support/models/mock-responses.ts";
import { catTable, FanoutHarness } from "../fanout-harness.ts";

/** Answers the first request of each row, or of the one named row, with the fault and all others with a report. */
function faultOnce(fault: (request: MockRequest) => MockAnswer, only?: string) {
  const hit = new Set<string>();
  return (request: MockRequest): MockAnswer => {
    const item = request.item?.itemId ?? "";
    if (hit.has(item) || (only !== undefined && item !== only)) return report(request);
    hit.add(item);
    return fault(request);
  };
}

// Side by side, because most of the time they wait for back-offs.
suite("rows and their agents", { concurrency: 4 }, () => {
  test("every row needs one call, and the output has the order of the table", async () => {
    await using harness = await FanoutHarness.open((request) =>
      report(request, { poem: `about ${request.item?.itemId}` }),
    );
    const { summary, end } = await harness.run({ table: catTable(20), concurrency: 8 });
    assert.deepEqual(end, { type: "finished" });
    assert.equal(summary.job.status, "completed");
    assert.equal(harness.mock.requests.length, 20);
    const output = await harness.output();
    assert.deepEqual(
      output.map((row) => [row.name, row.item_id, row.row_index, row.status, row.attempt_count, row.result_json]),
      Array.from({ length: 20 }, (_, index) => [
        `cat_${index + 1}`,
        `row-${index + 1}`,
        `${index}`,
        "completed",
        "1",
        `{"poem":"about row-${index + 1}"}`,
      ]),
    );
  });

  test("the prompt contains the fixed first line, the ids, the rendered task, the row and the schema, and the agent has one tool", async () => {
    await using harness = await FanoutHarness.open((request) => report(request, { n: 1 }));
    const schema = { type: "object", properties: { n: { type: "number" } } };
    await harness.run({
      table: 'name,10,9\nTom,"a\nb",c\n',
      task: { schema, instruction: "Say {{hi}} to {name}" },
    });
    const [request] = harness.mock.requests;
    assert.ok(request);
    assert.deepEqual(inputTexts(request.body), [
      [
        "You are processing one item for a generic agent job.",
        "",
        "Task instruction:",
        "Say {hi} to Tom",
        "",
        `Job ID: ${request.item?.jobId}`,
        "Item ID: row-1",
        "",
        "Input row (JSON):",
        '{\n  "name": "Tom",\n  "10": "a\\nb",\n  "9": "c"\n}',
      ].join("\n"),
    ]);
    assert.match(String(request.body.instructions), /Expected result schema[\s\S]*"type": "number"/);
    assert.equal(request.body.prompt_cache_key, request.item?.jobId);
    assert.equal(request.headers["x-openai-subagent"], `agent_job:${request.item?.jobId}`);
    assert.deepEqual(
      (request.body.tools as { name: string }[]).map((tool) => tool.name),
      ["report_agent_job_result"],
    );
  });

  const faults: [string, (request: MockRequest) => MockAnswer][] = [
    ["429 with a delay", () => ({ type: "status", status: 429, headers: { "retry-after-ms": "30" } })],
    ["429 with Retry-After in seconds", () => ({ type: "status", status: 429, headers: { "retry-after": "1" } })],
    ["500", () => ({ type: "status", status: 500, body: "oops" })],
    ["503", () => ({ type: "status", status: 503, headers: { "retry-after-ms": "30" } })],
    ["a cut stream", () => ({ type: "cut", events: [created()] })],
    [
      "a stream cut after its report",
      (request) => {
        const whole = report(request);
        return { type: "cut", events: whole.type === "sse" ? whole.events.slice(0, -1) : [] };
      },
    ],
    ["a reset", () => ({ type: "reset" })],
    ["garbage", () => ({ type: "raw", text: "<html>busy</html>", contentType: "text/html" })],
    [
      "a rate limit within the stream",
      () => ({ type: "sse", events: [created(), failed("rate_limit_exceeded", "try again in 30ms")] }),
    ],
    ["a failed response", () => ({ type: "sse", events: [created(), failed("server_error", "sorry")] })],
  ];
  for (const [what, fault] of faults) {
    test(`${what} once per row loses no row and costs no attempt`, async () => {
      await using harness = await FanoutHarness.open(faultOnce(fault));
      const { summary } = await harness.run({ table: catTable(4) });
      assert.equal(summary.job.status, "completed");
      assert.equal(summary.counts.completed, 4);
      assert.deepEqual(
        (await harness.output()).map((row) => row.attempt_count),
        ["1", "1", "1", "1"],
      );
      assert.equal(harness.mock.requests.length, 8);
    });
  }

  test("a row whose agent never reports is retried up to the limit and then fails with its class", async () => {
    await using harness = await FanoutHarness.open((request) =>
      request.item?.itemId === "row-2" ? says("I would rather not call tools") : report(request),
    );
    const { summary } = await harness.run();
    assert.equal(summary.job.status, "completed_with_errors");
    assert.deepEqual(summary.failuresByClass, [["no_report", 1]]);
    const row = (await harness.output())[1];
    assert.equal(row?.status, "failed");
    assert.equal(row?.attempt_count, "3");
    assert.equal(row?.last_error, "worker finished without calling report_agent_job_result");
    // In each attempt, the agent gets one reminder that text is not a report.
    assert.equal(harness.asked.filter((item) => item === "row-2").length, 6);
  });

  test("a row whose agent reports on its second attempt is completed", async () => {
    let words = 0;
    await using harness = await FanoutHarness.open((request) =>
      request.item?.itemId === "row-1" && words++ < 2 ? says("hm") : report(request),
    );
    const { summary } = await harness.run();
    assert.equal(summary.job.status, "completed");
    const row = (await harness.output())[0];
    assert.equal(row?.attempt_count, "2");
    assert.equal(row?.last_error, "");
  });

  test("of two reports in one answer the first counts", async () => {
    await using harness = await FanoutHarness.open((request) => {
      const { jobId, itemId } = request.item ?? { jobId: "", itemId: "" };
      const args = (n: number) => ({ job_id: jobId, item_id: itemId, result: { n } });
      return answer(
        functionCall("a", "report_agent_job_result", args(1)),
        functionCall("b", "report_agent_job_result", args(2)),
      );
    });
    await harness.run();
    for (const row of await harness.output()) assert.equal(row.result_json, '{"n":1}');
    assert.equal(harness.mock.requests.length, 3);
  });

  test("a report for another item or job is rejected with a reason, and the agent may correct it", async () => {
    for (const wrong of [{ item_id: "row-2" }, { job_id: "not-this-job" }]) {
      await using harness = await FanoutHarness.open((request) =>
        toolOutputs(request.body).length === 0 ? report(request, { n: 1 }, wrong) : report(request, { n: 2 }),
      );
      const { summary } = await harness.run({ table: catTable(2) });
      assert.equal(summary.counts.completed, 2);
      const refused = harness.mock.requests.flatMap((request) => toolOutputs(request.body));
      assert.ok(refused.length >= 1);
      const [first] = refused.map((text) => JSON.parse(text));
      assert.equal(first.accepted, false);
      assert.match(first.reason, /^your (item|job) is /);
    }
  });

  test("an agent that keeps reporting another item is stopped, and the other item stays unchanged", async () => {
    await using harness = await FanoutHarness.open((request) =>
      request.item?.itemId === "row-1" ? report(request, { evil: true }, { item_id: "row-2" }) : report(request),
    );
    const { summary } = await harness.run({ table: catTable(2), settings: { maxAttempts: 1 } });
    assert.deepEqual(summary.failuresByClass, [["no_report", 1]]);
    const [first, second] = await harness.output();
    assert.equal(first?.status, "failed");
    assert.equal(second?.result_json, '{"item_id":"row-2"}');
  });

  test("a result that is not an object is rejected and may be reported again", async () => {
    await using harness = await FanoutHarness.open((request) =>
      toolOutputs(request.body).length === 0 ? report(request, "just text") : report(request, { ok: true }),
    );
    const { summary } = await harness.run({ table: catTable(1) });
    assert.equal(summary.counts.completed, 1);
    assert.deepEqual(toolOutputs(harness.mock.requests[1]?.body ?? {}), ["result must be a JSON object"]);
  });

  const schema = { type: "object", properties: { n: { type: "number" } }, required: ["n"] };

  test("a result that does not match the schema gets one repair turn", async () => {
    await using harness = await FanoutHarness.open((request) =>
      toolOutputs(request.body).length === 0 ? report(request, { n: "one" }) : report(request, { n: 1 }),
    );
    const { summary } = await harness.run({ table: catTable(1), task: { schema } });
    assert.equal(summary.counts.completed, 1);
    assert.deepEqual(toolOutputs(harness.mock.requests[1]?.body ?? {}), [
      "result does not fit the expected schema:\nresult/n must be number",
    ]);
    assert.equal((await harness.output())[0]?.attempt_count, "1");
  });

  test("a result that never matches the schema fails its row with class schema after two calls per attempt", async () => {
    await using harness = await FanoutHarness.open((request) => report(request, {}));
    const { summary } = await harness.run({
      table: catTable(1),
      task: { schema },
      settings: { maxAttempts: 2 },
    });
    assert.deepEqual(summary.failuresByClass, [["schema", 1]]);
    assert.equal(
      (await harness.output())[0]?.last_error,
      "result does not fit the schema: result must have required property 'n'",
    );
    assert.equal(harness.mock.requests.length, 4);
  });

  test("an invalid schema is rejected before any model call", async () => {
    await using harness = await FanoutHarness.open((request) => report(request));
    await assert.rejects(harness.run({ task: { schema: { type: "no such type" } } }), /the schema cannot be used/);
    assert.equal(harness.mock.requests.length, 0);
  });

  test("a row that hangs fails as a timeout and does not delay the others", async () => {
    await using harness = await FanoutHarness.open((request) =>
      request.item?.itemId === "row-2" ? { type: "hang" } : report(request),
    );
    const { summary } = await harness.run({
      table: catTable(4),
      concurrency: 2,
      settings: { rowTimeoutMs: 1_500, maxAttempts: 2 },
    });
    assert.equal(summary.counts.completed, 3);
    assert.deepEqual(summary.failuresByClass, [["timeout", 1]]);
    const row = (await harness.output())[1];
    assert.equal(row?.last_error, "worker exceeded max runtime of 1.5s");
    assert.equal(row?.attempt_count, "2");
  });

  test("the wait for a rate limit does not count against the row timeout", async () => {
    await using harness = await FanoutHarness.open(
      faultOnce(() => ({ type: "status", status: 429, headers: { "retry-after-ms": "2500" } })),
    );
    const { summary } = await harness.run({
      table: catTable(1),
      settings: { rowTimeoutMs: 2_000, maxAttempts: 1 },
    });
    assert.equal(summary.job.status, "completed");
  });

  test("a row that the model or the API refuses fails at once with the reason", async () => {
    const refusals: [MockAnswer, RegExp][] = [
      [answer(refusal("I cannot help with that")), /^the model refused: I cannot help with that$/],
      [
        { type: "status", status: 400, body: { error: { code: "invalid_prompt", message: "not this" } } },
        /^the API answered 400: not this$/,
      ],
      [
        {
          type: "status",
          status: 400,
          body: { error: { code: "context_length_exceeded", message: "too long" } },
        },
        /too long/,
      ],
      [
        {
          type: "sse",
          events: [{ type: "response.incomplete", response: { incomplete_details: { reason: "content_filter" } } }],
        },
        /content_filter/,
      ],
    ];
    for (const [refused, reason] of refusals) {
      await using harness = await FanoutHarness.open((request) =>
        request.item?.itemId === "row-1" ? refused : report(request),
      );
      const { summary } = await harness.run({ table: catTable(2) });
      assert.deepEqual(summary.failuresByClass, [["refused", 1]]);
      assert.equal(summary.counts.completed, 1);
      assert.match((await harness.output())[0]?.last_error ?? "", reason);
      assert.equal(harness.asked.filter((item) => item === "row-1").length, 1);
    }
  });

  test("a report with stop ends the job: rows in flight finish, the rest stays pending", async () => {
    let arrived = 0;
    const all = Promise.withResolvers<void>();
    await using harness = await FanoutHarness.open(async (request) => {
      if (++arrived === 4) all.resolve();
      await all.promise;
      if (request.item?.itemId === "row-2") return report(request, { n: 1 }, { stop: true });
      while (!harness.finishedRows.some((item) => item.itemId === "row-2")) await setImmediate();
      return report(request, { n: 1 });
    });
    const { summary, end } = await harness.run({ table: catTable(10), concurrency: 4 });
    assert.deepEqual(end, { type: "stopped", status: "cancelled", ...CANCELLED_BY_ROW_AGENT });
    assert.equal(summary.job.status, "cancelled");
    assert.deepEqual(
      (await harness.output()).map((row) => row.status),
      [...Array(4).fill("completed"), ...Array(6).fill("pending")],
    );
  });

  test("a rejected report with stop stops nothing", async () => {
    await using harness = await FanoutHarness.open((request) =>
      toolOutputs(request.body).length === 0
        ? report(request, { n: 1 }, { stop: true, item_id: "someone else" })
        : report(request, { n: 2 }),
    );
    const { summary } = await harness.run();
    assert.equal(summary.job.status, "completed");
  });

  test("an agent without tools that tries to start a job is rejected", async () => {
    await using harness = await FanoutHarness.open((request) =>
      toolOutputs(request.body).length === 0
        ? answer(functionCall("n", "spawn_agents_on_csv", { csv_path: "in.csv", instruction: "again" }))
        : report(request),
    );
    const { summary } = await harness.run({ table: catTable(2) });
    assert.equal(summary.job.status, "completed");
    assert.deepEqual(toolOutputs(harness.mock.requests.at(-1)?.body ?? {}), ["unsupported call: spawn_agents_on_csv"]);
  });

  const tool = (name: string, call: Tool["call"]): Tool => ({
    definition: { name, description: "", parameters: { type: "object" } },
    call,
  });

  test("agents with tools use them before they report; each row's tools are opened and closed once", async () => {
    const opened: number[] = [];
    let closed = 0;
    await using harness = await FanoutHarness.open((request) => {
      const outputs = toolOutputs(request.body);
      return outputs.length === 0
        ? answer(functionCall("w", "weigh", { what: request.item?.itemId }))
        : report(request, { weight: Number(outputs[0]) });
    });
    const { summary } = await harness.run({
      task: { tools: "exec" },
      openTools: async (_job, { rowIndex }) => {
        opened.push(rowIndex);
        return {
          tools: [tool("weigh", async () => ({ text: `${rowIndex * 10}`, ok: true }))],
          close: async () => {
            closed++;
          },
        };
      },
    });
    assert.equal(summary.job.status, "completed");
    assert.deepEqual(opened.sort(), [0, 1, 2]);
    assert.equal(closed, 3);
    assert.deepEqual(
      (await harness.output()).map((row) => row.result_json),
      ['{"weight":0}', '{"weight":10}', '{"weight":20}'],
    );
  });

  test("a row fails with class spawn if its tools cannot be opened, and with class tool if a tool breaks", async () => {
    await using harness = await FanoutHarness.open((request) =>
      toolOutputs(request.body).length === 0 ? answer(functionCall("b", "broken", {})) : says("giving up"),
    );
    const { summary } = await harness.run({
      task: { tools: "exec" },
      table: catTable(2),
      settings: { maxAttempts: 1 },
      openTools: async (_job, { rowIndex }) => {
        if (rowIndex === 0) throw new Error("no server at ws://127.0.0.1:1");
        return {
          tools: [tool("broken", () => Promise.reject(new Error("lost the machine")))],
          close: async () => undefined,
        };
      },
    });
    assert.deepEqual(
      new Map(summary.failuresByClass),
      new Map([
        ["spawn", 1],
        ["tool", 1],
      ]),
    );
    assert.deepEqual(
      (await harness.output()).map((row) => row.last_error),
      ["no server at ws://127.0.0.1:1", "broken failed: lost the machine"],
    );
  });

  test("tokens are summed over all calls and attempts of a row, and over the job", async () => {
    await using harness = await FanoutHarness.open((request) => {
      const done = completed({ input: 100, output: 7, cached: 60 });
      const whole = toolOutputs(request.body).length === 0 ? message("thinking") : null;
      if (whole && harness.asked.filter((item) => item === request.item?.itemId).length === 1) {
        return { type: "sse", events: [created(), whole, done] };
      }
      const reported = report(request);
      return { type: "sse", events: reported.type === "sse" ? [...reported.events.slice(0, -1), done] : [] };
    });
    const { summary } = await harness.run({ table: catTable(2) });
    assert.deepEqual(summary.counts.usage, {
      inputTokens: 400,
      cachedInputTokens: 240,
      outputTokens: 28,
      reasoningOutputTokens: 0,
    });
    assert.ok(harness.finishedRows.every((item) => item.usage.inputTokens === 200));
  });

  test("a ledger that cannot store a report stops the job without a further model call", async () => {
    await using harness = await FanoutHarness.open((request) => report(request));
    const store = new SqliteStore(harness.jobsHome);
    const broken: JobStore = {
      withKey: (...args) => store.withKey(...args),
      find: (key) => store.find(key),
      create: (...args) => store.create(...args),
      list: () => store.list(),
      unreadable: () => store.unreadable(),
      remove: (id) => store.remove(id),
      removeStaleFiles: () => store.removeStaleFiles(),
      answersFromOtherJobs: (id) => store.answersFromOtherJobs(id),
      open: async (id) => {
        const ledger = await store.open(id);
        if (!ledger) return null;
        ledger.complete = async () => {
          throw new Error("database or disk is full");
        };
        return ledger;
      },
      [Symbol.asyncDispose]: async () => undefined,
    };
    await assert.rejects(
      harness.run({ table: catTable(1), concurrency: 1, store: broken }),
      /database or disk is full/,
    );
    assert.equal(harness.mock.requests.length, 1);
  });
});
