import assert from "node:assert/strict";
import { execFile, spawnSync } from "node:child_process";
import { mkdtempSync, rmSync } from "node:fs";
import { tmpdir } from "node:os";
import { join } from "node:path";
import { after, describe, test } from "node:test";
import { promisify } from "node:util";
import { OrphanTracker } from "../../../src/local/tree/orphan-tracker.ts";
import { type ProcessEntry, procFsTable } from "../../../src/local/tree/process-table.ts";
import { NO_ADDON } from "../../native/started.ts";
import { ManualClock } from "../../support/manual-clock.ts";
import { skipUnless } from "../../support/system/skip-unless.ts";

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
});
