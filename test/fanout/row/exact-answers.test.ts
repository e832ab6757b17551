import assert from "node:assert/strict";
import { suite, test } from "node:test";
import { reportDefinition } from "../../../src/fanout/row/report-tool.ts";
import { strictSchema, unwrapSchema } from "../../../src/fanout/row/result-schema.ts";
import { answer, functionCall, inputTexts, report, says, toolOutputs } from "../../support/models/mock-responses.ts";
import { FanoutHarness } from "../fanout-harness.ts";

const NUMBER = { type: "object", properties: { n: { type: "number" } }, required: ["n"] };
const BIG = "12345678901234567890";

suite("exact answers", { concurrency: 4 }, () => {
  test("an agent without tools is forced to report, with a strict schema if there is one", async () => {
    await using harness = await FanoutHarness.open((request) => report(request, { n: 1 }));
    await harness.run({ table: "name\nTom\n", task: { schema: NUMBER } });
    const body = harness.mock.requests[0]?.body;
    assert.deepEqual(body?.tool_choice, { type: "function", name: "report_agent_job_result" });
    const [tool] = Array.isArray(body?.tools) ? body.tools : [];
    assert.equal(tool.strict, true);
    assert.deepEqual(tool.parameters.properties.result, { ...NUMBER, additionalProperties: false });
    assert.deepEqual(tool.parameters.required, ["job_id", "item_id", "result", "stop"]);
  });

  test("an agent with tools may choose, and a schema without a strict form is sent without strictness", async () => {
    await using harness = await FanoutHarness.open((request) => report(request, { n: 1 }));
    const schema = { type: "object", properties: { n: { type: "number" }, maybe: { type: "string" } } };
    await harness.run({
      table: "name\nTom\n",
      task: { schema, tools: "exec" },
      openTools: async () => ({ tools: [], close: async () => undefined }),
    });
    const body = harness.mock.requests[0]?.body;
    assert.equal(body?.tool_choice, "auto");
    const [tool] = Array.isArray(body?.tools) ? body.tools : [];
    assert.equal(tool.strict, false);
    assert.deepEqual(tool.parameters.properties.result, schema);
  });

  test("an agent that answers with text gets one reminder to report; a second text ends the attempt", async () => {
    await using harness = await FanoutHarness.open((request) =>
      inputTexts(request.body).length > 1 ? report(request) : says("the answer is 4"),
    );
    const { summary } = await harness.run({ table: "name\nTom\n" });
    assert.equal(summary.job.status, "completed");
    assert.equal(harness.mock.requests.length, 2);
    assert.match(inputTexts(harness.mock.requests[1]?.body ?? {})[1] ?? "", /Call `report_agent_job_result` now/);
    assert.equal((await harness.output())[0]?.attempt_count, "1");
  });

  test("a JSON answer with the result counts as the report, in one call", async () => {
    await using harness = await FanoutHarness.open((request) =>
      says(
        request.item?.itemId === "row-1"
          ? '```json\n{"n": 4}\n```'
          : JSON.stringify({ item_id: request.item?.itemId, result: { n: 5 } }),
      ),
    );
    const { summary } = await harness.run({ table: "name\nTom\nKit\n", task: { schema: NUMBER } });
    assert.equal(summary.job.status, "completed");
    assert.equal(harness.mock.requests.length, 2);
    assert.deepEqual(
      (await harness.output()).map((row) => row.result_json),
      ['{"n":4}', '{"n":5}'],
    );
  });

  test("the reminder after an invalid JSON answer contains the schema violations", async () => {
    await using harness = await FanoutHarness.open((request) =>
      inputTexts(request.body).length > 1 ? report(request, { n: 1 }) : says('{"n": "four"}'),
    );
    await harness.run({ table: "name\nTom\n", task: { schema: NUMBER } });
    assert.match(inputTexts(harness.mock.requests[1]?.body ?? {})[1] ?? "", /result\/n must be number/);
  });

  test("a format in the schema is enforced; an unknown one is not", async () => {
    const schema = {
      type: "object",
      properties: { day: { type: "string", format: "date" }, x: { type: "string", format: "my-own" } },
      required: ["day", "x"],
    };
    await using harness = await FanoutHarness.open((request) =>
      report(request, { day: toolOutputs(request.body).length > 0 ? "2026-02-28" : "2026-02-31", x: "?" }),
    );
    const { summary } = await harness.run({ table: "name\nTom\n", task: { schema } });
    assert.equal(summary.job.status, "completed");
    assert.match(toolOutputs(harness.mock.requests[1]?.body ?? {})[0] ?? "", /result\/day must match format "date"/);
  });

  test("big integers reach the model and the results unchanged", async () => {
    await using harness = await FanoutHarness.open(({ item, index }) =>
      answer(
        functionCall(
          `c${index}`,
          "report_agent_job_result",
          `{"job_id":"${item?.jobId}","item_id":"${item?.itemId}","result":{"n":${BIG},"f":0.1}}`,
        ),
      ),
    );
    const { summary } = await harness.run({
      table: `{"name":${BIG},"deep":{"list":[${BIG}]}}\n`,
      format: "jsonl",
      task: { schema: NUMBER, instruction: "about {name} in {deep}" },
      export: { explode: true },
    });
    assert.equal(summary.job.status, "completed");
    const [text] = inputTexts(harness.mock.requests[0]?.body ?? {});
    assert.match(text ?? "", new RegExp(`about ${BIG} in {"list":\\[${BIG}\\]}`));
    assert.match(text ?? "", new RegExp(`"name": ${BIG}`));
    const [row] = await harness.output();
    assert.equal(row?.name, BIG);
    assert.equal(row?.result_json, `{"n":${BIG},"f":0.1}`);
    assert.equal(row?.["result.n"], BIG);
  });

  test("rows with the same id are all executed and reported", async () => {
    await using harness = await FanoutHarness.open((request) => report(request));
    const warnings: string[] = [];
    await harness.run({
      table: "name\nTom\nTom-2\nTom\nTom\nKit\n",
      task: { idColumn: "name" },
      listener: { warning: (message) => warnings.push(message) },
    });
    assert.deepEqual(
      (await harness.output()).map((row) => row.item_id),
      ["Tom", "Tom-2", "Tom-3", "Tom-4", "Kit"],
    );
    assert.deepEqual(warnings, [
      "2 rows have an id in name that an earlier row has; they are named with -2, -3 and so on",
    ]);
  });
});

test("the wrapper of a response format is unwrapped, and a wrapper without a schema is rejected", () => {
  for (const wrapped of [
    NUMBER,
    { name: "n", strict: true, schema: NUMBER },
    { type: "json_schema", name: "n", schema: NUMBER },
    { type: "json_schema", json_schema: { name: "n", schema: NUMBER } },
  ]) {
    assert.deepEqual(unwrapSchema(wrapped), NUMBER);
  }
  const own = { type: "object", properties: { schema: { type: "object" }, name: { type: "string" } } };
  assert.equal(unwrapSchema(own), own);
  assert.throws(() => unwrapSchema({ name: "n", strict: true }), /a wrapper without a schema/);
});

test("a schema gets a strict form only if the strict form has the same required members", () => {
  const part = { type: "object", properties: { a: { $ref: "#/$defs/a" } }, required: ["a"] };
  assert.deepEqual(strictSchema({ ...part, $defs: { a: { type: "string", minLength: 2 } }, $schema: "x" }), {
    ...part,
    additionalProperties: false,
    $defs: { a: { type: "string" } },
  });
  for (const loose of [
    { type: "object" },
    { ...part, required: [] },
    { ...part, additionalProperties: true },
    { ...part, oneOf: [{}] },
    { type: "object", properties: { a: { $ref: "#" } }, required: ["a"] },
    { type: "object", properties: { a: { type: "object" } }, required: ["a"] },
  ]) {
    assert.equal(strictSchema(loose), null, JSON.stringify(loose));
  }
  // The target of a reference has to be at the root of the parameters.
  const { parameters } = reportDefinition({ ...part, $defs: { a: { type: "string" } } });
  assert.deepEqual(parameters.$defs, { a: { type: "string" } });
  assert.deepEqual(Object.keys(reportDefinition({ type: "object", properties: { a: { $ref: "#" } } }).parameters), [
    "type",
    "properties",
    "required",
    "additionalProperties",
  ]);
});
