import assert from "node:assert/strict";
import { execFile } from "node:child_process";
import { existsSync, mkdtempSync, readdirSync, readFileSync, rmSync } from "node:fs";
import { tmpdir } from "node:os";
import { join } from "node:path";
import { after, describe, it } from "node:test";
import { promisify } from "node:util";
import { systemClock } from "../../../src/async/clock.ts";
import { createLocalBackend } from "../../../src/host/this-machine.ts";
import { TreeKiller } from "../../../src/local/tree/tree-kill.ts";
import { nativeProcessTable } from "../../../src/native/native-process.ts";
import { addon, endSession, isRunning, manyRuns, NO_ADDON, startChild } from "../../native/started.ts";
import { until } from "../../support/system/until.ts";

const maker = join(import.meta.dirname, "..", "fixtures", "native", "orphan-maker.sh");
const folder = mkdtempSync(join(tmpdir(), "procwire-tree-"));
after(() => rmSync(folder, { recursive: true, force: true }));

function pidsIn(place: string): Map<string, number> {
  return new Map(readdirSync(place).map((name) => [name, Number(readFileSync(join(place, name), "utf8"))]));
}

describe("ending a process tree", { skip: NO_ADDON }, () => {
  for (const tty of [false, true]) {
    it(`reaches processes that ignore signals, that left the session, and daemons, ${tty ? "in a terminal" : "over pipes"}, 10 times`, async () => {
      await using backend = createLocalBackend();
      for (let run = 0; run < 10; run++) {
        const place = mkdtempSync(join(folder, "tree-"));
        const started = await backend.start({
          processId: place,
          argv: ["sh", maker, place],
          cwd: "/",
          env: { PATH: "/usr/bin:/bin" },
          tty,
        });
        await started.wait({ until: { type: "output", pattern: "ready" } });
        const pids = pidsIn(place);
        assert.equal((await started.terminate()).running, true);
        await started.closed;
        for (const [name, pid] of pids) await until(`${name} is gone`, () => !isRunning(pid));
      }
    });
  }

  it("lets every process in the session end by itself, jobs of a shell included", async () => {
    await using backend = createLocalBackend();
    const place = mkdtempSync(join(folder, "jobs-"));
    // With job control each job has a group of its own.
    const job = `trap 'echo ended >${place}/job; exit' TERM; echo up >${place}/up; while :; do sleep 0.02; done`;
    const started = await backend.start({
      processId: "jobs",
      argv: ["sh", "-c", `set -m; sh -c "${job}" & trap 'wait; exit 4' TERM; while :; do sleep 0.02; done`],
      cwd: "/",
      env: { PATH: "/usr/bin:/bin" },
      tty: true,
    });
    await until("the job is up", () => readdirSync(place).includes("up"));
    await started.terminate({ type: "graceful", timeoutMs: 10_000 });
    assert.ok(readdirSync(place).includes("job"), "the job was killed before it could end");
    assert.equal((await started.wait()).exitCode, 4);
  });

  it("continues stopped processes, so that they can end", async () => {
    await using backend = createLocalBackend();
    const started = await backend.start({
      processId: "stopped",
      argv: [
        "sh",
        "-c",
        "trap 'echo bye; exit 6' TERM; echo ready; kill -STOP $$; while :; do sleep 0.02; done",
      ],
      cwd: "/",
      env: { PATH: "/usr/bin:/bin" },
      tty: false,
    });
    await started.wait({ until: { type: "output", pattern: "ready" } });
    await until("it has stopped", () => readFileSync(`/proc/${started.pid}/stat`, "latin1").includes(") T "));
    await started.terminate({ type: "graceful", timeoutMs: 10_000 });
    assert.equal((await started.wait()).exitCode, 6);
  });

  it("delivers what the leader wrote before it was killed, 200 times", async () => {
    await using backend = createLocalBackend();
    await manyRuns(200, 5, async (run) => {
      const tty = run % 2 === 0;
      const started = await backend.start({
        processId: `written-${run}`,
        argv: ["sh", "-c", "head -c 40000 /dev/zero; touch $0; exec sleep 100", join(folder, `w${run}`)],
        cwd: "/",
        env: { PATH: "/usr/bin:/bin" },
        tty,
      });
      if (tty) {
        // A terminal buffers a few KiB, so its writer finishes only when nearly all has been read.
        await started.wait({ until: { type: "bytes", count: 40_000 } });
      } else {
        started.child?.pause();
        await until("it has written", () => existsSync(join(folder, `w${run}`)));
      }
      await started.terminate();
      await started.closed;
      assert.equal(started.log.totalBytes, 40_000, `run ${run}`);
    });
  });

  it("ends no other process: not those being started meanwhile, which briefly share this program's descriptors", async () => {
    await using backend = createLocalBackend();
    let ids = 0;
    const one = (argv: string[], tty: boolean) =>
      backend.start({ processId: `p${++ids}`, argv, cwd: "/", env: { PATH: "/usr/bin:/bin" }, tty });
    await manyRuns(200, 6, async (run) => {
      const victim = await one(["sh", "-c", "sleep 100 & sleep 100"], run % 2 === 0);
      const [started] = await Promise.all([one(["sh", "-c", "exit 7"], run % 3 === 0), victim.terminate()]);
      assert.equal((await started.wait()).exitCode, 7, `run ${run}`);
      await victim.closed;
    });
  });

  it("also happens when the program itself exits, as far as it can see", async () => {
    const place = mkdtempSync(join(folder, "exit-"));
    const fixture = join(import.meta.dirname, "..", "fixtures", "native", "exit-with-tree.ts");
    await promisify(execFile)(process.execPath, [fixture, maker, place]);
    const pids = pidsIn(place);
    assert.equal(pids.size, 4);
    for (const [name, pid] of pids)
      if (name !== "daemon") await until(`${name} is gone`, () => !isRunning(pid));
    process.kill(pids.get("daemon") ?? 0, "SIGKILL");
  });

  it("reports survivors, and nothing when there are none", async () => {
    const started = await startChild(["sh", "-c", "sleep 100 & echo $!; wait"]);
    try {
      await started.until((output) => output.includes("\n"));
      const survivor = Number(started.output().toString());
      const table = nativeProcessTable(addon());
      // A process that this program may not signal.
      const helpless = {
        ...table,
        signal: (who: { pid: number; startTime: number }, signal: number) =>
          who.pid !== survivor && table.signal(who, signal),
      };
      const killer = new TreeKiller({
        table: helpless,
        clock: systemClock,
        subreaper: false,
      });
      const target = {
        // Its group is beyond reach too, but for the leader.
        child: {
          pid: started.child.pid,
          startTime: started.child.startTime,
          mark: started.child.mark,
          ends: started.child.ends,
          signalGroup: () => table.signal(table.entry(started.child.pid) ?? { pid: 0, startTime: 0 }, 9),
        },
        exited: () => started.told.some((event) => event.type === "exit"),
        onChange: () => () => undefined,
      };
      assert.deepEqual(await killer.kill(target, { type: "force" }), [survivor]);
    } finally {
      endSession(started);
      await started.close;
    }
  });

  it("kills the cgroup as a whole when what is in it is still there after each was killed", async () => {
    const started = await startChild(["sh", "-c", "sleep 100 & echo $!; wait"]);
    const others = await startChild(["sleep", "100"]);
    try {
      await started.until((output) => output.includes("\n"));
      const stray = others.child.pid;
      const table = nativeProcessTable(addon());
      const told: string[] = [];
      // Nothing but its cgroup says that it belongs to the process, and signals do not end it.
      const isThere = () => !told.includes("killed");
      const killer = new TreeKiller({
        table: {
          ...table,
          signal: (who, signal) => {
            if (who.pid !== stray) return table.signal(who, signal);
            told.push("signalled");
            return true;
          },
        },
        clock: systemClock,
        subreaper: false,
      });
      const cgroup = {
        pids: () => (isThere() ? [started.child.pid, stray] : []),
        kill: () => {
          told.push("killed");
          endSession(others);
        },
      };
      const { pid, startTime, mark, ends } = started.child;
      const signalGroup = (signal: number) => started.child.signalGroup(signal);
      const target = {
        child: { pid, startTime, mark, ends, signalGroup, cgroup },
        exited: () => started.told.some((event) => event.type === "exit"),
        onChange: () => () => undefined,
      };
      assert.ok(killer.tree(target.child).some((entry) => entry.pid === stray));
      assert.deepEqual(await killer.kill(target, { type: "force" }), []);
      assert.deepEqual(told.slice(0, 2), ["signalled", "killed"]);
      // The leader's own end is left to itself: a cgroup that was killed cannot be used again.
      told.length = 1;
      killer.killNow(target.child);
      assert.equal(told.at(-1), "killed");
    } finally {
      for (const each of [started, others]) {
        endSession(each);
        await each.close;
      }
    }
  });

  it("kills a crowd by its cgroup before it is looked at", async () => {
    const started = await startChild(["sleep", "100"]);
    try {
      const table = nativeProcessTable(addon());
      const told: string[] = [];
      const killer = new TreeKiller({
        table: {
          ...table,
          descendants: (pid) => {
            told.push("looked");
            return table.descendants(pid);
          },
        },
        clock: systemClock,
        subreaper: false,
      });
      const { pid, startTime, mark, ends } = started.child;
      const crowd = Array.from({ length: 65 }, () => pid);
      const cgroup = {
        pids: () => (told.includes("killed") ? [] : crowd),
        kill: () => {
          told.push("killed");
          endSession(started);
        },
      };
      const target = {
        child: { pid, startTime, mark, ends, signalGroup: () => true, cgroup },
        exited: () => started.told.some((event) => event.type === "exit"),
        onChange: () => () => undefined,
      };
      assert.deepEqual(await killer.kill(target, { type: "force" }), []);
      assert.equal(told[0], "killed");
    } finally {
      endSession(started);
      await started.close;
    }
  });
});
