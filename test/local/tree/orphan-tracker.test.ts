import assert from "node:assert/strict";
import { execFile, spawn, spawnSync } from "node:child_process";
import { mkdtempSync, rmSync } from "node:fs";
import { tmpdir } from "node:os";
import { join } from "node:path";
import { after, describe, test } from "node:test";
import { promisify } from "node:util";
import { OrphanTracker, readCommandLine } from "../../../src/local/tree/orphan-tracker.ts";
import { type ProcessEntry, procFsTable } from "../../../src/local/tree/process-table.ts";
import { NO_ADDON } from "../../native/started.ts";
import { KeepAliveClock } from "../../support/keep-alive-clock.ts";
import { ManualClock } from "../../support/manual-clock.ts";
import { skipUnless } from "../../support/system/skip-unless.ts";
import { until } from "../../support/system/until.ts";

const scratch = mkdtempSync(join(tmpdir(), "procwire-orphans-"));
after(() => rmSync(scratch, { recursive: true, force: true, maxRetries: 10 }));

const UNSHARE = ["--user", "--map-root-user", "--pid", "--fork", "--kill-child", "--mount-proc"];
const canUnshare = () => spawnSync("unshare", [...UNSHARE, "true"]).status === 0;

describe("OrphanTracker", { skip: NO_ADDON }, () => {
  test("adopts, reaps, kills and reports orphans, and leaves other children alone", async () => {
    // In a separate process, because a subreaper affects all children of its process.
    const directories = ["terminate-", "shutdown-"].map((name) => mkdtempSync(join(scratch, name)));
    const fixture = join(import.meta.dirname, "..", "..", "fixtures", "native", "subreaper.ts");
    const { stdout } = await promisify(execFile)(process.execPath, [fixture, ...directories]);
    const report = Object.assign(
      {},
      ...stdout
        .trim()
        .split("\n")
        .map((line) => JSON.parse(line)),
    );
    assert.deepEqual(report.terminate, { running: true });
    assert.deepEqual(report.aliveAfterTerminate, []);
    assert.equal(report.other, 12);
    assert.deepEqual(report.aliveAfterShutdown, []);
    assert.equal(report.bystander, true);
    // The untagged orphan belongs to no known process tree, so it is reported.
    const names = report.ended.map(({ name }: { name: string }) => name);
    assert.ok(names.includes("unmarked"), String(names));
    assert.ok(!names.includes("daemon"), String(names));
    assert.equal(report.children, 0);
  });

  test("does not kill foreign orphans if the server is process 1 of its namespace", {
    skip: skipUnless(canUnshare(), "this user may not create a pid namespace"),
  }, async () => {
    const fixture = join(import.meta.dirname, "..", "..", "fixtures", "native", "first-process.ts");
    const { stdout } = await promisify(execFile)("unshare", [...UNSHARE, process.execPath, fixture]);
    assert.deepEqual(JSON.parse(stdout), { pid: 1, orphan: true, own: false });
  });

  test("reaps a zombie that the scan before has seen as a child, and no other one", async () => {
    const clock = new ManualClock();
    const reaped: number[] = [];
    const entry = (pid: number, startTime: number, zombie: boolean): ProcessEntry => ({
      ...{ pid, startTime, zombie, parent: process.pid, session: pid, group: pid },
    });
    let children = [entry(101, 1, true), entry(102, 1, true), entry(103, 1, false)];
    const tracker = new OrphanTracker({
      clock,
      reaper: { setSubreaper: () => undefined, reap: (pid) => reaped.push(pid) > 0 },
      table: {
        ...procFsTable,
        orphanPids: () => children.map(({ pid }) => pid),
        entry: (pid) => children.find((child) => child.pid === pid) ?? null,
      },
    });
    tracker.track();
    await clock.advance(1000);
    assert.deepEqual(reaped, [], "other code may still wait for a child that has just exited");
    // Other code reaped 102, and a new child got its pid. 103 exited after the first scan.
    children = [entry(101, 1, true), entry(102, 2, true), entry(103, 1, true)];
    await clock.advance(1000);
    assert.deepEqual(reaped, [101, 103]);
    tracker.close();
  });

  test("does not keep its process alive while it scans, and stops scanning when it is closed", async () => {
    const clock = new KeepAliveClock();
    const reaper = { setSubreaper: () => undefined, reap: () => true };
    const tracker = new OrphanTracker({ clock, reaper, table: { ...procFsTable, orphanPids: () => [] } });
    tracker.track();
    await clock.advance(1000);
    assert.deepEqual([clock.pendingTimers, clock.keepAliveTimers], [1, 0]);
    tracker.close();
    assert.equal(clock.pendingTimers, 0);
  });

  test("makes the server a subreaper until it is closed", () => {
    const states: boolean[] = [];
    const reaper = { setSubreaper: (isSubreaper: boolean) => void states.push(isSubreaper), reap: () => true };
    const tracker = new OrphanTracker({ clock: new ManualClock(), reaper, table: procFsTable });
    assert.deepEqual(states, [true]);
    tracker.close();
    assert.deepEqual(states, [true, false]);
  });

  test("stops scanning after two scans without orphans", async () => {
    const clock = new ManualClock();
    let scans = 0;
    const orphanPids = () => {
      scans++;
      return [];
    };
    const tracker = new OrphanTracker({
      clock,
      reaper: { setSubreaper: () => undefined, reap: () => true },
      table: { ...procFsTable, orphanPids },
    });
    tracker.track();
    await clock.advance(10_000);
    assert.deepEqual([scans, clock.pendingTimers], [2, 0]);
    tracker.track();
    await clock.advance(10_000);
    assert.equal(scans, 4);
    tracker.close();
  });

  test("reaps the zombies that are left at shutdown, and does not report them", async () => {
    const reaped: number[] = [];
    const zombie: ProcessEntry = {
      ...{ pid: 101, parent: process.pid, startTime: 1, zombie: true, session: 101, group: 101 },
    };
    const tracker = new OrphanTracker({
      clock: new ManualClock(),
      reaper: { setSubreaper: () => undefined, reap: (pid) => reaped.push(pid) > 0 },
      table: { ...procFsTable, orphanPids: () => [zombie.pid], entry: (pid) => (pid === zombie.pid ? zombie : null) },
    });
    assert.deepEqual([await tracker.endAll(), reaped], [[], [zombie.pid]]);
    tracker.close();
  });

  test("kills and reports live orphans with their descendants once each", async () => {
    const clock = new ManualClock();
    const entry = (pid: number, parent: number): ProcessEntry => ({
      ...{ pid, parent, startTime: 1, zombie: false, session: pid, group: pid },
    });
    let orphans = [entry(process.ppid, process.pid)];
    const descendants = [entry(101, process.ppid)];
    const killed: number[] = [];
    const tracker = new OrphanTracker({
      clock,
      reaper: { setSubreaper: () => undefined, reap: () => true },
      table: {
        ...procFsTable,
        orphanPids: () => orphans.map(({ pid }) => pid),
        entry: (pid) => orphans.find((orphan) => orphan.pid === pid) ?? null,
        descendants: () => descendants,
        signal: ({ pid }, signal) => killed.push(pid, signal) > 0,
      },
    });
    const ended = tracker.endAll();
    await clock.advance(5);
    orphans = [];
    await clock.advance(5);
    const reported = await ended;
    assert.deepEqual(
      reported.map(({ pid }) => pid),
      [process.ppid, 101],
    );
    assert.notEqual(reported[0]?.command, "");
    assert.deepEqual(killed.slice(0, 4), [process.ppid, 9, 101, 9]);
    tracker.close();
  });
});

describe("readCommandLine", () => {
  test("returns the arguments of a process, or the name of a zombie, which has no arguments", async () => {
    // The process never waits, so its exited child stays a zombie.
    const parent = spawn("sh", ["-c", "true & exec sleep 601"], { stdio: "ignore" });
    try {
      const pid = parent.pid ?? 0;
      await until("the shell to be replaced", () => readCommandLine(pid) === "sleep 601");
      const zombie = () => procFsTable.descendants(pid).find((child) => child.zombie);
      await until("its child to exit", () => zombie() !== undefined);
      assert.equal(readCommandLine(zombie()?.pid ?? 0), "sh");
    } finally {
      parent.kill("SIGKILL");
    }
  });
});
