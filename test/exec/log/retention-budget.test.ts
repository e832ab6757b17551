import assert from "node:assert/strict";
import { test } from "node:test";
import fc from "fast-check";
import { MemoryBudget } from "../../../src/async/memory-budget.ts";
import { EventLog } from "../../../src/exec/log/event-log.ts";
import { RetentionBudget } from "../../../src/exec/log/retention-budget.ts";

const EXIT = { exitCode: 0, signal: null, reason: "exited", sandboxDenied: false } as const;

function logs(count: number, budget: RetentionBudget): EventLog[] {
  return Array.from({ length: count }, () => new EventLog({ budget, limits: { retainedBytes: 100 } }));
}

test("RetentionBudget evicts logs of closed processes first, then the largest logs", () => {
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

test("RetentionBudget counts the retained bytes of all logs, and stays within its maximum unless a cursor pins", () => {
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

test("RetentionBudget pauses processes with slow readers before they pin more than the budget together", () => {
  const budget = new RetentionBudget(32 * MIB);
  const logs = logsWithIdleReaders(200, budget);
  fill(logs);
  // Each log may always pin the size of a pipe, and chunks are not split.
  assert.ok(budget.bytes <= 34 * MIB, `${budget.bytes / MIB} MiB are held`);
});

test("RetentionBudget lets a single process pin its whole retention", () => {
  const budget = new RetentionBudget(32 * MIB);
  const logs = logsWithIdleReaders(1, budget);
  fill(logs);
  assert.equal(budget.bytes, MIB);
});

test("RetentionBudget resumes a process paused for lack of budget when others free theirs", () => {
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

test("RetentionBudget releases the bytes of a disposed log", () => {
  const budget = new RetentionBudget(32 * MIB);
  const logs = logsWithIdleReaders(200, budget);
  fill(logs);
  for (const { log } of logs) log.dispose();
  assert.equal(budget.pinnableBytes, 32 * MIB);
});

test("RetentionBudget lets every log check its backpressure when the memory budget becomes full, and when bytes are free again", () => {
  const memory = new MemoryBudget(1000);
  const budget = new RetentionBudget(800, memory);
  const checks: boolean[] = [];
  const log = { retainedBytes: 0, isClosed: false, evictTo: () => undefined };
  budget.join(log);
  budget.join({ ...log, rebalance: () => checks.push(budget.isTight) });
  memory.charge(1001);
  assert.deepEqual(checks, [true]);
  memory.release(1001);
  assert.deepEqual(checks, [true, false]);
});

test("RetentionBudget charges retained bytes to the memory budget and evicts them on request, but not below a quarter", () => {
  const memory = new MemoryBudget(1000);
  const budget = new RetentionBudget(400, memory);
  const log = new EventLog({ budget, limits: { retainedBytes: 400 } });
  for (let n = 0; n < 20; n++) log.append("stdout", new Uint8Array(10));
  assert.deepEqual([budget.bytes, memory.bytes], [200, 200]);
  memory.charge(810);
  assert.ok(budget.bytes < 200 && budget.bytes >= 100, `${budget.bytes} bytes retained`);
  assert.equal(memory.bytes, 810 + budget.bytes);
  memory.charge(500);
  assert.equal(budget.bytes, 100);
});

test("RetentionBudget stops eviction if all output is pinned, and tries again after another sixteenth", () => {
  const budget = new RetentionBudget(1600);
  let evictions = 0;
  budget.join({ retainedBytes: 1700, isClosed: false, evictTo: () => evictions++ });
  budget.grow(1700);
  assert.equal(evictions, 1);
  budget.grow(100);
  assert.equal(evictions, 1);
  budget.grow(1);
  assert.equal(evictions, 2);
});

test("RetentionBudget lets every log check its backpressure once the pinned bytes change by a sixteenth", () => {
  const budget = new RetentionBudget(1600);
  let checks = 0;
  budget.join({ retainedBytes: 0, isClosed: false, evictTo: () => undefined, rebalance: () => checks++ });
  budget.pin(99);
  assert.equal(checks, 0);
  budget.pin(1);
  assert.equal(checks, 1);
  budget.pin(-100);
  assert.equal(checks, 2);
});

test("RetentionBudget evicts no further log once exactly seven eighths are left", () => {
  for (const isClosedFirst of [true, false]) {
    const budget = new RetentionBudget(1600);
    const evicted: string[] = [];
    const join = (name: string, bytes: number, isClosed: boolean) => {
      const evictTo = (target: number) => {
        evicted.push(name);
        budget.shrink(bytes - target);
      };
      budget.join({ retainedBytes: bytes, isClosed, evictTo });
      budget.grow(bytes);
    };
    const joins = [() => join("closed", 201, true), () => join("open", 1400, false)];
    for (const joinNext of isClosedFirst ? joins : joins.toReversed()) joinNext();
    assert.deepEqual([evicted, budget.bytes], [["closed"], 1400]);
  }
});

test("RetentionBudget does not evict again while a log evicts", () => {
  const budget = new RetentionBudget(1600);
  let [depth, evictions] = [0, 0];
  const evictTo = () => {
    assert.equal(++depth, 1);
    evictions++;
    // The process of the log resumes and writes.
    budget.grow(1000);
    budget.shrink(2000);
    depth--;
  };
  budget.join({ retainedBytes: 1700, isClosed: false, evictTo });
  budget.grow(2000);
  assert.deepEqual([evictions, budget.bytes], [1, 1000]);
  budget.grow(1000);
  assert.equal(evictions, 2);
});

test("RetentionBudget bounds the entries of short lines, not only their bytes", () => {
  const memory = new MemoryBudget(MIB);
  const budget = new RetentionBudget(MIB, memory);
  for (let process = 0; process < 4; process++) {
    const log = new EventLog({ budget });
    for (let n = 0; n < 10_000; n++) log.append("stdout", Uint8Array.of(10));
    assert.ok(budget.bytes > log.retainedBytes);
  }
  assert.ok(memory.bytes <= MIB, `${memory.bytes} bytes charged`);
});
