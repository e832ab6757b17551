import assert from "node:assert/strict";
import { test } from "node:test";
import fc from "fast-check";
import { EventLog } from "../../src/exec/event-log.ts";
import { RetentionBudget } from "../../src/exec/retention-budget.ts";

const EXIT = { exitCode: 0, signal: null, reason: "exited", sandboxDenied: false } as const;

function logs(count: number, budget: RetentionBudget): EventLog[] {
  return Array.from({ length: count }, () => new EventLog({ budget, limits: { retainedBytes: 100 } }));
}

test("closed processes give way before running ones, and of those the largest", () => {
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

test("counts exactly what all logs retain, and stays within its bound unless somebody holds", () => {
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
          log.cursor({ holding: true });
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
