import assert from "node:assert/strict";
import { mkdir, readdir, readFile, stat } from "node:fs/promises";
import path from "node:path";
import { test } from "node:test";
import { report, says } from "../../support/models/mock-responses.ts";
import { FanoutHarness } from "../fanout-harness.ts";

const columns = (text: string) => (text.split("\n")[0] ?? "").split(",");

test("output columns follow the input columns in order, and get a prefix if a name is taken", async () => {
  await using harness = await FanoutHarness.open((request) => report(request));
  await harness.run({ table: "status,item_id,agent_status\na,b,c\n", task: { instruction: "{status}" } });
  assert.deepEqual(columns(await readFile(harness.outputPath, "utf8")), [
    "status",
    "item_id",
    "agent_status",
    "job_id",
    "agent_item_id",
    "row_index",
    "source_id",
    "agent_agent_status",
    "attempt_count",
    "last_error",
    "result_json",
    "reported_at",
    "completed_at",
  ]);
});

test("cells are quoted only if needed, and are read back unchanged", async () => {
  await using harness = await FanoutHarness.open((request) => report(request, { text: 'a "quote", and\nmore' }));
  const table = 'name,note\nplain,"a,b"\n"say ""x""","cr\rhere"\n=1+1,-5\n';
  await harness.run({ table });
  const rows = await harness.output();
  assert.deepEqual(
    rows.map((row) => [row.name, row.note]),
    [
      ["plain", "a,b"],
      ['say "x"', "cr\rhere"],
      ["=1+1", "-5"],
    ],
  );
  assert.deepEqual(JSON.parse(rows[0]?.result_json ?? ""), { text: 'a "quote", and\nmore' });
  const text = await readFile(harness.outputPath, "utf8");
  assert.match(text, /\nplain,"a,b",/);
  assert.match(text, /"cr\rhere"/);
  assert.doesNotMatch(text, /\r\n/);
  assert.match(rows[0]?.completed_at ?? "", /^\d{4}-\d\d-\d\dT\d\d:\d\d:\d\d\.\d{3}\+00:00$/);
});

test("formulas are escaped on request", async () => {
  await using harness = await FanoutHarness.open((request) => report(request));
  await harness.run({ table: "name\n=1+1\nplain\n", export: { escapeFormulas: true } });
  assert.deepEqual(
    (await harness.output()).map((row) => row.name),
    ["'=1+1", "plain"],
  );
});

test("result fields become columns on request", async () => {
  await using harness = await FanoutHarness.open((request) =>
    report(request, request.item?.itemId === "row-1" ? { a: "x", n: 1 } : { n: 2, list: [1] }),
  );
  await harness.run({ table: "name\nx\ny\n", export: { explode: true } });
  assert.deepEqual(
    (await harness.output()).map((row) => [row["result.a"], row["result.n"], row["result.list"]]),
    [
      ["x", "1", ""],
      ["", "2", "[1]"],
    ],
  );
});

test("failed rows are written to a separate file with their error class", async () => {
  await using harness = await FanoutHarness.open((request) =>
    request.item?.itemId === "row-2" ? says("no") : report(request),
  );
  const { errorsPath } = await harness.run({ settings: { maxAttempts: 1 } });
  assert.ok(errorsPath);
  assert.equal(
    await readFile(errorsPath, "utf8"),
    "name,item_id,row_index,attempt_count,error_class,last_error\n" +
      "cat_2,row-2,1,1,no_report,worker finished without calling report_agent_job_result\n",
  );
});

test("the output directory is created, and no partial file remains", async () => {
  await using harness = await FanoutHarness.open((request) => report(request));
  const outputPath = path.join(harness.directory, "deep", "er", "out.csv");
  await harness.run({ outputPath });
  assert.deepEqual(await readdir(path.dirname(outputPath)), ["out.csv"]);
});

test("an unwritable output is rejected before any model call", async () => {
  await using harness = await FanoutHarness.open(() => assert.fail("a model call was made"));
  await mkdir(path.join(harness.directory, "taken"));
  await assert.rejects(
    harness.run({ outputPath: path.join(harness.directory, "taken") }),
    /the output .*taken cannot be written: it is a directory/,
  );
});

test("if the output cannot be written at the end, no temporary file remains and the next run writes it", async () => {
  let blocked = false;
  await using harness = await FanoutHarness.open(async (request) => {
    if (!blocked) {
      blocked = true;
      await mkdir(harness.outputPath);
    }
    return report(request);
  });
  await assert.rejects(harness.run(), /failed to export output csv .*; nothing is lost: `procwire jobs export /);
  const left = await readdir(harness.directory);
  assert.deepEqual(left.sort(), ["in.csv", "jobs", "out.csv"], "no temporary file is left");
  const elsewhere = path.join(harness.directory, "elsewhere.csv");
  const { summary } = await harness.run({ outputPath: elsewhere });
  assert.equal(summary.job.status, "completed");
  assert.ok((await stat(elsewhere)).isFile());
  assert.equal(harness.mock.requests.length, 3);
});
