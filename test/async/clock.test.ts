import assert from "node:assert/strict";
import { describe, test } from "node:test";
import { sleep, systemClock } from "../../src/async/clock.ts";
import { ManualClock } from "../support/manual-clock.ts";

describe("the manual clock", () => {
  test("fires timers in order of time, then in order of creation", async () => {
    const clock = new ManualClock(0);
    const fired: string[] = [];
    clock.after(20, () => fired.push("late"));
    clock.after(10, () => fired.push("first"));
    clock.after(10, () => fired.push("second"));
    await clock.advance(20);
    assert.deepEqual(fired, ["first", "second", "late"]);
    assert.equal(clock.now(), 20);
  });

  test("fires timers that another timer sets, at their own time", async () => {
    const clock = new ManualClock(0);
    const at: number[] = [];
    clock.after(10, () => {
      at.push(clock.now());
      clock.after(5, () => at.push(clock.now()));
    });
    await clock.advance(14);
    assert.deepEqual(at, [10]);
    await clock.advance(1);
    assert.deepEqual(at, [10, 15]);
  });

  test("does not fire a cancelled timer", async () => {
    const clock = new ManualClock(0);
    const timer = clock.after(1, () => assert.fail("fired"));
    timer.cancel();
    await clock.advance(10);
    assert.equal(clock.pendingTimers, 0);
  });
});

describe("the system clock", () => {
  test("does not fire immediately for a delay beyond the limit of Node's timers", async () => {
    let fired = false;
    const timer = systemClock.after(2 ** 40, () => {
      fired = true;
    });
    await new Promise((resolve) => setTimeout(resolve, 5));
    timer.cancel();
    assert.equal(fired, false);
  });
});

describe("sleep", () => {
  test("resolves after its duration", async () => {
    const clock = new ManualClock(0);
    let over = false;
    void sleep(clock, 10).then(() => {
      over = true;
    });
    await clock.advance(9);
    assert.equal(over, false);
    await clock.advance(1);
    assert.equal(over, true);
  });

  test("rejects with the reason of its signal, and leaves no timer", async () => {
    const clock = new ManualClock(0);
    const stop = new AbortController();
    const sleeping = sleep(clock, 10, stop.signal);
    stop.abort(new Error("enough"));
    await assert.rejects(sleeping, /enough/);
    assert.equal(clock.pendingTimers, 0);
    await assert.rejects(sleep(clock, 10, stop.signal), /enough/);
  });
});
