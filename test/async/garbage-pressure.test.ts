import assert from "node:assert/strict";
import { describe, test } from "node:test";
import { GarbagePressure } from "../../src/async/garbage-pressure.ts";
import { MemoryBudget } from "../../src/async/memory-budget.ts";
import { ManualClock } from "../support/manual-clock.ts";

function setUp() {
  const budget = new MemoryBudget(1600);
  const clock = new ManualClock();
  const state = { residentBytes: 1000, collections: 0, trims: 0, freedBytes: 0 };
  const releaseMemory = (collects: boolean) => {
    if (!collects) {
      state.trims++;
      return;
    }
    state.collections++;
    state.residentBytes -= state.freedBytes;
    state.freedBytes = 0;
  };
  new GarbagePressure({ budget, clock, residentBytes: () => state.residentBytes, releaseMemory });
  const use = async (bytes: number) => {
    budget.charge(bytes);
    budget.release(bytes);
    await clock.advance(0);
  };
  return { budget, clock, state, use };
}

describe("GarbagePressure", () => {
  test("collects when released bytes stay resident beyond a sixteenth of the budget", async () => {
    const { state, use } = setUp();
    state.residentBytes = 1101;
    await use(49);
    assert.equal(state.collections, 0);
    await use(1);
    assert.equal(state.collections, 1);
  });

  test("does not collect while the resident memory is charged", async () => {
    const { budget, state, use } = setUp();
    budget.charge(500);
    state.residentBytes = 1600;
    await use(100);
    assert.equal(state.collections, 0);
    state.residentBytes = 1601;
    await use(100);
    assert.equal(state.collections, 1);
  });

  test("collects at most once per second, and then once more if the memory is still resident", async () => {
    const { clock, state, use } = setUp();
    state.residentBytes = 5000;
    for (let n = 0; n < 50; n++) await use(1000);
    assert.deepEqual([state.collections, state.trims], [1, 1]);
    await clock.advance(999);
    assert.equal(state.collections, 1);
    await clock.advance(1);
    assert.equal(state.collections, 2);
  });

  test("charges memory that a collection does not free, at most half of the budget", async () => {
    const { budget, state, use, clock } = setUp();
    state.residentBytes = 1000 + 100 + 300;
    state.freedBytes = 100;
    await use(100);
    assert.equal(budget.bytes, 200);
    state.residentBytes = 9000;
    await clock.advance(1000);
    await use(100);
    assert.equal(budget.bytes, 800);
  });

  test("lets the budget reclaim other memory in favor of the charge", async () => {
    const { budget, state, use } = setUp();
    let retained = 1500;
    budget.charge(retained);
    budget.addReclaimer("liveProcesses", (bytes) => {
      const freed = Math.min(bytes, retained);
      retained -= freed;
      budget.release(freed);
    });
    state.residentBytes = 1000 + 1500 + 100 + 300;
    await use(100);
    assert.ok(retained <= 1300, `${retained} bytes are retained`);
  });

  test("lowers the charge when the memory is free, without a further collection", async () => {
    const { budget, clock, state, use } = setUp();
    state.residentBytes = 1400;
    await use(100);
    assert.equal(budget.bytes, 300);
    state.residentBytes = 1200;
    await clock.advance(10_000);
    assert.equal(budget.bytes, 100);
    state.residentBytes = 1000;
    await clock.advance(10_000);
    assert.equal(budget.bytes, 0);
    assert.equal(state.collections, 1);
  });
});
