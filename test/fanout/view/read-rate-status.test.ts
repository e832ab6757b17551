import assert from "node:assert/strict";
import { mkdtemp, rm } from "node:fs/promises";
import { tmpdir } from "node:os";
import path from "node:path";
import { test } from "node:test";
import { NO_USAGE } from "../../../src/agent/token-usage.ts";
import { RateStatusFile } from "../../../src/fanout/output/rate-status-file.ts";
import { readRateStatus } from "../../../src/fanout/view/read-rate-status.ts";
import { OutputDirectory } from "../../../src/files/output-directory.ts";
import { ManualClock } from "../../support/manual-clock.ts";
import { until } from "../../support/system/until.ts";

test("the console reads the rate status that a run writes, until the run ends", async () => {
  const home = await mkdtemp(path.join(tmpdir(), "procwire-rate-"));
  try {
    using directory = OutputDirectory.open(path.join(home, "job"), { make: true });
    const clock = new ManualClock();
    const file = new RateStatusFile(directory, clock);
    const counts = { total: 1, pending: 1, running: 0, completed: 0, failed: 0, finishedWithUsage: 0, usage: NO_USAGE };
    file.update({
      jobId: "job",
      counts,
      costUsd: null,
      ratePerSecond: 0,
      etaSeconds: null,
      width: 3,
      maxWidth: 16,
      pausedMs: 500,
      apiOutage: { seconds: 7, reason: "no answer" },
    });
    const read = () => readRateStatus(home, "job", clock.now());
    await until("the status is written", async () => (await read()) !== null);
    assert.deepEqual(await read(), { width: 3, maxWidth: 16, heldMs: 500, apiAwaySeconds: 7 });
    await file.close();
    assert.equal(await read(), null);
  } finally {
    await rm(home, { recursive: true, force: true, maxRetries: 10 });
  }
});
