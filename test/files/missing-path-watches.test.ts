import assert from "node:assert/strict";
import { appendFileSync, mkdirSync, renameSync, rmSync, watch, writeFileSync } from "node:fs";
import { type TestContext, test } from "node:test";
import { withDeadline } from "../../src/async/deadline.ts";
import { MAX_MISSING_PATHS, MissingWatches, POLL_MS } from "../../src/files/missing-path-watches.ts";
import { ManualClock } from "../support/manual-clock.ts";
import { Scratch } from "./scratch.ts";

/** The watches of a connection with their reports. */
class WatchReports {
  readonly watchIds: number[] = [];
  readonly watches: MissingWatches;
  #scratch: Scratch;
  #next = Promise.withResolvers<void>();

  constructor(t: TestContext, scratch: Scratch, system: ConstructorParameters<typeof MissingWatches>[1] = {}) {
    this.#scratch = scratch;
    this.watches = new MissingWatches((watchId) => {
      this.watchIds.push(watchId);
      this.#next.resolve();
      this.#next = Promise.withResolvers();
    }, system);
    t.after(() => this.watches.close());
  }

  async watch(watchId: number, missing: string[], present?: string): Promise<boolean> {
    const { watching } = await this.watches.watchMissing({
      watchId,
      missing: missing.map((name) => this.#scratch.uri(name)),
      present: present === undefined ? undefined : this.#scratch.uri(present),
    });
    return watching;
  }

  async nextReport(act: () => void): Promise<number | undefined> {
    const next = this.#next.promise;
    act();
    await withDeadline(next, 60_000, "the watch to report");
    return this.watchIds.at(-1);
  }

  /** Returns the reported watch ids. First waits until a later change is reported: then all earlier events have arrived. */
  async reportsSoFar(watchId: number): Promise<number[]> {
    const before = [...this.watchIds];
    assert.equal(await this.watch(watchId, [`marker-${watchId}`]), true);
    await this.nextReport(() => this.#scratch.file(`marker-${watchId}`));
    return before;
  }
}

function startWatches(t: TestContext): { scratch: Scratch; reports: WatchReports } {
  const scratch = new Scratch(t);
  return { scratch, reports: new WatchReports(t, scratch) };
}

test("MissingWatches reports once that a missing file appeared", async (t) => {
  const { scratch, reports } = startWatches(t);
  assert.equal(await reports.watch(1, ["new", "other"]), true);
  assert.equal(await reports.nextReport(() => scratch.file("new")), 1);
  scratch.file("other");
  assert.deepEqual(await reports.reportsSoFar(2), [1]);
});

test("MissingWatches reports that a missing parent appeared, so that the client can watch again", async (t) => {
  const { scratch, reports } = startWatches(t);
  assert.equal(await reports.watch(1, ["x/y/z"]), true);
  assert.equal(await reports.nextReport(() => mkdirSync(scratch.path("x"))), 1);
  assert.equal(await reports.watch(2, ["x/y/z"]), true);
  assert.equal(await reports.nextReport(() => mkdirSync(scratch.path("x/y"))), 2);
  assert.equal(await reports.watch(3, ["x/y/z"]), true);
  assert.equal(await reports.nextReport(() => writeFileSync(scratch.path("x/y/z"), "")), 3);
  assert.equal(await reports.watch(4, ["x/y/z"]), false);
});

test("MissingWatches watches a file although its parents appear during the lookup", async (t) => {
  const { scratch, reports } = startWatches(t);
  // The server checks the path from its end to its start, so the parents appear between two checks.
  for (let ticks = 1; ticks <= 20; ticks++) {
    const parents = [`tree-${ticks}`, ...Array.from({ length: 100 }, () => "d")].join("/");
    const watching = reports.watch(ticks, [`${parents}/file`]);
    for (let tick = 0; tick < ticks; tick++) await new Promise((resolve) => setImmediate(resolve));
    scratch.directory(parents);
    assert.equal(await watching, true);
    assert.equal(await reports.nextReport(() => scratch.file(`${parents}/file`)), ticks);
  }
});

test("MissingWatches watches through a link to a directory that appears during the start of the watch", async (t) => {
  const scratch = new Scratch(t);
  scratch.directory("real");
  let isLinked = false;
  const reports = new WatchReports(t, scratch, {
    watch: new Proxy(watch, {
      apply: (target, self, args) => {
        if (!isLinked) scratch.link("link", "real");
        isLinked = true;
        return Reflect.apply(target, self, args);
      },
    }),
  });
  assert.equal(await reports.watch(1, ["link/file"]), true);
  assert.equal(await reports.nextReport(() => scratch.file("real/file")), 1);
});

test("MissingWatches ignores other names in the same directory", async (t) => {
  const { scratch, reports } = startWatches(t);
  await reports.watch(1, ["new"]);
  scratch.file("unrelated");
  scratch.file("newer");
  await reports.nextReport(() => scratch.file("new"));
  assert.deepEqual(reports.watchIds, [1]);
});

test("MissingWatches ends at once if a path exists or can never exist", async (t) => {
  const { scratch, reports } = startWatches(t);
  scratch.file("a");
  scratch.link("broken", "nowhere");
  assert.equal(await reports.watch(1, ["missing", "a"]), false);
  assert.equal(await reports.watch(2, []), false);
  assert.equal(await reports.watch(3, [], "a"), false);
  assert.equal(await reports.watch(4, ["broken"]), false);
  assert.equal(await reports.watch(5, ["a/below"]), false);
  assert.equal(await reports.watch(6, ["missing"], "also-missing"), false);
  assert.equal(await reports.watch(7, ["broken/below"]), false);
  const foreign = await reports.watches.watchMissing({ watchId: 8, missing: ["file://elsewhere/x"] });
  assert.deepEqual(foreign, { watching: false });
  await assert.rejects(reports.watches.watchMissing({ watchId: 9, missing: ["x"] }), { code: -32602 });
});

test("MissingWatches reports a change of an existing file and its removal", async (t) => {
  const { scratch, reports } = startWatches(t);
  scratch.file("p", "1");
  assert.equal(await reports.watch(1, ["new"], "p"), true);
  assert.equal(await reports.nextReport(() => appendFileSync(scratch.path("p"), "2")), 1);
  assert.equal(await reports.watch(2, ["new"], "p"), true);
  assert.equal(await reports.nextReport(() => rmSync(scratch.path("p"))), 2);
});

test("MissingWatches reports that the watched directory was moved", async (t) => {
  const { scratch, reports } = startWatches(t);
  scratch.directory("sub");
  assert.equal(await reports.watch(1, ["sub/q"]), true);
  assert.equal(await reports.nextReport(() => renameSync(scratch.path("sub"), scratch.path("gone"))), 1);
});

test("MissingWatches ends the previous watch on a higher id, even if the new watch is rejected", async (t) => {
  const { scratch, reports } = startWatches(t);
  scratch.file("a");
  await reports.watch(1, ["one"]);
  assert.equal(await reports.watch(2, ["two"]), true);
  scratch.file("one");
  assert.deepEqual(await reports.reportsSoFar(3), []);
  await reports.watch(4, ["four"]);
  assert.equal(await reports.watch(5, ["a"]), false);
  scratch.file("four");
  assert.deepEqual(await reports.reportsSoFar(6), [3]);
});

test("MissingWatches ignores a watch id that is not higher than all earlier ids", async (t) => {
  const { scratch, reports } = startWatches(t);
  assert.equal(await reports.watch(0, ["n"]), false);
  assert.equal(await reports.watch(9, ["n"]), true);
  assert.equal(await reports.watch(9, ["m"]), false);
  assert.equal(await reports.watch(8, ["m"]), false);
  assert.equal(await reports.nextReport(() => scratch.file("n")), 9);
  assert.equal(await reports.watch(9, ["m"]), false);
});

test("MissingWatches accepts at most 64 paths per watch", async (t) => {
  const { reports } = startWatches(t);
  const names = Array.from({ length: MAX_MISSING_PATHS + 1 }, (_, at) => `m${at}`);
  assert.equal(await reports.watch(1, names), false);
  assert.equal(await reports.watch(2, names.slice(1)), true);
});

test("MissingWatches keeps the higher id of two concurrent watches", async (t) => {
  const { scratch, reports } = startWatches(t);
  const results = await Promise.all([reports.watch(1, ["one"]), reports.watch(2, ["two"])]);
  assert.deepEqual(results, [false, true]);
  scratch.file("one");
  assert.equal(await reports.nextReport(() => scratch.file("two")), 2);
  assert.deepEqual(reports.watchIds, [2]);
});

test("MissingWatches reports and watches nothing after close", async (t) => {
  const scratch = new Scratch(t);
  const watchIds: number[] = [];
  const closed = new MissingWatches((id) => watchIds.push(id));
  await closed.watchMissing({ watchId: 1, missing: [scratch.uri("n")] });
  closed.close();
  closed.close();
  scratch.file("n");
  const other = new WatchReports(t, scratch);
  await other.reportsSoFar(1);
  assert.deepEqual(watchIds, []);
  assert.deepEqual(await closed.watchMissing({ watchId: 2, missing: [scratch.uri("z")] }), {
    watching: false,
  });
});

test("MissingWatches polls if the system has no watch left", async (t) => {
  const scratch = new Scratch(t);
  const clock = new ManualClock();
  const watch = () => {
    throw Object.assign(new Error("ENOSPC: no watch left"), { code: "ENOSPC" });
  };
  const reports = new WatchReports(t, scratch, { clock, watch });
  scratch.file("p", "1");
  assert.equal(await reports.watch(1, ["x/new"], "p"), true);
  await clock.advance(POLL_MS);
  assert.deepEqual(reports.watchIds, []);
  scratch.file("x/new");
  // Each poll is a real system call, so the clock is advanced until the poll has seen the change.
  const nextReport = reports.nextReport(() => undefined);
  const moving = setInterval(() => void clock.advance(POLL_MS), 5);
  assert.equal(await nextReport, 1);
  clearInterval(moving);
  assert.equal(clock.pendingTimers, 0);

  assert.equal(await reports.watch(2, ["y"], "p"), true);
  reports.watches.close();
  assert.equal(clock.pendingTimers, 0);
});
