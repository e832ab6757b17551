import assert from "node:assert/strict";
import { describe, test } from "node:test";
import type { Clock } from "../../src/async/clock.ts";
import { GarbagePressure } from "../../src/async/garbage-pressure.ts";
import { MemoryBudget } from "../../src/async/memory-budget.ts";

function setUp(collectionMs = 0) {
  const budget = new MemoryBudget(1600);
  const state = { residentBytes: 1000, collections: 0, nowMs: 0 };
  const due: (() => void)[] = [];
  const clock: Clock = {
    now: () => state.nowMs,
    monotonic: () => state.nowMs,
    after: (_ms, fn) => {
      due.push(fn);
      return { cancel: () => undefined };
    },
  };
  const collect = () => {
    state.collections++;
    state.nowMs += collectionMs;
  };
  new GarbagePressure({ budget, clock, residentBytes: () => state.residentBytes, collect });
  const use = (bytes: number) => {
    budget.charge(bytes);
    budget.release(bytes);
    due.shift()?.();
  };
  return { budget, state, use };
}

describe("GarbagePressure", () => {
  test("collects when released bytes stay resident beyond an eighth of the budget", () => {
    const { state, use } = setUp();
    state.residentBytes = 1201;
    use(99);
    assert.equal(state.collections, 0);
    use(1);
    assert.equal(state.collections, 1);
  });

  test("does not collect while the resident memory is charged", () => {
    const { budget, state, use } = setUp();
    budget.charge(500);
    state.residentBytes = 1700;
    use(100);
    assert.equal(state.collections, 0);
    state.residentBytes = 1701;
    use(100);
    assert.equal(state.collections, 1);
  });

  test("collects at most once per second, and at most for a twentieth of the time", () => {
    for (const [collectionMs, intervalMs] of [
      [0, 1000],
      [200, 4000],
    ] as const) {
      const { state, use } = setUp(collectionMs);
      state.residentBytes = 5000;
      for (let n = 0; n < 50; n++) use(1000);
      assert.equal(state.collections, 1);
      state.nowMs += intervalMs - 1;
      use(100);
      assert.equal(state.collections, 1);
      state.nowMs += 1;
      use(100);
      assert.equal(state.collections, 2);
    }
  });
});
