import assert from "node:assert/strict";
import { readdirSync, renameSync, symlinkSync } from "node:fs";
import { mkdir, readdir, readFile, rename, symlink, writeFile } from "node:fs/promises";
import path from "node:path";
import { suite, test } from "node:test";
import { systemClock } from "../../../src/async/clock.ts";
import { SqliteStore } from "../../../src/fanout/ledger/sqlite/sqlite-store.ts";
import type { JobProgress } from "../../../src/fanout/output/job-progress.ts";
import { RATE_STATUS_FILE, RateStatusFile } from "../../../src/fanout/output/rate-status-file.ts";
import { OutputDirectory } from "../../../src/files/output-directory.ts";
import { report, says } from "../../support/models/mock-responses.ts";
import { FanoutHarness, type FanoutRun } from "../fanout-harness.ts";

const SECRET = "not to be overwritten\n";
const PROGRESS: JobProgress = {
  jobId: "job",
  counts: {
    total: 1,
    pending: 1,
    running: 0,
    completed: 0,
    failed: 0,
    finishedWithUsage: 0,
    usage: { inputTokens: 0, cachedInputTokens: 0, outputTokens: 0, reasoningOutputTokens: 0 },
  },
  costUsd: null,
  ratePerSecond: 0,
  etaSeconds: null,
  width: 1,
  maxWidth: 1,
  apiOutage: null,
  pausedMs: 0,
};

suite("the directory of a job", () => {
  test("receives the failures although a row replaced it by a link", async () => {
    await using harness = await FanoutHarness.open(() => says("no report"));
    const outside = path.join(harness.directory, "outside");
    await mkdir(outside);
    const run: FanoutRun = {
      concurrency: 1,
      settings: { maxAttempts: 1 },
      listener: {
        row: (item) => {
          if (item.rowIndex > 0) return;
          const [name = ""] = readdirSync(harness.jobsHome).filter((entry) => entry !== "by-key");
          renameSync(path.join(harness.jobsHome, name), path.join(harness.directory, "moved"));
          symlinkSync(outside, path.join(harness.jobsHome, name));
        },
      },
    };
    await assert.rejects(harness.run(run), /the directory was moved or replaced meanwhile/);
    assert.deepEqual(await readdir(outside), []);
    assert.match(await readFile(path.join(harness.directory, "moved", "errors.csv"), "utf8"), /no_report/);
  });

  test("does not receive results.jsonl through a link", async () => {
    await using harness = await FanoutHarness.open((request) => report(request));
    const victim = path.join(harness.directory, "victim");
    await writeFile(victim, SECRET);
    const { summary } = await harness.run();
    const log = path.join(harness.jobsHome, summary.job.id, "results.jsonl");
    await rename(log, `${log}.old`);
    await symlink(victim, log);
    await assert.rejects(harness.run(), /results\.jsonl: a symbolic link has this name/);
    assert.equal(await readFile(victim, "utf8"), SECRET);
    // The run has ended, so the job must not look like a running one.
    await using ledger = await new SqliteStore(harness.jobsHome).open(summary.job.id);
    const job = await ledger?.job();
    assert.equal(job?.status, "paused");
    assert.match(job?.stop?.reason ?? "", /results\.jsonl: a symbolic link has this name/);
  });

  test("does not receive the rate status through a link or a replaced directory", async () => {
    await using harness = await FanoutHarness.open((request) => report(request));
    const jobPath = path.join(harness.directory, "job");
    const outside = path.join(harness.directory, "outside");
    const victim = path.join(outside, "victim");
    for (const created of [jobPath, outside]) await mkdir(created);
    await writeFile(victim, SECRET);
    using directory = OutputDirectory.open(jobPath);

    await symlink(victim, path.join(jobPath, RATE_STATUS_FILE));
    const linked = new RateStatusFile(directory, systemClock);
    linked.update(PROGRESS);
    await linked.close();
    await rename(jobPath, path.join(harness.directory, "moved"));
    await symlink(outside, jobPath);
    const replaced = new RateStatusFile(directory, systemClock);
    replaced.update(PROGRESS);
    await replaced.close();

    assert.deepEqual(await readdir(outside), ["victim"]);
    assert.equal(await readFile(victim, "utf8"), SECRET);
  });
});
