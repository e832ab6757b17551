import assert from "node:assert/strict";
import { describe, test } from "node:test";
import type { TreeEntry } from "../../../src/exec/exec-process.ts";
import { createLocalBackend } from "../../../src/host/create-local-backend.ts";
import { procFsTable } from "../../../src/local/tree/process-table.ts";
import { describeTree } from "../../../src/local/tree/process-tree.ts";
import { until } from "../../support/system/until.ts";

const start = (script: string) => ({
  processId: "p",
  argv: ["/bin/bash", "-c", script],
  cwd: "/",
  env: { PATH: "/usr/bin:/bin" },
  tty: false,
});

describe("LocalProcess.tree", () => {
  test("lists the leader, its descendants and its orphans", async () => {
    await using backend = createLocalBackend();
    const script = "(sleep 601 & sleep 602 & wait) & (setsid sleep 603 &) ; sleep 604; :";
    const child = await backend.start(start(script));
    const slept = () => child.tree().processes.filter(({ argv }) => argv[0] === "sleep");
    await until("all four to sleep", () => slept().length === 4 && slept().every(({ state }) => state === "sleeping"));
    const { processes, omitted } = child.tree();
    assert.equal(omitted, 0);
    const [leader] = processes;
    assert.deepEqual(leader?.argv, ["/bin/bash", "-c", script]);
    assert.equal(leader?.pid, child.pid);
    const parentOf = (seconds: string) => {
      const entry = processes.find(({ argv }) => argv[1] === seconds);
      return processes.find(({ pid }) => pid === entry?.parentPid);
    };
    assert.equal(parentOf("604")?.pid, child.pid);
    assert.equal(parentOf("601")?.parentPid, child.pid);
    assert.equal(parentOf("603"), undefined);
    // Each process has at least 100 KB, and not a hundred MiB.
    for (const { rssBytes } of processes) assert.ok(rssBytes > 100_000 && rssBytes < 100 * 1024 * 1024, `${rssBytes}`);
  });

  test("reports CPU time, stopped processes and zombies", async () => {
    await using backend = createLocalBackend();
    // The parent never waits, so its exited child stays a zombie.
    const child = await backend.start(start("sleep 0.01 & exec sleep 605"));
    const states = () => child.tree().processes.map(({ state }) => state);
    await until("the child to be dead", () => states().includes("dead") || states().length === 1);
    await child.signal("SIGSTOP");
    await until("it to stop", () => states()[0] === "stopped");
    await child.terminate();
    await child.wait();
    assert.deepEqual(child.tree().processes, []);
    // The first spends its CPU time in user mode, the second in the kernel.
    for (const script of ["while :; do :; done", "exec cat /dev/zero >/dev/null"]) {
      const busy = await backend.start({ ...start(script), processId: script });
      const cpu = (): TreeEntry["cpuMs"] => busy.tree().processes[0]?.cpuMs ?? 0;
      await until("CPU time to be counted", () => cpu() >= 50);
      await busy.terminate();
    }
  });

  test("truncates a long command line", async () => {
    await using backend = createLocalBackend();
    const script = `sleep 606; : ${"x".repeat(5000)}`;
    const child = await backend.start(start(script));
    // The start has ended when the kernel closes the descriptors of the server, before it sets the new command line.
    await until("the command line", () => Buffer.byteLength(child.tree().processes[0]?.argv.join("\0") ?? "") === 4096);
    await child.terminate();
  });
});

test("describeTree lists at most 256 processes and counts the others", () => {
  const entry = procFsTable.entry(process.pid);
  assert.ok(entry);
  for (const [total, listed] of [
    [256, 256],
    [258, 256],
  ] as const) {
    const { processes, omitted } = describeTree(Array.from({ length: total }, () => entry));
    assert.deepEqual([processes.length, omitted], [listed, total - listed]);
  }
});
