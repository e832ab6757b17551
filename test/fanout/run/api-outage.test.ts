import assert from "node:assert/strict";
import { writeFile } from "node:fs/promises";
import path from "node:path";
import { suite, test } from "node:test";
import type { RetryPolicy } from "../../../src/agent/api/model-caller.ts";
import type { JobProgress } from "../../../src/fanout/output/job-progress.ts";
import { formatProgress } from "../../../src/fanout/output/job-progress.ts";
import { created, type MockAnswer, report } from "../../support/models/mock-responses.ts";
import { runCli } from "../../support/servers/run-cli.ts";
import { catTable, FanoutHarness } from "../fanout-harness.ts";

/** The product's policy, only faster: few retries per call, and a long patience without any answer. */
const QUICK: RetryPolicy = {
  transportRetries: 4,
  rateLimitRetries: 4,
  baseDelayMs: 2,
  maxDelayMs: 10,
  maxRetryAfterMs: 60_000,
  outageTimeoutMs: 60_000,
};

const OUTAGES: [string, MockAnswer][] = [
  ["answers 500", { type: "status", status: 500, body: "oops" }],
  ["answers 503", { type: "status", status: 503, headers: { "retry-after-ms": "1" } }],
  ["resets every connection", { type: "reset" }],
  ["cuts every stream", { type: "cut", events: [] }],
];

suite("an API outage", { concurrency: 4 }, () => {
  for (const [what, fault] of OUTAGES) {
    test(`in which the API ${what} costs no row an attempt`, async () => {
      // The API works, is unavailable for a hundred requests, and works again.
      await using harness = await FanoutHarness.open((request) =>
        request.index >= 5 && request.index < 105 ? fault : report(request),
      );
      const { end, summary } = await harness.run({
        table: catTable(20),
        concurrency: 4,
        retry: QUICK,
        settings: { maxAttempts: 1 },
      });
      assert.deepEqual(end, { type: "finished" });
      assert.equal(summary.counts.completed, 20);
      assert.ok((await harness.output()).every((row) => row.attempt_count === "1"));
    });
  }

  test("pauses the job after the outage timeout, and costs no row an attempt", async () => {
    await using harness = await FanoutHarness.open((request) =>
      request.index >= 2 ? { type: "status", status: 500, body: "oops" } : report(request),
    );
    const { end, summary } = await harness.run({
      table: catTable(6),
      concurrency: 2,
      retry: { ...QUICK, outageTimeoutMs: 100 },
      settings: { maxAttempts: 1 },
    });
    assert.equal(end.type === "stopped" && end.status, "paused");
    assert.match(summary.job.stop?.reason ?? "", /^the API cannot be used: .*500/);
    assert.deepEqual([summary.counts.failed, summary.counts.pending], [0, 4]);
  });

  test("is shown on the progress line, with its last error", async () => {
    const lines: JobProgress[] = [];
    let isAway = true;
    await using harness = await FanoutHarness.open((request) =>
      isAway ? { type: "status", status: 500, body: "out to lunch" } : report(request),
    );
    await harness.run({
      table: catTable(2),
      retry: QUICK,
      listener: {
        progress: (progress) => {
          lines.push(progress);
          if (progress.apiOutage) isAway = false;
        },
      },
    });
    const away = lines.find((progress) => progress.apiOutage !== null);
    assert.ok(away);
    assert.match(formatProgress(away, 200), /no answer from the API for \d+s \(.*out to lunch\)/);
    assert.equal(lines.at(-1)?.apiOutage, null);
  });

  test("does not hide a single row that fails with 500 while others succeed", async () => {
    await using harness = await FanoutHarness.open((request) =>
      request.item?.itemId === "row-1" ? { type: "status", status: 500, body: "oops" } : report(request),
    );
    const { summary } = await harness.run({
      table: catTable(40),
      concurrency: 2,
      retry: QUICK,
      settings: { maxAttempts: 1 },
    });
    assert.deepEqual([summary.counts.completed, summary.counts.failed], [39, 1]);
  });

  test("includes a stalled answer, which is retried after --idle-timeout", async () => {
    await using harness = await FanoutHarness.open((request) =>
      request.index === 0 ? { type: "sse", events: [created()], keepOpen: true } : report(request),
    );
    await writeFile(path.join(harness.directory, "cats.csv"), catTable(1));
    const { code, stderr } = await runCli(
      ["fanout", "cats.csv", "--instruction", "{name}", "--output", "out.csv", "--idle-timeout", "1"],
      { cwd: harness.directory, env: { OPENAI_BASE_URL: harness.mock.url } },
    );
    assert.equal(code, 0, stderr);
    assert.equal(harness.mock.requests.length, 2);
    assert.deepEqual(
      (await harness.output()).map((row) => row.attempt_count),
      ["1"],
    );
  });
});
