import assert from "node:assert/strict";
import { describe, test } from "node:test";
import { ProcessHandles } from "../../../src/server/session/process-handles.ts";
import { SessionProcess } from "../../../src/server/session/session-process.ts";
import { SessionProcessTable } from "../../../src/server/session/session-process-table.ts";
import { SharedProcess } from "../../../src/server/session/shared-process.ts";
import { ViewerScheduler } from "../../../src/server/session/viewer-scheduler.ts";
import { ManualClock } from "../../support/manual-clock.ts";
import { FakeProcess } from "../../support/servers/fake-host.ts";

const clock = new ManualClock();
const handles = new ProcessHandles<SharedProcess>();

function createEntry(processId: string) {
  const params = { processId, argv: ["x"], cwd: "/", env: {}, tty: false };
  const process = new FakeProcess(params, clock, {});
  const shared = new SharedProcess(process, { handles, ownerId: "local", lifetime: "session" });
  const entry = new SessionProcess(shared, {
    ...{ processId, role: "owner", clock, onDetach: "pause", extraBytes: 0 },
    scheduler: new ViewerScheduler(clock),
    onProgress: () => undefined,
    onSharingChanged: () => undefined,
  });
  return { process, shared, entry };
}

describe("SessionProcessTable", () => {
  test("resolves a pending process for its callers when it has started", async () => {
    const table = new SessionProcessTable(10);
    const { entry, shared } = createEntry("p");
    assert.equal(table.find("p"), null);
    const reservation = table.reserve("p");
    const found = table.find("p");
    assert.ok(found instanceof Promise);
    assert.equal(table.findStarted("p"), null);
    assert.deepEqual([...table.entries()], []);
    assert.equal(reservation.complete(entry), true);
    assert.equal(await found, entry);
    assert.deepEqual([table.find("p"), table.findStarted("p"), table.findShared(shared)], [entry, entry, entry]);
    assert.equal(table.findShared(createEntry("p").shared), null);
  });

  test("frees the id of a failed start, whose callers get null", async () => {
    const table = new SessionProcessTable(10);
    const reservation = table.reserve("p");
    const found = table.find("p");
    reservation.fail();
    assert.equal(await found, null);
    assert.equal(table.find("p"), null);
    table.reserve("p");
  });

  test("rejects an id in use", () => {
    const table = new SessionProcessTable(10);
    table.reserve("p");
    assert.throws(() => table.reserve("p"), { message: "process p already exists" });
    assert.throws(() => table.acquire("p"), { message: "process p already exists" });
  });

  test("limits live, pending and restored processes together, but not ended ones", () => {
    const table = new SessionProcessTable(3);
    const [restored, started] = [createEntry("restored"), createEntry("started")];
    table.restore(restored.entry);
    table.reserve("started").complete(started.entry);
    const pending = table.reserve("pending");
    assert.throws(() => table.acquire("more"), /^RequestError: too many processes: this session may have 3 live/);
    started.process.exit();
    table.acquire("more");
    table.add(createEntry("more").entry);
    assert.throws(() => table.acquire("again"), /too many processes/);
    pending.fail();
    table.acquire("again");
  });

  test("contains a process until its id is removed or names another process", () => {
    const table = new SessionProcessTable(10);
    const [first, second] = [createEntry("p").entry, createEntry("p").entry];
    assert.equal(table.has(first), false);
    table.add(first);
    assert.equal(table.has(first), true);
    table.remove("p");
    assert.equal(table.has(first), false);
    table.add(second);
    assert.equal(table.has(first), false);
  });

  test("does not add a process whose start completes after the table was cleared", async () => {
    const table = new SessionProcessTable(10);
    const [started, pending] = [createEntry("started").entry, createEntry("pending").entry];
    table.add(started);
    const reservation = table.reserve("pending");
    const found = table.find("pending");
    assert.deepEqual(table.clear(), [started]);
    assert.equal(reservation.complete(pending), false);
    assert.equal(await found, pending);
    assert.equal(table.find("pending"), null);
    assert.deepEqual(table.clear(), []);
  });
});
