import assert from "node:assert/strict";
import { writeFile } from "node:fs/promises";
import path from "node:path";
import { test } from "node:test";
import { report, says } from "../support/models/mock-responses.ts";
import { runCli } from "../support/servers/run-cli.ts";
import { catTable, FanoutHarness } from "./fanout-harness.ts";

test("a changed table executes only the rows that changed", async () => {
  await using harness = await FanoutHarness.open((request) => report(request, { n: 1 }));
  await harness.run({ table: "name,age\nTom,1\nTim,2\nTam,3\n" });
  assert.equal(harness.asked.length, 3);
  // Other line ends, another order, one other cell, one more row.
  const end = await harness.run({ table: "name,age\r\nTam,3\r\nTom,1\r\nTim,7\r\nTem,4\r\n" });
  assert.deepEqual(harness.asked.slice(3).sort(), ["row-3", "row-4"]);
  assert.equal(end.summary.counts.completed, 4);
  assert.deepEqual(
    (await harness.output()).map((row) => row.result_json),
    Array(4).fill('{"n":1}'),
  );
});

test("a changed schema executes only rows whose stored answer does not match it", async () => {
  await using harness = await FanoutHarness.open((request) =>
    report(request, { n: request.item?.itemId === "row-2" ? "two" : 1 }),
  );
  await harness.run();
  const strict = { type: "object", properties: { n: { type: "number" } } };
  const end = await harness.run({ task: { schema: strict }, settings: { maxAttempts: 1 } });
  assert.deepEqual([...new Set(harness.asked.slice(3))], ["row-2"]);
  assert.deepEqual([end.summary.counts.completed, end.summary.counts.failed], [2, 1]);
});

test("another model or instruction, --fresh and agents with commands reuse no answers", async () => {
  await using harness = await FanoutHarness.open((request) => report(request));
  await harness.run();
  await harness.run({ task: { model: "other" } });
  assert.equal(harness.asked.length, 6);
  await harness.run({ task: { instruction: "Draw {name}." } });
  assert.equal(harness.asked.length, 9);
  await harness.run({ fresh: true });
  assert.equal(harness.asked.length, 12);
  await harness.run({ task: { tools: "exec" } });
  assert.equal(harness.asked.length, 15);
  await harness.run({ task: { tools: "exec", idColumn: "name" } });
  assert.equal(harness.asked.length, 18);
  await harness.run({ task: { idColumn: "name" } });
  assert.equal(harness.asked.length, 18);
});

test("a row with votes is executed although another job has its answer", async () => {
  await using harness = await FanoutHarness.open((request) => report(request));
  await harness.run({ task: { votes: 3 } });
  assert.equal(harness.asked.length, 6, "two of three agree on each of three rows");
  await harness.run({ task: { votes: 3, idColumn: "name" } });
  assert.equal(harness.asked.length, 12);
});

test("a failure is never reused, and a retried row is executed although another job has its answer", async () => {
  let isWilling = false;
  await using harness = await FanoutHarness.open((request) => (isWilling ? report(request) : says("no")));
  const options = {
    cwd: harness.directory,
    env: { OPENAI_BASE_URL: harness.mock.url, PROCWIRE_HOME: harness.directory },
  };
  await writeFile(path.join(harness.directory, "a.csv"), catTable(1));
  await writeFile(path.join(harness.directory, "b.csv"), catTable(2));
  const fanout = (file: string, ...args: string[]) =>
    runCli(["fanout", file, "--instruction", "{name}", "--max-attempts", "1", "--json", ...args], options);
  const failed = await fanout("a.csv");
  assert.equal(failed.code, 1);
  const id: string = JSON.parse(failed.stdout.split("\n")[0] ?? "").job_id;
  isWilling = true;
  assert.equal((await fanout("b.csv")).code, 0);
  // The row that answered with text got one reminder to report.
  assert.equal(harness.asked.length, 4);
  const retried = await runCli(["jobs", "retry", id], options);
  assert.equal(retried.code, 0, retried.stderr);
  assert.equal(harness.asked.length, 5);

  await writeFile(path.join(harness.directory, "c.csv"), catTable(3));
  const reused = await fanout("c.csv", "--sample", "2");
  assert.match(reused.stdout, /"type":"job.reused","reused_items":2/);
  assert.equal(harness.asked.length, 5);
  await writeFile(path.join(harness.directory, "d.csv"), catTable(4));
  const sampled = await runCli(["fanout", "d.csv", "--instruction", "{name}", "--sample", "2"], options);
  assert.match(sampled.stderr, /^2 rows were answered by earlier jobs \(--no-reuse asks them again\)\n/);
  await writeFile(path.join(harness.directory, "e.csv"), catTable(5));
  await fanout("e.csv", "--sample", "2", "--no-reuse");
  assert.equal(harness.asked.length, 7);
});
