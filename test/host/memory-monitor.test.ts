import assert from "node:assert/strict";
import { test } from "node:test";
import { MemoryBudget } from "../../src/async/memory-budget.ts";
import { defaultMemoryBudget, MemoryMonitor } from "../../src/host/memory-monitor.ts";
import { ManualClock } from "../support/manual-clock.ts";

const MIB = 1024 * 1024;

/** A container of 400 MiB whose use is 20 MiB, the charged bytes, and `otherBytes`. */
function container() {
  const clock = new ManualClock();
  const budget = new MemoryBudget(160 * MIB);
  const changes: boolean[] = [];
  const collections: boolean[] = [];
  const state = { clock, budget, changes, collections, otherBytes: 0, checks: 0 };
  const usedBytes = () => {
    state.checks++;
    return 20 * MIB + budget.bytes + state.otherBytes;
  };
  new MemoryMonitor({
    budget,
    limit: { bytes: 400 * MIB, usedBytes },
    clock,
    releaseMemory: (collects) => collections.push(collects),
    onChange: (isLowered) => changes.push(isLowered),
  });
  return state;
}

test("the default budget is 40% of the limit, at most 512 MiB", () => {
  assert.equal(defaultMemoryBudget(400 * MIB), 160 * MIB);
  assert.equal(defaultMemoryBudget(1280 * MIB), 512 * MIB);
  assert.equal(defaultMemoryBudget(null), 512 * MIB);
});

test("MemoryMonitor lowers the budget by what exceeds 85% of the limit, and raises it when memory is free again", async () => {
  const state = container();
  const { budget, clock } = state;
  let reclaimed = 0;
  budget.addReclaimer("closedProcesses", (bytes) => {
    reclaimed += bytes;
    budget.release(bytes);
  });
  budget.charge(100 * MIB);
  assert.deepEqual([budget.limitBytes, state.changes], [160 * MIB, []]);
  state.otherBytes = 250 * MIB;
  budget.noteGrowth(400 * MIB);
  // 370 MiB are used, 340 MiB are allowed: 30 MiB of the 100 MiB must go.
  assert.equal(budget.limitBytes, 70 * MIB);
  assert.ok(reclaimed >= 30 * MIB, String(reclaimed));
  assert.deepEqual([state.changes, state.collections], [[true], [true]]);
  state.otherBytes = 0;
  await clock.advance(1000);
  assert.equal(budget.limitBytes, 160 * MIB);
  assert.deepEqual(state.changes, [true, false]);
});

test("MemoryMonitor never lowers the budget below 8 MiB, and collects garbage at most every two seconds", async () => {
  const state = container();
  state.otherBytes = 1000 * MIB;
  state.budget.noteGrowth(400 * MIB);
  assert.equal(state.budget.limitBytes, 8 * MIB);
  await state.clock.advance(4000);
  assert.deepEqual(state.collections, [true, false, true, false, true]);
});

test("MemoryMonitor checks after growth, and every second only while the budget is lowered", async () => {
  const state = container();
  const checks = state.checks;
  await state.clock.advance(60_000);
  assert.equal(state.checks, checks);
  state.budget.charge(79 * MIB);
  assert.equal(state.checks, checks);
  state.budget.charge(2 * MIB);
  assert.equal(state.checks, checks + 1);
});
