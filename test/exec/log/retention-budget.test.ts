import assert from "node:assert/strict";
import { test } from "node:test";
import fc from "fast-check";
import { EventLog } from "../../../src/exec/log/event-log.ts";
import { RetentionBudget } from "../../../src/exec/log/retention-budget.ts";

const EXIT = { exitCode: 0, signal: null, reason: "exited", sandboxDenied: false } as const;

function logs(count: number, budget: RetentionBudget): EventLog[] {
  return Array.from({ length: count }, () => new EventLog({ budget, limits: { retainedBytes: 100 } }));
}

test("evicts logs of closed processes first, then the largest logs", () => {
  const budget = new RetentionBudget(200);
  const [closed, large, little] = logs(3, budget);
  assert.ok(closed && large && little);
  closed.append("stdout", new Uint8Array(60));
  closed.exited(EXIT);
  closed.closed();
  for (let n = 0; n < 9; n++) large.append("stdout", new Uint8Array(10));
  little.append("stdout", new Uint8Array(40));
  assert.equal(budget.bytes, 190);
  little.append("stdout", new Uint8Array(20));
  assert.equal(closed.retainedBytes, 0);
  assert.equal(large.retainedBytes, 90);
  assert.equal(little.retainedBytes, 60);
  for (let n = 0; n < 5; n++) little.append("stdout", new Uint8Array(8));
  large.append("stdout", new Uint8Array(10));
  large.append("stdout", new Uint8Array(1));
  assert.ok(large.retainedBytes < 100);
  assert.ok(budget.bytes <= 200);
});

test("counts the retained bytes of all logs, and stays within its maximum unless a cursor pins", () => {
  const step = fc.record({
    which: fc.nat({ max: 3 }),
    what: fc.constantFrom("append", "append", "append", "close", "hold", "dispose"),
    size: fc.integer({ min: 1, max: 50 }),
  });
  fc.assert(
    fc.property(fc.array(step, { maxLength: 60 }), (steps) => {
      const budget = new RetentionBudget(220);
      const all = logs(4, budget);
      let held = false;
      for (const { which, what, size } of steps) {
        const log = all[which];
        assert.ok(log);
        if (what === "append") log.append("stdout", new Uint8Array(size));
        if (what === "close") log.closed();
        if (what === "dispose") log.dispose();
        if (what === "hold") {
          log.cursor({ lossless: true });
          held = true;
        }
        const retained = all.reduce((sum, one) => sum + one.retainedBytes, 0);
        assert.equal(budget.bytes, retained);
        if (!held) assert.ok(retained <= 220 + size);
      }
    }),
    { numRuns: 1000 },
  );
});

const MIB = 1024 * 1024;

/** Logs with an idle reader each, and whether their processes are paused. */
function logsWithIdleReaders(count: number, budget: RetentionBudget) {
  return Array.from({ length: count }, () => {
    const log = new EventLog({ budget });
    const held = { log, cursor: log.cursor({ lossless: true }), paused: false };
    log.onBackpressure = (paused) => {
      held.paused = paused;
    };
    return held;
  });
}

/** Writes 64 KiB at a time to every process that is not paused, until all are. */
function fill(logs: ReturnType<typeof logsWithIdleReaders>): void {
  while (logs.some(({ paused }) => !paused)) {
    for (const { log, paused } of logs) if (!paused) log.append("stdout", new Uint8Array(64 * 1024));
  }
}

test("pauses processes with slow readers before they pin more than the budget together", () => {
  const budget = new RetentionBudget(32 * MIB);
  const logs = logsWithIdleReaders(200, budget);
  fill(logs);
  // Each log may always pin the size of a pipe, and chunks are not split.
  assert.ok(budget.bytes <= 34 * MIB, `${budget.bytes / MIB} MiB are held`);
});

test("lets a single process pin its whole retention", () => {
  const budget = new RetentionBudget(32 * MIB);
  const logs = logsWithIdleReaders(1, budget);
  fill(logs);
  assert.equal(budget.bytes, MIB);
});

test("resumes a process paused for lack of budget when others free theirs", () => {
  const budget = new RetentionBudget(32 * MIB);
  const logs = logsWithIdleReaders(200, budget);
  fill(logs);
  const [first, ...others] = logs;
  assert.ok(first);
  for (const { log, cursor } of others) cursor.advanceTo(log.nextSeq - 1);
  assert.equal(first.paused, false);
  fill([first]);
  assert.equal(first.log.retainedBytes, MIB);
});

test("releases the bytes of a disposed log", () => {
  const budget = new RetentionBudget(32 * MIB);
  const logs = logsWithIdleReaders(200, budget);
  fill(logs);
  for (const { log } of logs) log.dispose();
  assert.equal(budget.pinnableBytes, 32 * MIB);
});
