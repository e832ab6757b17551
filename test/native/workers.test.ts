import assert from "node:assert/strict";
import { once } from "node:events";
import { readdirSync } from "node:fs";
import { join } from "node:path";
import { describe, test } from "node:test";
import { Worker } from "node:worker_threads";
import { repetitions } from "../support/system/repetitions.ts";
import { until } from "../support/system/until.ts";
import { addon, NO_ADDON, processExists, startChild } from "./started.ts";

const fixtures = join(import.meta.dirname, "..", "fixtures", "native");

function startWorker(runs: number, leaveRunning: number) {
  const worker = new Worker(join(fixtures, "worker.ts"), { workerData: { runs, leaveRunning } });
  const recorded = new Promise<{ right: number; left: number[] }>((resolve, reject) => {
    worker.once("message", resolve);
    worker.once("error", reject);
  });
  return { worker, recorded };
}

describe("the addon in worker threads", { skip: NO_ADDON }, () => {
  test("serves three workers and the main thread concurrently, 60 processes each", async () => {
    const workers = Array.from({ length: 3 }, () => startWorker(60, 0));
    const own = await startChild(["sh", "-c", "sleep 0.2; echo main"]);
    for (const { recorded } of workers) assert.equal((await recorded).right, 60);
    await own.close;
    assert.equal(own.output().toString(), "main\n");
    await Promise.all(workers.map(({ worker }) => worker.terminate()));
  });

  test("kills and reaps the processes of a worker that exits, and keeps serving the others", async () => {
    const others = await startChild(["cat"], { pipeStdin: true });
    const descriptors = () => readdirSync("/proc/self/fd").length;
    const { worker, recorded } = startWorker(0, 4);
    const { left } = await recorded;
    assert.equal(left.length, 4);
    await worker.terminate();
    // Gone, not merely dead: a zombie would still be listed.
    for (const pid of left) await until(`${pid} is reaped`, () => !processExists(pid));
    others.child.input.write(Buffer.from("still here\n"));
    await others.until((output) => output.includes("still here"));
    others.child.input.close();
    await others.close;
    assert.equal(addon().childPids(process.pid).length, 0);
    const before = descriptors();
    for (let round = 0; round < 5; round++) {
      const again = startWorker(2, 2);
      await again.recorded;
      await again.worker.terminate();
    }
    await until("all descriptors are given back", () => descriptors() <= before);
  });

  test("keeps the event loop of the main thread alive after the worker that loaded the addon first has exited", async () => {
    // The kernel ties the parent-death signal to the forking thread, which must not be the worker's.
    const first = startWorker(1, 0);
    await first.recorded;
    const started = await startChild(["cat"], { pipeStdin: true });
    await first.worker.terminate();
    started.child.input.write(Buffer.from("alive\n"));
    await started.until((output) => output.includes("alive"));
    started.child.input.close();
    await started.close;
    assert.deepEqual(await started.exit, { type: "code", code: 0 });
  });

  test("keeps the process alive when a worker is terminated during a call", async () => {
    for (let round = 0; round < repetitions(200); round++) {
      const worker = new Worker(join(fixtures, "busy-worker.ts"));
      await once(worker, "message");
      assert.equal(await worker.terminate(), 1);
    }
  });
});
