import assert from "node:assert/strict";
import { test } from "node:test";
import fc from "fast-check";
import { ByteSemaphore } from "../../src/async/byte-semaphore.ts";
import { MemoryBudget } from "../../src/async/memory-budget.ts";
import { EventLog } from "../../src/exec/log/event-log.ts";
import { RetentionBudget } from "../../src/exec/log/retention-budget.ts";

const never = new AbortController().signal;

test("the memory budget shares one limit between two kinds: one waits for the bytes of the other", async () => {
  const ledger = new MemoryBudget(100);
  const [files, messages] = [new ByteSemaphore(100, ledger), new ByteSemaphore(100, ledger)];
  const first = await files.acquire(60, never);
  const message = await messages.acquire(30, never);
  const told: string[] = [];
  const second = messages.acquire(20, never).then((release) => {
    told.push("second message");
    return release;
  });
  assert.equal(files.tryAcquire(20), null);
  assert.equal(ledger.bytes, 90);
  assert.deepEqual(told, []);
  first();
  (await second)();
  message();
  assert.equal(ledger.bytes, 0);
});

test("the memory budget admits one request of each kind even if it is full", async () => {
  const ledger = new MemoryBudget(100);
  ledger.charge(500);
  const [files, bodies] = [new ByteSemaphore(50, ledger), new ByteSemaphore(50, ledger)];
  const file = await files.acquire(80, never);
  const body = bodies.tryAcquire(10);
  assert.ok(body);
  assert.equal(bodies.tryAcquire(1), null);
  file();
  body();
  assert.equal(ledger.bytes, 500);
});

test("the memory budget evicts retained output for requests in flight, but not all of it", async () => {
  const ledger = new MemoryBudget(1000);
  const budget = new RetentionBudget(800, ledger);
  const logs = Array.from({ length: 8 }, () => new EventLog({ budget, limits: { retainedBytes: 100 } }));
  for (const log of logs) for (let at = 0; at < 10; at++) log.append("stdout", new Uint8Array(10));
  assert.equal(ledger.bytes, 800);
  const answers = new ByteSemaphore(1000, ledger);
  await answers.acquire(1, never);
  await answers.acquire(600, never);
  assert.ok(budget.bytes <= 400, `${budget.bytes} are retained`);
  assert.ok(budget.bytes >= 200, `${budget.bytes} are retained`);
});

test("the memory budget pauses processes while it is full, and resumes them when memory is free", () => {
  const MIB = 1024 * 1024;
  const ledger = new MemoryBudget(8 * MIB);
  const budget = new RetentionBudget(4 * MIB, ledger);
  const held = Array.from({ length: 16 }, () => {
    const log = new EventLog({ budget });
    const state = { log, cursor: log.cursor({ lossless: true }), paused: false };
    log.onBackpressure = (paused) => {
      state.paused = paused;
    };
    return state;
  });
  // The other kinds keep so much that even this budget does not fit in addition.
  ledger.charge(6 * MIB);
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

test("the memory budget counts exactly the bytes of all kinds, and ends all waits", async () => {
  const step = fc.record({
    kind: fc.nat({ max: 1 }),
    bytes: fc.integer({ min: 1, max: 120 }),
    act: fc.constantFrom("take", "take", "try", "release", "append"),
  });
  await fc.assert(
    fc.asyncProperty(fc.array(step, { maxLength: 40 }), async (steps) => {
      const ledger = new MemoryBudget(200);
      const turns = [new ByteSemaphore(150, ledger), new ByteSemaphore(150, ledger)];
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
          const release = one.tryAcquire(bytes);
          if (release) releases.push(release);
        }
        if (act === "take") {
          const wait = one.acquire(bytes, never);
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

test("the memory budget reclaims by the value of the memory, not by the order of registration", () => {
  const budget = new MemoryBudget(100);
  const order: string[] = [];
  for (const kind of ["detachedSessions", "liveProcesses", "caches", "closedProcesses"] as const)
    budget.addReclaimer(kind, () => order.push(kind));
  budget.charge(101);
  assert.deepEqual(order, ["closedProcesses", "caches", "liveProcesses", "detachedSessions"]);
  assert.equal(budget.isFull, true);
});

test("a lowered limit reclaims at once, and a raised limit admits waiting requests", () => {
  const budget = new MemoryBudget(100);
  budget.addReclaimer("caches", (bytes) => budget.release(bytes));
  budget.charge(80);
  budget.setLimit(40);
  assert.deepEqual([budget.bytes, budget.isFull, budget.isLowered], [35, false, true]);
  let admitted = 0;
  budget.waitForBytes(20, () => admitted++);
  assert.equal(admitted, 0);
  budget.setLimit(60);
  assert.deepEqual([admitted, budget.isLowered], [1, true]);
  budget.setLimit(500);
  assert.deepEqual([budget.limitBytes, budget.isLowered], [100, false]);
});

test("closed logs are evicted before snapshots, and snapshots before live logs", () => {
  const budget = new MemoryBudget(1000);
  const order = new Set<string>();
  const log = (name: string, isClosed: boolean, owner: RetentionBudget) => {
    const evictable = {
      retainedBytes: 100,
      isClosed,
      evictTo: (bytes: number) => {
        if (evictable.retainedBytes <= bytes) return;
        order.add(name);
        owner.shrink(evictable.retainedBytes - bytes);
        evictable.retainedBytes = bytes;
      },
    };
    owner.join(evictable);
    owner.grow(100);
  };
  const logs = new RetentionBudget(500, budget);
  const snapshots = new RetentionBudget(500, budget, "caches");
  log("live log", false, logs);
  log("snapshot", false, snapshots);
  log("closed log", true, logs);
  budget.setLimit(50);
  assert.deepEqual([...order], ["closed log", "snapshot", "live log"]);
});

test("afterGrowth calls each listener once, when its bytes have been charged or noted since", () => {
  const budget = new MemoryBudget(1000);
  const calls: string[] = [];
  const repeat = () => {
    calls.push(`repeat at ${budget.bytes}`);
    budget.afterGrowth(50, repeat);
  };
  const replaced = () => calls.push(`replaced at ${budget.bytes}`);
  budget.afterGrowth(50, repeat);
  budget.afterGrowth(20, replaced);
  budget.afterGrowth(120, replaced);
  budget.charge(40);
  budget.release(40);
  assert.deepEqual(calls, []);
  budget.noteGrowth(10);
  assert.deepEqual(calls, ["repeat at 0"]);
  budget.charge(100);
  assert.deepEqual(calls, ["repeat at 0", "replaced at 100", "repeat at 100"]);
  budget.charge(49);
  assert.equal(calls.length, 3);
  budget.charge(1);
  assert.deepEqual(calls.slice(3), ["repeat at 150"]);
});

test("the memory budget calls the listener of a release once, and a second listener replaces the first", () => {
  const budget = new MemoryBudget(100);
  const calls: string[] = [];
  budget.charge(100);
  budget.afterRelease(10, () => calls.push("replaced"));
  budget.afterRelease(20, () => {
    calls.push("first");
    budget.afterRelease(30, () => calls.push("second"));
  });
  budget.release(19);
  assert.deepEqual(calls, []);
  budget.release(1);
  budget.release(29);
  assert.deepEqual(calls, ["first"]);
  budget.release(1);
  budget.release(50);
  assert.deepEqual(calls, ["first", "second"]);
});
