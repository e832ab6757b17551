import assert from "node:assert/strict";
import { getEventListeners } from "node:events";
import { describe, test } from "node:test";
import { DEFAULT_EVENT_LOG_LIMITS, EventLog } from "../../../src/exec/log/event-log.ts";
import { RetentionBudget } from "../../../src/exec/log/retention-budget.ts";
import { ExecServerError } from "../../../src/protocol/exec-server-error.ts";
import { ManualClock } from "../../support/manual-clock.ts";
import { runPromiseReactions } from "../../support/system/promise-reactions.ts";

const EXIT = { exitCode: 0, signal: null, reason: "exited", sandboxDenied: false } as const;
const KIB = 1024;
const append = (log: EventLog, bytes: number) => log.append("stdout", new Uint8Array(bytes));

/** Reports whether a promise is settled once the pending promise reactions have run. */
async function isSettled(promise: Promise<unknown>): Promise<boolean> {
  let settled = false;
  promise.then(
    () => (settled = true),
    () => (settled = true),
  );
  await runPromiseReactions(10);
  return settled;
}

describe("EventLog", () => {
  test("has the limits of the reference server by default", () => {
    assert.deepEqual(DEFAULT_EVENT_LOG_LIMITS, {
      ...{ retainedBytes: 1_048_576, retainedChunks: 50_000, headBytes: 524_288, tailBytes: 524_288 },
    });
  });

  test("wakes readers with each kind of event, and only with an event", async () => {
    const events: [string, (log: EventLog) => void][] = [
      ["output", (log) => append(log, 1)],
      ["gap", (log) => log.addGap(3, 1)],
      ["exited", (log) => log.exited(EXIT)],
      ["closed", (log) => log.closed()],
      ["failed", (log) => log.fail(new ExecServerError("lost", "FAILED"))],
    ];
    for (const [name, happen] of events) {
      const clock = new ManualClock();
      const log = new EventLog({ clock });
      const changed = log.nextChange();
      const woken = log.subscribeWake();
      const value = woken.changed();
      assert.equal(await isSettled(Promise.race([changed, value])), false, name);
      await clock.advance(5);
      happen(log);
      assert.equal(await isSettled(changed), true, name);
      assert.equal(await value, log.nextSeq, name);
      assert.equal(log.lastEventAtMs, clock.monotonic(), name);
    }
  });

  test("returns at once from a read without `waitMs`, and from one after the failure", async () => {
    const log = new EventLog({ clock: new ManualClock() });
    assert.equal(await isSettled(log.readWaiting({})), true);
    assert.equal(await isSettled(log.readWaiting({ waitMs: 1 })), false);
    log.fail(new ExecServerError("lost", "FAILED"));
    assert.equal(await isSettled(log.readWaiting({ waitMs: 1 })), true);
  });

  test("leaves neither a timer nor a listener behind after a wait", async (t) => {
    const timers: (boolean | undefined)[] = [];
    class RecordingClock extends ManualClock {
      override after(ms: number, fn: () => void, options?: { keepAlive?: boolean }) {
        timers.push(options?.keepAlive);
        return super.after(ms, fn);
      }
    }
    const clock = new RecordingClock();
    const log = new EventLog({ clock });
    const { signal } = new AbortController();
    const removals = t.mock.method(signal, "removeEventListener").mock;
    const changed = log.nextChange({ timeoutMs: 5, signal });
    assert.deepEqual([getEventListeners(signal, "abort").length, clock.pendingTimers], [1, 1]);
    append(log, 1);
    await changed;
    append(log, 1);
    assert.deepEqual([getEventListeners(signal, "abort").length, clock.pendingTimers], [0, 0]);
    assert.equal(removals.callCount(), 1, "the second event no longer ends the wait");
    // The wait of a reader does not keep its program running.
    assert.deepEqual(timers, [false]);
  });

  test("pins nothing for a subscriber that is not lossless, and stops calling a removed listener", async () => {
    const log = new EventLog({ limits: { retainedBytes: 1 } });
    let calls = 0;
    const stop = log.listen(() => calls++);
    const events = log.events();
    append(log, 1);
    assert.equal((await events.next()).value?.type, "output");
    append(log, 1);
    append(log, 1);
    assert.deepEqual([log.isPaused, log.retainedBytes, calls], [false, 1, 3]);
    stop();
    append(log, 1);
    assert.equal(calls, 3);
    await events.return();
  });

  test("counts gaps as chunks", () => {
    const log = new EventLog({ isReplica: true, limits: { retainedChunks: 2 } });
    log.addGap(1, 5);
    append(log, 1);
    log.addGap(3, 7);
    assert.deepEqual(log.read().gap, { fromSeq: 1, toSeq: 1, bytes: 5 });
    assert.deepEqual(log.read({ afterSeq: 2 }).gap, { fromSeq: 3, toSeq: 3, bytes: 7 });
    log.addGap(5, 9);
    assert.equal(log.retainedBytes, 0);
    assert.deepEqual(log.read({ afterSeq: 4 }).gap, { fromSeq: 5, toSeq: 5, bytes: 9 });
  });

  test("returns the terminal modes of evicted output", () => {
    const log = new EventLog({ limits: { retainedBytes: 10 } });
    log.append("pty", Buffer.from("\x1b[?25ltext"));
    log.append("stdout", Buffer.from("\x1b[?1h"));
    assert.equal(Buffer.from(log.evictedModes()).toString(), "\x1b[?25l");
    append(log, 10);
    assert.equal(Buffer.from(log.evictedModes()).toString(), "\x1b[?25l");
  });

  test("joins evicted output and gaps to the gap of a read, of unknown size if one of them is", () => {
    const create = (bytes: number | null, unknownFirst: boolean) => {
      const log = new EventLog({ isReplica: true, limits: { retainedBytes: 4 } });
      if (unknownFirst) log.addGap(2, null);
      else log.append("stdout", Buffer.from("ab"));
      append(log, 1);
      log.addGap(log.nextSeq + 1, bytes);
      append(log, 4);
      return log;
    };
    assert.deepEqual(create(30, false).read().gap, { fromSeq: 1, toSeq: 4, bytes: 33 });
    assert.deepEqual(create(null, false).read().gap, { fromSeq: 1, toSeq: 4, bytes: null });
    assert.deepEqual(create(30, true).read().gap, { fromSeq: 1, toSeq: 5, bytes: null });
    assert.deepEqual(create(30, true).read({ afterSeq: 2 }).gap, { fromSeq: 3, toSeq: 5, bytes: 31 });
    assert.deepEqual(create(null, false).cursor().next(), { type: "gap", fromSeq: 1, toSeq: 2, bytes: 3 });
  });

  test("leaves both budgets on disposal", () => {
    const [budget, snapshotBudget] = [new RetentionBudget(100 * KIB), new RetentionBudget(100 * KIB)];
    const log = new EventLog({ budget, snapshotBudget });
    append(log, 10);
    assert.deepEqual([budget.bytes, snapshotBudget.bytes], [10, 10]);
    log.dispose();
    assert.deepEqual([budget.bytes, snapshotBudget.bytes], [0, 0]);
    log.evictTo = () => assert.fail("the log has left the budget");
    budget.grow(100 * KIB + 1);
  });
});

describe("backpressure", () => {
  test("pauses a process at the bytes that are free in the budget, and resumes it at half of them", () => {
    // Each log may pin 64 KiB.
    const log = new EventLog({ budget: new RetentionBudget(1) });
    const cursor = log.cursor({ lossless: true });
    for (let count = 0; count < 3; count++) append(log, 16 * KIB);
    append(log, 16 * KIB - 1);
    assert.equal(log.isPaused, false);
    append(log, 1);
    assert.equal(log.isPaused, true);
    cursor.next();
    assert.equal(log.isPaused, true);
    cursor.next();
    assert.equal(log.isPaused, false);
  });

  test("adds `extraBytes` to the bytes at which a process resumes, and ignores bytes if they are unlimited", () => {
    const log = new EventLog({ isReplica: true, limits: { retainedBytes: 10 } });
    const cursor = log.cursor({ lossless: true, extraBytes: 10 });
    for (const bytes of [4, 1, 15]) append(log, bytes);
    assert.equal(log.isPaused, true);
    cursor.next();
    assert.equal(log.isPaused, true);
    cursor.next();
    assert.equal(log.isPaused, false);
    cursor.close();
    log.cursor({ lossless: true, extraBytes: "unlimited" });
    append(log, 1000);
    assert.equal(log.isPaused, false);
  });
});
