import assert from "node:assert/strict";
import { spawn } from "node:child_process";
import { describe, test } from "node:test";
import { createLocalBackend } from "../../../src/host/create-local-backend.ts";
import { listProcesses } from "../../../src/local/tree/process-table.ts";
import { UsageSampler } from "../../../src/local/tree/usage-sampler.ts";
import { ManualClock } from "../../support/manual-clock.ts";
import { until } from "../../support/system/until.ts";
import { toProcessTag } from "./fake-tags.ts";

const start = (processId: string, script: string) => ({
  ...{ processId, argv: ["/bin/bash", "-c", script], cwd: "/", env: { PATH: "/usr/bin:/bin" }, tty: false },
});

/** Above the highest pid of Linux. */
const EXITED_PID = 2 ** 23;

describe("UsageSampler", () => {
  test("sums CPU and memory of each tree with its orphans, and serves all callers with one sample per second", async () => {
    await using backend = createLocalBackend();
    const idle = await backend.start(start("idle", "(setsid sleep 601 &) ; sleep 602 & wait"));
    const busy = await backend.start(start("busy", "while :; do :; done & wait"));
    const nested = await backend.start(start("nested", "setsid bash -c 'sleep 605 & wait' & wait"));
    const sizes = () => [idle, busy, nested].map((child) => child.tree().processes.length);
    await until("all trees to be complete", () => sizes().join() === "3,2,3");
    const clock = new ManualClock();
    const sampler = new UsageSampler({
      clock,
      leaders: () => [idle, busy, nested].map(({ pid }) => ({ pid: pid ?? 0, treeTag: null })),
      tagOf: () => null,
    });
    const [first, concurrent] = await Promise.all([sampler.sample(), sampler.sample()]);
    assert.equal(concurrent, first);
    assert.equal(await sampler.sample(), first);
    const usageOf = (usage: typeof first, { pid }: typeof idle) => {
      const found = usage.get(pid ?? 0);
      assert.ok(found);
      return found;
    };
    assert.equal(usageOf(first, busy).processes, 2);
    assert.equal(usageOf(first, nested).processes, 3);
    assert.equal(usageOf(first, busy).cpuPercent, null);
    assert.ok(usageOf(first, idle).memoryBytes > 100_000);
    const cpuMs = () => busy.tree().processes.reduce((sum, entry) => sum + entry.cpuMs, 0);
    const before = usageOf(first, busy).cpuMs;
    await until("CPU time to be counted", () => cpuMs() >= before + 50);
    await clock.advance(1000);
    const second = await sampler.sample();
    assert.notEqual(second, first);
    assert.ok((usageOf(second, busy).cpuPercent ?? 0) >= 5);
    assert.ok((usageOf(second, idle).cpuPercent ?? 100) < 5);
    // The backend also counts the orphan, which left the session of its leader, by its tree tag.
    const counted = await backend.usage();
    assert.ok(usageOf(counted, idle).processes >= 2);
    await busy.terminate();
    await busy.wait();
    await clock.advance(1000);
    assert.equal((await sampler.sample()).has(busy.pid ?? 0), false);
  });

  test("counts CPU time of the user and the kernel, also of children that have exited", async () => {
    await using backend = createLocalBackend();
    const busy = ["sh -c 'while :; do :; done'", "cat /dev/zero >/dev/null"];
    const scripts = busy.flatMap((script) => [`exec ${script}`, `while :; do timeout 0.05 ${script}; done`]);
    const children = await Promise.all(scripts.map((script) => backend.start(start(script, script))));
    const clock = new ManualClock();
    const leaders = () => children.map(({ pid }) => ({ pid: pid ?? 0, treeTag: null }));
    const sampler = new UsageSampler({ clock, leaders, tagOf: () => null });
    // More than one short child takes.
    await until("CPU time to be counted", async () => {
      await clock.advance(1000);
      const usage = await sampler.sample();
      return leaders().every(({ pid }) => (usage.get(pid)?.cpuMs ?? 0) >= 150);
    });
  });

  test("counts an orphan that the server adopted for the leader with its tree tag", async () => {
    const children = Array.from({ length: 7 }, () => spawn("sleep", ["603"], { detached: true, stdio: "ignore" }));
    const [leader, other, tagged, tampered, unknown, untaggedLeader] = children.map(({ pid }) => pid ?? 0);
    try {
      const tags = new Map([
        [tagged, 7],
        [tampered, -7],
        [unknown, 9],
      ]);
      const sampler = new UsageSampler({
        clock: new ManualClock(),
        leaders: () => [
          { pid: leader ?? 0, treeTag: 7 },
          { pid: other ?? 0, treeTag: 8 },
          { pid: EXITED_PID, treeTag: 9 },
          { pid: untaggedLeader ?? 0, treeTag: null },
        ],
        tagOf: (pid) => toProcessTag(tags.get(pid) ?? 0),
      });
      const usage = await sampler.sample();
      const processes = [leader, other, EXITED_PID, untaggedLeader].map((pid) => usage.get(pid ?? 0)?.processes);
      // The seventh process is an untagged orphan: no leader counts it.
      assert.deepEqual(processes, [3, 1, undefined, 1]);
    } finally {
      for (const child of children) child.kill("SIGKILL");
    }
  });

  test("lets other work of the event loop run between groups of many processes", async () => {
    const children = Array.from({ length: 64 }, () => spawn("sleep", ["604"], { stdio: "ignore" }));
    try {
      const sampler = new UsageSampler({ clock: new ManualClock(), leaders: () => [], tagOf: () => null });
      let isDone = false;
      let ticks = 0;
      const countTicks = async () => {
        for (; !isDone; ticks++) await new Promise(setImmediate);
      };
      const counted = countTicks();
      await sampler.sample();
      isDone = true;
      await counted;
      // One tick may pass after the sample.
      assert.ok(ticks > 1 && ticks < listProcesses().length / 2, `${ticks} ticks`);
    } finally {
      for (const child of children) child.kill("SIGKILL");
    }
  });
});
