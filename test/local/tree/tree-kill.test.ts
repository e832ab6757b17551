import assert from "node:assert/strict";
import { execFile } from "node:child_process";
import { existsSync, mkdtempSync, readdirSync, readFileSync, rmSync } from "node:fs";
import { tmpdir } from "node:os";
import { join } from "node:path";
import { after, describe, test } from "node:test";
import { promisify } from "node:util";
import { systemClock } from "../../../src/async/clock.ts";
import { createLocalBackend } from "../../../src/host/create-local-backend.ts";
import { TreeKiller } from "../../../src/local/tree/tree-kill.ts";
import { nativeProcessTable } from "../../../src/native/native-process.ts";
import { addon, endSession, isRunning, manyRuns, NO_ADDON, startChild } from "../../native/started.ts";
import { until } from "../../support/system/until.ts";

const maker = join(import.meta.dirname, "..", "..", "fixtures", "native", "orphan-maker.sh");
const scratch = mkdtempSync(join(tmpdir(), "procwire-tree-"));
after(() => rmSync(scratch, { recursive: true, force: true, maxRetries: 10 }));

function pidsIn(directory: string): Map<string, number> {
  return new Map(readdirSync(directory).map((name) => [name, Number(readFileSync(join(directory, name), "utf8"))]));
}

describe("TreeKiller", { skip: NO_ADDON }, () => {
  for (const tty of [false, true]) {
    test(`kills processes that ignore signals, processes outside of the POSIX session, and daemons, ${tty ? "in a terminal" : "over pipes"}, 10 times`, async () => {
      await using backend = createLocalBackend();
      for (let run = 0; run < 10; run++) {
        const directory = mkdtempSync(join(scratch, "tree-"));
        const started = await backend.start({
          processId: directory,
          argv: ["sh", maker, directory],
          cwd: "/",
          env: { PATH: "/usr/bin:/bin" },
          tty,
        });
        await started.wait({ until: { type: "output", pattern: "ready" } });
        const pids = pidsIn(directory);
        assert.equal((await started.terminate()).running, true);
        await started.closed;
        for (const [name, pid] of pids) await until(`${name} is gone`, () => !isRunning(pid));
      }
    });
  }

  test("gives every process of the POSIX session, including shell jobs, the grace period", async () => {
    await using backend = createLocalBackend();
    const directory = mkdtempSync(join(scratch, "jobs-"));
    // With job control each job has its own process group.
    const job = `trap 'echo ended >${directory}/job; exit' TERM; echo up >${directory}/up; while :; do sleep 0.02; done`;
    const started = await backend.start({
      processId: "jobs",
      argv: ["sh", "-c", `set -m; sh -c "${job}" & trap 'wait; exit 4' TERM; while :; do sleep 0.02; done`],
      cwd: "/",
      env: { PATH: "/usr/bin:/bin" },
      tty: true,
    });
    await until("the job is up", () => readdirSync(directory).includes("up"));
    await started.terminate({ type: "graceful", timeoutMs: 60_000 });
    assert.ok(readdirSync(directory).includes("job"), "the job was killed before it could end");
    assert.equal((await started.wait()).exitCode, 4);
  });

  test("continues stopped processes so that they can exit", async () => {
    await using backend = createLocalBackend();
    const started = await backend.start({
      processId: "stopped",
      argv: ["sh", "-c", "trap 'echo bye; exit 6' TERM; echo ready; kill -STOP $$; while :; do sleep 0.02; done"],
      cwd: "/",
      env: { PATH: "/usr/bin:/bin" },
      tty: false,
    });
    await started.wait({ until: { type: "output", pattern: "ready" } });
    await until("it has stopped", () => readFileSync(`/proc/${started.pid}/stat`, "latin1").includes(") T "));
    await started.terminate({ type: "graceful", timeoutMs: 60_000 });
    assert.equal((await started.wait()).exitCode, 6);
  });

  test("delivers all output that the leader wrote before it was killed, 200 times", async () => {
    await using backend = createLocalBackend();
    await manyRuns(200, 5, async (run) => {
      const tty = run % 2 === 0;
      const started = await backend.start({
        processId: `written-${run}`,
        argv: ["sh", "-c", "head -c 40000 /dev/zero; touch $0; exec sleep 100", join(scratch, `w${run}`)],
        cwd: "/",
        env: { PATH: "/usr/bin:/bin" },
        tty,
      });
      if (tty) {
        // A terminal buffers a few KiB, so its writer finishes only when nearly all has been read.
        await started.wait({ until: { type: "bytes", count: 40_000 } });
      } else {
        started.child?.pause();
        await until("it has written", () => existsSync(join(scratch, `w${run}`)));
      }
      await started.terminate();
      await started.closed;
      assert.equal(started.log.totalBytes, 40_000, `run ${run}`);
    });
  });

  test("does not kill concurrently starting processes, which briefly share the server's descriptors", async () => {
    await using backend = createLocalBackend();
    let ids = 0;
    const start = (argv: string[], tty: boolean) =>
      backend.start({ processId: `p${++ids}`, argv, cwd: "/", env: { PATH: "/usr/bin:/bin" }, tty });
    await manyRuns(200, 6, async (run) => {
      const victim = await start(["sh", "-c", "sleep 100 & sleep 100"], run % 2 === 0);
      const [started] = await Promise.all([start(["sh", "-c", "exit 7"], run % 3 === 0), victim.terminate()]);
      assert.equal((await started.wait()).exitCode, 7, `run ${run}`);
      await victim.closed;
    });
  });

  test("kills the reachable processes of a tree when the host process exits", async () => {
    const directory = mkdtempSync(join(scratch, "exit-"));
    const fixture = join(import.meta.dirname, "..", "..", "fixtures", "native", "exit-with-tree.ts");
    await promisify(execFile)(process.execPath, [fixture, maker, directory]);
    const pids = pidsIn(directory);
    assert.equal(pids.size, 4);
    for (const [name, pid] of pids) if (name !== "daemon") await until(`${name} is gone`, () => !isRunning(pid));
    const daemon = pids.get("daemon") ?? 0;
    if (isRunning(daemon)) process.kill(daemon, "SIGKILL");
  });

  test("reports whether descendants outlive their leader", async () => {
    await using backend = createLocalBackend();
    const started = await backend.start({
      processId: "leaves",
      argv: ["sh", "-c", "sleep 100 >&- 2>&- & echo $!"],
      cwd: "/",
      env: { PATH: "/usr/bin:/bin" },
      tty: false,
    });
    await started.closed;
    const { chunks } = await started.read();
    const descendant = Number(Buffer.concat(chunks.map(({ chunk }) => chunk)).toString());
    assert.equal(started.hasOrphans, true);
    process.kill(descendant, "SIGKILL");
    // Scans of the process table are shared for a few milliseconds.
    await until("nothing is left", () => started.hasOrphans === false);
  });

  test("reports processes that cannot be signaled as survivors", async () => {
    const started = await startChild(["sh", "-c", "sleep 100 & echo $!; wait"]);
    try {
      await started.until((output) => output.includes("\n"));
      const survivor = Number(started.output().toString());
      const table = nativeProcessTable(addon());
      // A process that the server may not signal.
      const restrictedTable = {
        ...table,
        signal: (who: { pid: number; startTime: number }, signal: number) =>
          who.pid !== survivor && table.signal(who, signal),
      };
      const killer = new TreeKiller({
        table: restrictedTable,
        clock: systemClock,
        subreaper: false,
      });
      const target = {
        // In the process group only the leader can be signaled.
        child: {
          pid: started.child.pid,
          startTime: started.child.startTime,
          treeTag: started.child.treeTag,
          stdioIdentity: started.child.stdioIdentity,
          signalGroup: () => table.signal(table.entry(started.child.pid) ?? { pid: 0, startTime: 0 }, 9),
        },
        exited: () => started.recorded.some((event) => event.type === "exit"),
        onChange: () => () => undefined,
      };
      assert.deepEqual(await killer.kill(target, { type: "force" }), [survivor]);
    } finally {
      endSession(started);
      await started.close;
    }
  });

  test("kills the cgroup if its processes survive individual kills", async () => {
    const started = await startChild(["sh", "-c", "sleep 100 & echo $!; wait"]);
    const others = await startChild(["sleep", "100"]);
    try {
      await started.until((output) => output.includes("\n"));
      const stray = others.child.pid;
      const table = nativeProcessTable(addon());
      const actions: string[] = [];
      // Only the cgroup identifies this process as a member, and signals do not end it.
      const isStrayAlive = () => !actions.includes("killed");
      const killer = new TreeKiller({
        table: {
          ...table,
          signal: (who, signal) => {
            if (who.pid !== stray) return table.signal(who, signal);
            actions.push("signalled");
            return true;
          },
        },
        clock: systemClock,
        subreaper: false,
      });
      const cgroup = {
        pids: () => (isStrayAlive() ? [started.child.pid, stray] : []),
        kill: () => {
          actions.push("killed");
          endSession(others);
        },
      };
      const { pid, startTime, treeTag, stdioIdentity } = started.child;
      const signalGroup = (signal: number) => started.child.signalGroup(signal);
      const target = {
        child: { pid, startTime, treeTag, stdioIdentity, signalGroup, cgroup },
        exited: () => started.recorded.some((event) => event.type === "exit"),
        onChange: () => () => undefined,
      };
      assert.ok(killer.tree(target.child).some((entry) => entry.pid === stray));
      assert.deepEqual(await killer.kill(target, { type: "force" }), []);
      assert.deepEqual(actions.slice(0, 2), ["signalled", "killed"]);
      // `killNow` kills the cgroup again.
      actions.length = 1;
      killer.killNow(target.child);
      assert.equal(actions.at(-1), "killed");
    } finally {
      for (const each of [started, others]) {
        endSession(each);
        await each.close;
      }
    }
  });

  for (const [count, first] of [
    [64, "scanned"],
    [65, "killed"],
  ] as const)
    test(`${first === "killed" ? "kills before it scans" : "scans before it kills"} a cgroup of ${count} processes`, async () => {
      const started = await startChild(["sleep", "100"]);
      try {
        const table = nativeProcessTable(addon());
        const actions: string[] = [];
        const killer = new TreeKiller({
          table: {
            ...table,
            descendants: (pid) => {
              actions.push("scanned");
              return table.descendants(pid);
            },
          },
          clock: systemClock,
          subreaper: false,
        });
        const { pid, startTime, treeTag, stdioIdentity } = started.child;
        const pids = Array.from({ length: count }, () => pid);
        const cgroup = {
          pids: () => (actions.includes("killed") ? [] : pids),
          kill: () => {
            actions.push("killed");
            endSession(started);
          },
        };
        const target = {
          child: { pid, startTime, treeTag, stdioIdentity, signalGroup: () => true, cgroup },
          exited: () => started.recorded.some((event) => event.type === "exit"),
          onChange: () => () => undefined,
        };
        assert.deepEqual(await killer.kill(target, { type: "force" }), []);
        assert.equal(actions[0], first);
      } finally {
        endSession(started);
        await started.close;
      }
    });
});
