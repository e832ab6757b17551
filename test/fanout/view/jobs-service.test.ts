/** The console's answers about jobs, from ledgers of real runs. */
import assert from "node:assert/strict";
import { test } from "node:test";
import { PACKAGE_PRICES } from "../../../src/fanout/cost/price-table.ts";
import { SqliteStore } from "../../../src/fanout/ledger/sqlite/sqlite-store.ts";
import { JobsQueryService } from "../../../src/fanout/view/jobs-service.ts";
import {
  type JobsQuery,
  jobDetails,
  jobList,
  retryResult,
  rowDetails,
  rowPage,
} from "../../../src/protocol/console/console-job-schemas.ts";
import type { Schema } from "../../../src/protocol/schema.ts";
import { report, says } from "../../support/models/mock-responses.ts";
import { until } from "../../support/system/until.ts";
import { catTable, FanoutHarness } from "../fanout-harness.ts";

const MODEL = "gpt-5";
const PRICES = PACKAGE_PRICES.with(`{"${MODEL}": {"input": 1, "output": 10}}`, "of the test");

function viewsOf(harness: FanoutHarness) {
  const store = new SqliteStore(harness.jobsHome);
  const views = new JobsQueryService({ store, prices: PRICES, jobsHome: harness.jobsHome, program: "/opt/procwire" });
  return {
    views,
    async query<T>(question: JobsQuery, schema: Schema<T>): Promise<T> {
      const answer = await views.handle(question);
      assert.equal(answer.type, "found", JSON.stringify(answer));
      return schema.decode(JSON.parse(answer.type === "found" ? answer.json : ""));
    },
  };
}

test("a job is shown with its rows, failures, cost and the transcript of a row", async () => {
  await using harness = await FanoutHarness.open((request) =>
    request.item?.itemId === "row-2" ? says("I will not") : report(request, { cat: request.item?.itemId }),
  );
  const end = await harness.run({ table: catTable(3), task: { model: MODEL }, settings: { maxAttempts: 1 } });
  const { query, views } = viewsOf(harness);
  const { jobs, unreadable } = await query({ type: "list" }, jobList);
  assert.deepEqual(unreadable, []);
  const [job] = jobs;
  assert.ok(job && jobs.length === 1);
  assert.deepEqual(
    [job.status, job.completed, job.failed, job.pending, job.totalRows, job.model],
    ["completed_with_errors", 2, 1, 0, 3, MODEL],
  );
  const spent = end.summary.counts.usage;
  assert.equal(job.usage.inputTokens, spent.inputTokens);
  assert.ok(job.usage.costUsd !== null && job.usage.costUsd > 0);

  const { jobId } = job;
  const details = await query({ type: "job", jobId }, jobDetails);
  assert.deepEqual(
    details.failures.map(({ errorClass, rows }) => [errorClass, rows]),
    [["no_report", 1]],
  );
  assert.equal(
    details.settled.reduce((sum, { completed, failed }) => sum + completed + failed, 0),
    3,
  );
  assert.deepEqual([details.retryRefused, details.job.isBeingRun, details.job.etaSeconds], [null, false, null]);

  const page = await query({ type: "rows", jobId, query: { offset: 1, limit: 1 } }, rowPage);
  assert.deepEqual([page.total, page.offset, page.rows.length], [3, 1, 1]);
  assert.deepEqual([page.rows[0]?.itemId, page.rows[0]?.errorClass], ["row-2", "no_report"]);
  assert.deepEqual(page.rows[0]?.cells, ["cat_2"]);

  const row = await query({ type: "row", jobId, itemId: "row-2" }, rowDetails);
  assert.match(row.prompt, /Write about cat_2\./);
  assert.match(row.instructions, /report_agent_job_result/);
  assert.deepEqual(row.attempts[0]?.transcript[0], { type: "said", text: "I will not" });
  assert.deepEqual(await views.handle({ type: "row", jobId, itemId: "row-9" }), {
    type: "missing",
    reason: `job ${jobId.slice(0, 8)} has no row row-9`,
  });
  // Only a whole id names a job here.
  assert.equal((await views.handle({ type: "job", jobId: jobId.slice(0, 8) })).type, "missing");
  assert.equal((await views.handle({ type: "job", jobId: "../other" })).type, "missing");
});

test("failed rows become pending on request, and the response names the command that executes them", async () => {
  let refuses = true;
  await using harness = await FanoutHarness.open((request) =>
    refuses && request.item?.itemId !== "row-1" ? says("no") : report(request),
  );
  await harness.run({ settings: { maxAttempts: 1 } });
  const { query, views } = viewsOf(harness);
  const [job] = (await query({ type: "list" }, jobList)).jobs;
  const jobId = job?.jobId ?? "";
  const short = jobId.slice(0, 8);
  const retry = (request: Extract<JobsQuery, { type: "retry" }>["request"]) =>
    query({ type: "retry", jobId, request }, retryResult);
  assert.deepEqual(await retry({ errorClasses: ["timeout"] }), { rows: 0, command: null, run: null });
  assert.deepEqual(await retry({ itemIds: ["row-3"] }), {
    rows: 1,
    command: `procwire jobs retry ${short} --item row-3`,
    run: {
      argv: ["/opt/procwire", "jobs", "retry", short, "--item", "row-3"],
      env: Object.assign(Object.create(null), { PROCWIRE_JOBS: harness.jobsHome }),
    },
  });
  assert.equal((await retry({})).command, `procwire jobs retry ${short}`);
  assert.deepEqual(await views.handle({ type: "retry", jobId, request: {} }), {
    type: "refused",
    reason: "no row has failed",
  });
  // The cached counts of the ended job are counted again.
  const [again] = (await query({ type: "list" }, jobList)).jobs;
  assert.deepEqual([again?.status, again?.failed, again?.pending], ["paused", 0, 2]);
  refuses = false;
  const end = await harness.run({ settings: { maxAttempts: 1 } });
  assert.deepEqual([end.summary.counts.completed, end.summary.job.status], [3, "completed"]);
});

test("a running job shows its rate status, its rate and its estimated end", async () => {
  const hold = Promise.withResolvers<void>();
  await using harness = await FanoutHarness.open(async (request) => {
    if (request.item?.itemId === "row-4") await hold.promise;
    return report(request);
  });
  const { query } = viewsOf(harness);
  const seen: string[] = [];
  const running = harness.run({
    table: catTable(4),
    concurrency: 1,
    listener: { row: (item) => seen.push(item.itemId) },
  });
  const read = async () => {
    const [job] = (await query({ type: "list" }, jobList)).jobs;
    return job && (await query({ type: "job", jobId: job.jobId }, jobDetails));
  };
  await until("three rows are done and the pace is query", async () => {
    const details = await read();
    return details?.job.completed === 3 && details.pace !== null;
  });
  const details = await read();
  assert.ok(details);
  assert.equal(details.job.isBeingRun, true);
  assert.ok(details.job.ratePerSecond > 0 && details.job.etaSeconds !== null);
  assert.deepEqual([details.pace?.width, details.pace?.maxWidth, details.pace?.heldMs], [1, 1, 0]);
  hold.resolve();
  await running;
  assert.deepEqual([(await read())?.pace, (await read())?.job.etaSeconds], [null, null]);
});
