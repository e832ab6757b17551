import assert from "node:assert/strict";
import { readFile, writeFile } from "node:fs/promises";
import path from "node:path";
import { test } from "node:test";
import { setImmediate } from "node:timers/promises";
import { CANCELLED_BY_USER } from "../../../src/fanout/job.ts";
import { SqliteStore } from "../../../src/fanout/ledger/sqlite/sqlite-store.ts";
import { exitCodeOf } from "../../../src/fanout/output/job-listener.ts";
import { type MockAnswer, report, says } from "../../support/models/mock-responses.ts";
import { catTable, FanoutHarness } from "../fanout-harness.ts";

test("the same call repeats no finished row and reports completed", async () => {
  await using harness = await FanoutHarness.open((request) => report(request));
  const first = await harness.run();
  const second = await harness.run();
  assert.equal(second.summary.job.id, first.summary.job.id);
  assert.equal(second.summary.job.status, "completed");
  assert.equal(harness.mock.requests.length, 3);
  assert.equal(exitCodeOf(second), 0);
});

test("a failed row is repeated only by a retry, not by the same call", async () => {
  let willing = false;
  await using harness = await FanoutHarness.open((request) =>
    willing || request.item?.itemId !== "row-2" ? report(request) : says("no"),
  );
  const first = await harness.run({ settings: { maxAttempts: 1 } });
  assert.equal(exitCodeOf(first), 1);
  willing = true;
  const second = await harness.run({ settings: { maxAttempts: 1 } });
  assert.equal(second.summary.job.status, "completed_with_errors");
  // Three rows, and one reminder that text is not a report.
  assert.equal(harness.mock.requests.length, 4);
  await using ledger = await new SqliteStore(harness.jobsHome).open(first.summary.job.id);
  assert.equal(await ledger?.retryFailed({}), 1);
  const third = await harness.run();
  assert.equal(third.summary.job.status, "completed");
  assert.deepEqual(harness.asked.toSorted(), ["row-1", "row-2", "row-2", "row-2", "row-3"]);
});

for (const isResumed of [false, true]) {
  test(`a cancellation applies while a ${isResumed ? "resumed" : "new"} job searches for reusable answers`, async () => {
    let isKeyValid = false;
    await using harness = await FanoutHarness.open((request) =>
      isKeyValid ? report(request) : { type: "status", status: 401, body: "bad key" },
    );
    if (isResumed) assert.equal((await harness.run()).summary.job.status, "paused");
    const askedBefore = harness.asked.length;
    isKeyValid = true;
    class CancellingStore extends SqliteStore {
      override async answersFromOtherJobs(jobId: string) {
        await using ledger = await this.open(jobId);
        assert.ok(await ledger?.setStatus("cancelled", ["pending", "running", "paused"], CANCELLED_BY_USER));
        return super.answersFromOtherJobs(jobId);
      }
    }
    const { end, summary } = await harness.run({ store: new CancellingStore(harness.jobsHome) });
    assert.deepEqual(end, { type: "stopped", status: "cancelled", ...CANCELLED_BY_USER });
    assert.equal(summary.job.status, "cancelled");
    assert.equal(harness.asked.length, askedBefore);
    assert.equal((await harness.run()).summary.job.status, "completed");
  });
}

test("another instruction, model, schema or table is another job; fresh starts a new one", async () => {
  await using harness = await FanoutHarness.open((request) => report(request));
  const ids = [
    await harness.run(),
    await harness.run({ task: { instruction: "Rather about {name}." } }),
    await harness.run({ task: { model: "other" } }),
    await harness.run({ task: { schema: { type: "object" } } }),
    await harness.run({ table: catTable(2) }),
    await harness.run({ fresh: true }),
  ].map(({ summary }) => summary.job.id);
  assert.equal(new Set(ids).size, 6);
  assert.equal((await harness.run()).summary.job.id, ids[5]);
  // The other schema and the shorter table reuse all answers.
  assert.equal(harness.mock.requests.length, 3 * 4);
});

test("an interrupt releases the rows in flight and writes the table, and the job can be resumed", async () => {
  const controller = new AbortController();
  let patient = false;
  await using harness = await FanoutHarness.open((request) => {
    if (patient || ["row-1", "row-2"].includes(request.item?.itemId ?? "")) return report(request);
    if (harness.finishedRows.length === 2) controller.abort(new Error("SIGINT"));
    return { type: "hang" };
  });
  const first = await harness.run({ table: catTable(6), concurrency: 2, signal: controller.signal });
  assert.equal(exitCodeOf(first), 130);
  assert.equal(first.summary.job.status, "paused");
  assert.equal(first.summary.job.stop?.cause, "interrupted");
  assert.deepEqual(
    (await harness.output()).map((row) => `${row.status} ${row.attempt_count}`),
    ["completed 1", "completed 1", "pending 0", "pending 0", "pending 0", "pending 0"],
  );
  const askedBefore = harness.mock.requests.length;
  patient = true;
  const second = await harness.run({ table: catTable(6), concurrency: 2 });
  assert.equal(exitCodeOf(second), 0);
  assert.deepEqual(harness.asked.slice(askedBefore).toSorted(), ["row-3", "row-4", "row-5", "row-6"]);
});

test("an exhausted quota pauses the job at once with a reason and costs no row an attempt", async () => {
  let paid = false;
  await using harness = await FanoutHarness.open((request) =>
    paid || request.item?.itemId === "row-1"
      ? report(request)
      : { type: "status", status: 429, body: { error: { code: "insufficient_quota", message: "no money" } } },
  );
  const first = await harness.run({ table: catTable(5), concurrency: 1 });
  assert.equal(first.summary.job.status, "paused");
  assert.equal(first.summary.job.stop?.reason, "the API answered 429: no money");
  assert.equal(exitCodeOf(first), 1);
  assert.equal(harness.mock.requests.length, 2);
  assert.deepEqual(
    (await harness.output()).map((row) => `${row.status} ${row.attempt_count}`),
    ["completed 1", "pending 0", "pending 0", "pending 0", "pending 0"],
  );
  paid = true;
  assert.equal((await harness.run({ table: catTable(5) })).summary.job.status, "completed");
});

test("a rejected key pauses the job instead of failing every row", async () => {
  await using harness = await FanoutHarness.open(() => ({ type: "status", status: 401, body: "bad key" }));
  const { summary } = await harness.run({ table: catTable(50), concurrency: 2 });
  assert.equal(summary.job.status, "paused");
  assert.equal(summary.counts.pending, 50);
  assert.ok(harness.mock.requests.length <= 2);
});

/** The product's retry policy, without its patience. */
const impatient = {
  transportRetries: 2,
  rateLimitRetries: 2,
  baseDelayMs: 1,
  maxDelayMs: 2,
  maxRetryAfterMs: 60_000,
};

test("an unreachable API pauses the job instead of failing its rows one by one", async () => {
  let down = true;
  await using harness = await FanoutHarness.open((request) => (down ? { type: "reset" } : report(request)));
  const first = await harness.run({ table: catTable(20), concurrency: 2, retry: impatient });
  assert.equal(first.summary.job.status, "paused");
  assert.match(first.summary.job.stop?.reason ?? "", /^the API cannot be used: the connection to the API failed: /);
  assert.equal(first.summary.counts.pending, 20);
  assert.equal(exitCodeOf(first), 1);
  down = false;
  assert.equal((await harness.run({ table: catTable(20) })).summary.job.status, "completed");
});

test("a single row that cannot reach the API fails with its class while the others complete", async () => {
  const stuck: [MockAnswer, string][] = [
    [{ type: "status", status: 500, body: "oops" }, "transport"],
    [{ type: "status", status: 429, headers: { "retry-after-ms": "1" }, body: "too big" }, "rate_limit"],
  ];
  for (const [refused, errorClass] of stuck) {
    // The others are answered while it waits, so the row is at fault, not the API.
    await using harness = await FanoutHarness.open(async (request) => {
      if (request.item?.itemId !== "row-1") return report(request);
      while (harness.finishedRows.length === 0) await setImmediate();
      return refused;
    });
    const { summary } = await harness.run({ retry: impatient, settings: { maxAttempts: 1 } });
    assert.deepEqual(summary.failuresByClass, [[errorClass, 1]]);
    assert.equal(summary.counts.completed, 2);
    assert.match((await harness.output())[0]?.last_error ?? "", /^the API answered (500: oops|429: too big)$/);
  }
});

test("a requested rate is not exceeded although more slots are free", async () => {
  const at: number[] = [];
  await using harness = await FanoutHarness.open((request) => {
    at.push(performance.now());
    return report(request);
  });
  const from = performance.now();
  await harness.run({ table: catTable(5), concurrency: 5, requestsPerMinute: 600 });
  // One every 100 ms from the beginning: any may come late, none early by more than a timer's rounding.
  for (const [index, time] of at.entries()) assert.ok(time - from >= index * 100 - 10, `request ${index} came early`);
  assert.equal(at.length, 5);
});

test("fail-fast by count and by percent ends the job as failed with rows left", async () => {
  for (const failFast of [
    { type: "count", rows: 2 },
    { type: "percent", percent: 20 },
  ] as const) {
    await using harness = await FanoutHarness.open(() => says("no"));
    const end = await harness.run({
      table: catTable(10),
      concurrency: 1,
      failFast,
      settings: { maxAttempts: 1 },
    });
    assert.equal(end.summary.job.status, "failed");
    assert.equal(end.summary.counts.failed, 2);
    assert.equal(end.summary.counts.pending, 8);
    assert.match(end.summary.job.stop?.reason ?? "", /^2 rows failed \(--fail-fast (2|20%)\)$/);
    assert.equal(exitCodeOf(end), 1);
  }
});

test("a budget of tokens pauses the job before it is exceeded, and a larger one resumes it", async () => {
  await using harness = await FanoutHarness.open((request) => report(request));
  const first = await harness.run({ table: catTable(10), concurrency: 1, budget: { tokens: 7 } });
  assert.equal(first.summary.job.status, "paused");
  assert.match(first.summary.job.stop?.reason ?? "", /^the budget of 7 tokens is used up \(6 used\)$/);
  assert.equal(first.summary.counts.completed, 3);
  const second = await harness.run({ table: catTable(10), concurrency: 1, budget: { tokens: 100 } });
  assert.equal(second.summary.job.status, "completed");
  assert.equal(harness.mock.requests.length, 10);
});

test("a sample executes the first rows only, and the whole job resumes from there", async () => {
  await using harness = await FanoutHarness.open((request) => report(request));
  const sample = await harness.run({ table: catTable(10), settings: { rowLimit: 3 } });
  assert.equal(sample.summary.job.status, "paused");
  assert.equal(sample.summary.job.stop?.reason, "the sample is finished; 7 rows are left");
  assert.equal(exitCodeOf(sample), 0);
  assert.equal((await harness.output()).length, 3);
  const whole = await harness.run({ table: catTable(10) });
  assert.equal(whole.summary.job.status, "completed");
  assert.equal((await harness.output()).length, 10);
  assert.equal(harness.mock.requests.length, 10);
});

test("a job that another process cancels aborts its rows and stays cancelled", async () => {
  await using harness = await FanoutHarness.open(async () => {
    await using ledger = await new SqliteStore(harness.jobsHome).open(await onlyJob(harness));
    await ledger?.setStatus("cancelled", ["running"], CANCELLED_BY_USER);
    return { type: "hang" };
  });
  const end = await harness.run();
  assert.equal(end.summary.job.status, "cancelled");
  assert.equal(end.summary.counts.pending, 3);
  assert.equal(exitCodeOf(end), 1);
});

async function onlyJob(harness: FanoutHarness): Promise<string> {
  const [job] = await new SqliteStore(harness.jobsHome).list();
  return job?.id ?? "";
}

test("a job that is already being run is not run twice", async () => {
  await using harness = await FanoutHarness.open(async (request) => {
    await assert.rejects(harness.run(), /is being run by another process; `procwire jobs watch [0-9a-f]{8}`/);
    return report(request);
  });
  const { summary } = await harness.run({ concurrency: 1 });
  assert.equal(summary.job.status, "completed");
  assert.equal(harness.mock.requests.length, 3);
});

test("an empty table completes with a header alone", async () => {
  await using harness = await FanoutHarness.open(() => assert.fail("a model call was made"));
  const end = await harness.run({ table: "name,age\n" });
  assert.equal(end.summary.job.status, "completed");
  assert.equal(exitCodeOf(end), 0);
  assert.equal(
    await readFile(harness.outputPath, "utf8"),
    "name,age,job_id,item_id,row_index,source_id,status,attempt_count,last_error,result_json,reported_at,completed_at\n",
  );
});

test("a rejected input creates no job and makes no call", async () => {
  await using harness = await FanoutHarness.open(() => assert.fail("a model call was made"));
  await assert.rejects(harness.run({ task: { instruction: "for {nobody}" } }), /unknown placeholder \{nobody\}/);
  await assert.rejects(harness.run({ table: "name,b\n1\n" }), /csv row 2 has 1 fields but header has 2/);
  await assert.rejects(harness.run({ task: { idColumn: "id" } }), /id_column id was not found/);
  assert.deepEqual(await new SqliteStore(harness.jobsHome).list(), []);
});

test("results are in results.jsonl as they finish, and the file is repaired from the ledger", async () => {
  await using harness = await FanoutHarness.open((request) => report(request, { n: request.item?.itemId }));
  const { summary } = await harness.run();
  const file = path.join(harness.jobsHome, summary.job.id, "results.jsonl");
  const lines = async () => (await readFile(file, "utf8")).split("\n").filter((line) => line !== "");
  assert.deepEqual((await lines()).map((line) => JSON.parse(line).result.n).sort(), ["row-1", "row-2", "row-3"]);
  await writeFile(file, '{"item_id":"row-1","sta');
  await harness.run();
  assert.deepEqual(
    (await lines()).map((line) => JSON.parse(line).item_id),
    ["row-1", "row-2", "row-3"],
  );
});

// It takes a quarter of a second; a gate that mistakes stray refusals for a rate limit takes a minute.
test("a job completes although ten of a hundred rows get 429", { timeout: 600_000 }, async () => {
  let requestCount = 0;
  await using harness = await FanoutHarness.open((request) =>
    requestCount++ % 10 === 3 ? { type: "status", status: 429, headers: { "retry-after-ms": "5" } } : report(request),
  );
  const { summary } = await harness.run({ table: catTable(100), concurrency: 16 });
  assert.equal(summary.job.status, "completed");
  assert.equal(summary.counts.completed, 100);
});

test("a row that the model refused is not attempted by it again after the fallback model fails", async () => {
  await using harness = await FanoutHarness.open((request) =>
    request.body.model === "m"
      ? { type: "status", status: 400, body: { error: { code: "content_policy_violation", message: "no" } } }
      : says("no report"),
  );
  const { summary } = await harness.run({ table: catTable(1), settings: { fallbackModel: "f" } });
  assert.equal(summary.counts.failed, 1);
  const models = harness.mock.requests.map(({ body }) => body.model);
  assert.equal(models.filter((model) => model === "m").length, 1, models.join(", "));
});
