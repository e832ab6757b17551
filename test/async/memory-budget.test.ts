import assert from "node:assert/strict";
import { test } from "node:test";
import fc from "fast-check";
import { ByteTurns } from "../../src/async/byte-semaphore.ts";
import { ByteLedger } from "../../src/async/memory-budget.ts";
import { EventLog } from "../../src/exec/log/event-log.ts";
import { RetentionBudget } from "../../src/exec/log/retention-budget.ts";

const never = new AbortController().signal;

test("two kinds share one bound: one waits for the bytes that the other holds", async () => {
  const ledger = new ByteLedger(100);
  const [files, messages] = [new ByteTurns(100, ledger), new ByteTurns(100, ledger)];
  const first = await files.take(60, never);
  const message = await messages.take(30, never);
  const told: string[] = [];
  const second = messages.take(20, never).then((release) => {
    told.push("second message");
    return release;
  });
  assert.equal(files.tryTake(20), null);
  assert.equal(ledger.bytes, 90);
  assert.deepEqual(told, []);
  first();
  (await second)();
  message();
  assert.equal(ledger.bytes, 0);
});

test("one request of each kind is always admitted, however full the ledger is", async () => {
  const ledger = new ByteLedger(100);
  ledger.add(500);
  const [files, bodies] = [new ByteTurns(50, ledger), new ByteTurns(50, ledger)];
  const file = await files.take(80, never);
  const body = bodies.tryTake(10);
  assert.ok(body);
  assert.equal(bodies.tryTake(1), null);
  file();
  body();
  assert.equal(ledger.bytes, 500);
});

test("retained output gives way to requests under way, but not all of it", async () => {
  const ledger = new ByteLedger(1000);
  const budget = new RetentionBudget(800, ledger);
  const logs = Array.from({ length: 8 }, () => new EventLog({ budget, limits: { retainedBytes: 100 } }));
  for (const log of logs) for (let at = 0; at < 10; at++) log.append("stdout", new Uint8Array(10));
  assert.equal(ledger.bytes, 800);
  const answers = new ByteTurns(1000, ledger);
  await answers.take(1, never);
  await answers.take(600, never);
  assert.ok(budget.bytes <= 400, `${budget.bytes} are retained`);
  assert.ok(budget.bytes >= 200, `${budget.bytes} are retained`);
});

test("processes are paused early while too much is held, and go on when there is room", () => {
  const MIB = 1024 * 1024;
  const ledger = new ByteLedger(8 * MIB);
  const budget = new RetentionBudget(4 * MIB, ledger);
  const held = Array.from({ length: 16 }, () => {
    const log = new EventLog({ budget });
    const state = { log, cursor: log.cursor({ holding: true }), paused: false };
    log.onPressure = (paused) => {
      state.paused = paused;
    };
    return state;
  });
  // The other kinds keep so much that even this budget does not fit beside them.
  ledger.add(6 * MIB);
  let written = 0;
  for (let round = 0; round < 32; round++) {
    for (const { log, paused } of held) {
      if (paused) continue;
      log.append("stdout", new Uint8Array(64 * 1024));
      written += 64 * 1024;
    }
  }
  assert.ok(ledger.isFull);
  assert.ok(held.every(({ paused }) => paused));
  assert.ok(written < 4 * MIB, `${written} bytes were taken from processes nobody reads`);
  for (const { cursor } of held) cursor.close();
  assert.equal(ledger.isFull, false);
  assert.ok(held.every(({ paused }) => !paused));
});

test("counts exactly what its kinds hold, and all waits end", async () => {
  const step = fc.record({
    kind: fc.nat({ max: 1 }),
    bytes: fc.integer({ min: 1, max: 120 }),
    act: fc.constantFrom("take", "take", "try", "release", "append"),
  });
  await fc.assert(
    fc.asyncProperty(fc.array(step, { maxLength: 40 }), async (steps) => {
      const ledger = new ByteLedger(200);
      const turns = [new ByteTurns(150, ledger), new ByteTurns(150, ledger)];
      const budget = new RetentionBudget(100, ledger);
      const log = new EventLog({ budget, limits: { retainedBytes: 100 } });
      const waits: Promise<() => void>[] = [];
      const releases: (() => void)[] = [];
      let taken = 0;
      for (const { kind, bytes, act } of steps) {
        const one = turns[kind];
        assert.ok(one);
        if (act === "append") log.append("stdout", new Uint8Array(bytes));
        if (act === "release") releases.shift()?.();
        if (act === "try") {
          const release = one.tryTake(bytes);
          if (release) releases.push(release);
        }
        if (act === "take") {
          const wait = one.take(bytes, never);
          waits.push(wait);
          void wait.then((release) => {
            taken++;
            releases.push(release);
          });
        }
        await Promise.resolve();
        assert.equal(
          ledger.bytes,
          turns.reduce((sum, { bytes }) => sum + bytes, budget.bytes),
        );
      }
      for (let round = 0; round < 200 && taken < waits.length; round++) {
        for (const release of releases.splice(0)) release();
        await new Promise((resolve) => setImmediate(resolve));
      }
      assert.equal(taken, waits.length);
      for (const release of releases) release();
      log.dispose();
      assert.equal(ledger.bytes, 0);
    }),
    { numRuns: 300 },
  );
});
