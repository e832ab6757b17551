import assert from "node:assert/strict";
import { test } from "node:test";
import { RowDeadline } from "../../../src/fanout/row/row-deadline.ts";
import { ManualClock } from "../../support/manual-clock.ts";

function deadlineOf(ms: number) {
  const clock = new ManualClock();
  const expiries: number[] = [];
  const deadline = new RowDeadline(ms, clock, () => expiries.push(clock.monotonic()));
  return { clock, deadline, expiries };
}

test("a row deadline expires after exactly the row timeout, not counting pauses", async () => {
  const { clock, deadline, expiries } = deadlineOf(100);
  await clock.advance(30);
  deadline.pause();
  await clock.advance(1000);
  deadline.resume();
  await clock.advance(50);
  deadline.pause();
  await clock.advance(1000);
  deadline.resume();
  await clock.advance(19);
  assert.deepEqual([deadline.expired, expiries.length], [false, 0]);
  await clock.advance(1);
  assert.deepEqual([deadline.expired, expiries.length], [true, 1]);
});

test("a row deadline continues when its last pause ends", async () => {
  const { clock, deadline } = deadlineOf(100);
  await clock.advance(40);
  deadline.pause();
  deadline.pause();
  await clock.advance(1000);
  deadline.resume();
  await clock.advance(1000);
  assert.equal(clock.pendingTimers, 0);
  deadline.resume();
  await clock.advance(59);
  assert.equal(deadline.expired, false);
  await clock.advance(1);
  assert.equal(deadline.expired, true);
});

test("a row deadline starts no timer after it has expired or was canceled", async () => {
  const { clock, deadline, expiries } = deadlineOf(100);
  await clock.advance(100);
  deadline.pause();
  deadline.resume();
  assert.deepEqual([expiries.length, clock.pendingTimers], [1, 0]);
  const canceled = deadlineOf(100);
  canceled.deadline.pause();
  canceled.deadline.cancel();
  canceled.deadline.resume();
  await canceled.clock.advance(1000);
  assert.deepEqual([canceled.deadline.expired, canceled.expiries.length], [false, 0]);
});
