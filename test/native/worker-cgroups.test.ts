import assert from "node:assert/strict";
import { once } from "node:events";
import { mkdirSync, rmdirSync } from "node:fs";
import { join } from "node:path";
import { test } from "node:test";
import { Worker } from "node:worker_threads";
import { groupOf, groupsIn, NO_SERVER_CGROUP } from "../support/system/server-cgroup.ts";
import { until } from "../support/system/until.ts";
import { addon, NO_ADDON } from "./started.ts";

const ROUNDS = 12;
const PROCESSES_PER_ROUND = 6;
/** The addon creates 32 cgroups ahead of time. The processes of the last rounds may still be ending. */
const MAX_CGROUPS = 32 + 2 * PROCESSES_PER_ROUND;

test("the end of a worker releases the cgroups of its processes", {
  skip: NO_ADDON || NO_SERVER_CGROUP,
}, async () => {
  const directory = join(groupOf("self"), `procwire-test-${process.pid}`);
  mkdirSync(directory);
  try {
    assert.equal(addon().openProcessCgroups(directory, new Float64Array()), null);
    for (let round = 0; round < ROUNDS; round++) {
      const worker = new Worker(join(import.meta.dirname, "../fixtures/native/worker.ts"), {
        workerData: { runs: 0, leaveRunning: PROCESSES_PER_ROUND },
      });
      await once(worker, "message");
      await worker.terminate();
    }
    assert.ok(groupsIn(directory).length > 0, "processes have cgroups");
    assert.ok(groupsIn(directory).length <= MAX_CGROUPS, `${groupsIn(directory).length} cgroups`);
  } finally {
    await until("all cgroups are empty", () => {
      for (const name of groupsIn(directory)) tryRemove(join(directory, name));
      return tryRemove(directory);
    });
  }
});

/** Returns false while the cgroup has processes or children. */
function tryRemove(path: string): boolean {
  try {
    rmdirSync(path);
    return true;
  } catch {
    return false;
  }
}
