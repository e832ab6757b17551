import assert from "node:assert/strict";
import { appendFileSync, mkdirSync, renameSync, rmSync, writeFileSync } from "node:fs";
import { type TestContext, test } from "node:test";
import { ManualClock } from "../../src/async/clock.ts";
import { withDeadline } from "../../src/async/deadline.ts";
import { MAX_MISSING_PATHS, MissingWatches, POLL_MS } from "../../src/files/missing-path-watches.ts";
import { Scratch } from "./scratch.ts";

/** A connection's watches with their reports, and a way to wait for the next one. */
class Listening {
  readonly told: number[] = [];
  readonly watches: MissingWatches;
  #scratch: Scratch;
  #next = Promise.withResolvers<void>();

  constructor(
    t: TestContext,
    scratch: Scratch,
    system: ConstructorParameters<typeof MissingWatches>[1] = {},
  ) {
    this.#scratch = scratch;
    this.watches = new MissingWatches((watchId) => {
      this.told.push(watchId);
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

  async toldNext(act: () => void): Promise<number | undefined> {
    const next = this.#next.promise;
    act();
    await withDeadline(next, 10_000, "the watch to tell");
    return this.told.at(-1);
  }

  /** The system's events so far have all arrived once one of a later change has. */
  async toldSoFar(watchId: number): Promise<number[]> {
    const before = [...this.told];
    assert.equal(await this.watch(watchId, [`marker-${watchId}`]), true);
    await this.toldNext(() => this.#scratch.file(`marker-${watchId}`));
    return before;
  }
}

function listening(t: TestContext): { scratch: Scratch; ears: Listening } {
  const scratch = new Scratch(t);
  return { scratch, ears: new Listening(t, scratch) };
}

test("reports once that a missing file has appeared", async (t) => {
  const { scratch, ears } = listening(t);
  assert.equal(await ears.watch(1, ["new", "other"]), true);
  assert.equal(await ears.toldNext(() => scratch.file("new")), 1);
  scratch.file("other");
  assert.deepEqual(await ears.toldSoFar(2), [1]);
});

test("reports that a missing parent has appeared, so that the client can watch again", async (t) => {
  const { scratch, ears } = listening(t);
  assert.equal(await ears.watch(1, ["x/y/z"]), true);
  assert.equal(await ears.toldNext(() => mkdirSync(scratch.path("x"))), 1);
  assert.equal(await ears.watch(2, ["x/y/z"]), true);
  assert.equal(await ears.toldNext(() => mkdirSync(scratch.path("x/y"))), 2);
  assert.equal(await ears.watch(3, ["x/y/z"]), true);
  assert.equal(await ears.toldNext(() => writeFileSync(scratch.path("x/y/z"), "")), 3);
  assert.equal(await ears.watch(4, ["x/y/z"]), false);
});

test("reports nothing of other names in the same directory", async (t) => {
  const { scratch, ears } = listening(t);
  await ears.watch(1, ["new"]);
  scratch.file("unrelated");
  scratch.file("newer");
  await ears.toldNext(() => scratch.file("new"));
  assert.deepEqual(ears.told, [1]);
});

test("ends at once when a path exists, or can never exist", async (t) => {
  const { scratch, ears } = listening(t);
  scratch.file("a");
  scratch.link("broken", "nowhere");
  assert.equal(await ears.watch(1, ["missing", "a"]), false);
  assert.equal(await ears.watch(2, []), false);
  assert.equal(await ears.watch(3, [], "a"), false);
  assert.equal(await ears.watch(4, ["broken"]), false);
  assert.equal(await ears.watch(5, ["a/below"]), false);
  assert.equal(await ears.watch(6, ["missing"], "also-missing"), false);
  const foreign = await ears.watches.watchMissing({ watchId: 7, missing: ["file://elsewhere/x"] });
  assert.deepEqual(foreign, { watching: false });
  await assert.rejects(ears.watches.watchMissing({ watchId: 8, missing: ["x"] }), { code: -32602 });
});

test("reports a change of an existing file and its removal", async (t) => {
  const { scratch, ears } = listening(t);
  scratch.file("p", "1");
  assert.equal(await ears.watch(1, ["new"], "p"), true);
  assert.equal(await ears.toldNext(() => appendFileSync(scratch.path("p"), "2")), 1);
  assert.equal(await ears.watch(2, ["new"], "p"), true);
  assert.equal(await ears.toldNext(() => rmSync(scratch.path("p"))), 2);
});

test("reports that the watched directory was moved away", async (t) => {
  const { scratch, ears } = listening(t);
  scratch.directory("sub");
  assert.equal(await ears.watch(1, ["sub/q"]), true);
  assert.equal(await ears.toldNext(() => renameSync(scratch.path("sub"), scratch.path("gone"))), 1);
});

test("a greater id ends the watch before it, also when it is refused itself", async (t) => {
  const { scratch, ears } = listening(t);
  scratch.file("a");
  await ears.watch(1, ["one"]);
  assert.equal(await ears.watch(2, ["two"]), true);
  scratch.file("one");
  assert.deepEqual(await ears.toldSoFar(3), []);
  await ears.watch(4, ["four"]);
  assert.equal(await ears.watch(5, ["a"]), false);
  scratch.file("four");
  assert.deepEqual(await ears.toldSoFar(6), [3]);
});

test("an id must be greater than any before, and a lesser one changes nothing", async (t) => {
  const { scratch, ears } = listening(t);
  assert.equal(await ears.watch(0, ["n"]), false);
  assert.equal(await ears.watch(9, ["n"]), true);
  assert.equal(await ears.watch(9, ["m"]), false);
  assert.equal(await ears.watch(8, ["m"]), false);
  assert.equal(await ears.toldNext(() => scratch.file("n")), 9);
  assert.equal(await ears.watch(9, ["m"]), false);
});

test("a watch has at most 64 paths", async (t) => {
  const { ears } = listening(t);
  const names = Array.from({ length: MAX_MISSING_PATHS + 1 }, (_, at) => `m${at}`);
  assert.equal(await ears.watch(1, names), false);
  assert.equal(await ears.watch(2, names.slice(1)), true);
});

test("of two watches asked for at once only the greater id lives", async (t) => {
  const { scratch, ears } = listening(t);
  const answers = await Promise.all([ears.watch(1, ["one"]), ears.watch(2, ["two"])]);
  assert.deepEqual(answers, [false, true]);
  scratch.file("one");
  assert.equal(await ears.toldNext(() => scratch.file("two")), 2);
  assert.deepEqual(ears.told, [2]);
});

test("after close nothing is reported and nothing can be watched", async (t) => {
  const scratch = new Scratch(t);
  const told: number[] = [];
  const closed = new MissingWatches((id) => told.push(id));
  await closed.watchMissing({ watchId: 1, missing: [scratch.uri("n")] });
  closed.close();
  closed.close();
  scratch.file("n");
  const other = new Listening(t, scratch);
  await other.toldSoFar(1);
  assert.deepEqual(told, []);
  assert.deepEqual(await closed.watchMissing({ watchId: 2, missing: [scratch.uri("z")] }), {
    watching: false,
  });
});

test("polls where the system has no watch left", async (t) => {
  const scratch = new Scratch(t);
  const clock = new ManualClock();
  const watch = () => {
    throw Object.assign(new Error("ENOSPC: no watch left"), { code: "ENOSPC" });
  };
  const ears = new Listening(t, scratch, { clock, watch });
  scratch.file("p", "1");
  assert.equal(await ears.watch(1, ["x/new"], "p"), true);
  await clock.advance(POLL_MS);
  assert.deepEqual(ears.told, []);
  scratch.file("x/new");
  // Each poll is a real system call, so the clock is advanced until the poll has seen the change.
  const told = ears.toldNext(() => undefined);
  const moving = setInterval(() => void clock.advance(POLL_MS), 5);
  assert.equal(await told, 1);
  clearInterval(moving);
  assert.equal(clock.pendingTimers, 0);

  assert.equal(await ears.watch(2, ["y"], "p"), true);
  ears.watches.close();
  assert.equal(clock.pendingTimers, 0);
});
