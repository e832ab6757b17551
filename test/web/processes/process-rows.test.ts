import assert from "node:assert/strict";
import { describe, test } from "node:test";
import type { ProcessListing } from "../../../src/exec/exec-process.ts";
import { filterRows, ProcessRows, shortCommand, sortRows } from "../../../src/web/processes/process-rows.ts";

const listing = (handle: string, more: Partial<ProcessListing> = {}): ProcessListing => ({
  ...{ processId: handle, handle, argv: ["make", handle], cwd: "/", tty: false, pid: 1, running: true },
  ...{ exitCode: null, signal: null, startedAtMs: 0, outputBytes: 0, ...more },
});

describe("ProcessRows", () => {
  test("derives the output rate from two polls, and keeps the array of a silent process", () => {
    const rows = new ProcessRows();
    const rates = (atMs: number, outputBytes: number) =>
      rows.update([listing("a", { outputBytes })], "local", atMs)[0]?.rates;
    assert.deepEqual(rates(0, 100), []);
    const silent = rates(1000, 100);
    assert.deepEqual(silent, [0]);
    assert.equal(rates(2000, 100), silent);
    assert.deepEqual(rates(4000, 500), [0, 200]);
    for (let poll = 5; poll < 60; poll++) rates(poll * 1000, poll * 1000);
    assert.equal(rates(60_000, 60_000)?.length, 30);
  });

  test("reports the owner of foreign processes and the usage of the tree", () => {
    const usage = { cpuMs: 10, cpuPercent: 12.5, memoryBytes: 4096, processes: 2 };
    const [own, other] = new ProcessRows().update(
      [listing("a", { usage }), listing("b", { principal: "eve" })],
      "me",
      0,
    );
    assert.deepEqual([own?.owner, own?.cpuPercent, own?.memoryBytes], ["me", 12.5, 4096]);
    assert.deepEqual([other?.owner, other?.cpuPercent], ["eve", null]);
  });
});

test("a shell command is shown by its script", () => {
  assert.equal(shortCommand(["/bin/bash", "-lc", "npm test"]), "npm test");
  assert.equal(shortCommand(["bash", "--norc", "-c", "\nfirst\nsecond", "name"]), "first second");
  assert.equal(shortCommand(["/bin/bash", "-l"]), "/bin/bash -l");
  assert.equal(shortCommand(["bash", "build.sh", "-c", "x"]), "bash build.sh -c x");
  assert.equal(shortCommand(["gcc", "-c", "a b.c"]), "gcc -c 'a b.c'");
});

test("a filter matches all of its words in name, command, state and owner", () => {
  const rows = new ProcessRows().update(
    [listing("a", { principal: "eve" }), listing("b", { running: false, exitCode: 3 })],
    "me",
    0,
  );
  const found = (filter: string) => filterRows(rows, filter).map(({ key }) => key);
  assert.deepEqual(found(""), ["a", "b"]);
  assert.deepEqual(found("MAKE eve"), ["a"]);
  assert.deepEqual(found("exited 3"), ["b"]);
  assert.deepEqual(found("make nothing"), []);
});

test("rows with equal values keep the newest first in both directions", () => {
  const rows = new ProcessRows().update(
    [
      listing("a", { startedAtMs: 1 }),
      listing("b", { startedAtMs: 2 }),
      listing("c", { startedAtMs: 3, running: false, exitCode: 0 }),
    ],
    "me",
    0,
  );
  const sorted = (key: "age" | "cpu" | "state", isDescending: boolean) =>
    sortRows(rows, { key, isDescending }).map((row) => row.key);
  assert.deepEqual(sorted("age", false), ["c", "b", "a"]);
  assert.deepEqual(sorted("age", true), ["a", "b", "c"]);
  assert.deepEqual(sorted("cpu", true), ["c", "b", "a"]);
  assert.deepEqual(sorted("state", false), ["b", "a", "c"]);
});
