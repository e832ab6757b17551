import assert from "node:assert/strict";
import { describe, test } from "node:test";
import { Acknowledger } from "../../../src/client/process/acknowledger.ts";
import { KeepAliveClock } from "../../support/keep-alive-clock.ts";

function rig() {
  const clock = new KeepAliveClock();
  const sent: number[] = [];
  const log = { seq: 0 };
  const acknowledger = new Acknowledger(
    (seq) => sent.push(seq),
    () => log.seq,
    clock,
  );
  const append = (bytes: number) => {
    log.seq++;
    acknowledger.onAppended(bytes);
  };
  return { clock, sent, append, acknowledger };
}

describe("Acknowledger", () => {
  test("acknowledges small output once after 25 ms", async () => {
    const { clock, sent, append } = rig();
    append(1);
    append(16 * 1024 - 2);
    await clock.advance(24);
    assert.deepEqual(sent, []);
    await clock.advance(1);
    assert.deepEqual(sent, [2]);
    await clock.advance(1000);
    assert.deepEqual(sent, [2]);
  });

  test("acknowledges 16 KiB at the end of the tick", async () => {
    const { clock, sent, append } = rig();
    append(1);
    append(16 * 1024 - 1);
    assert.deepEqual(sent, []);
    await clock.advance(0);
    assert.deepEqual(sent, [2]);
    assert.equal(clock.pendingTimers, 0);
  });

  test("acknowledges 256 KiB immediately, and then counts from zero", async () => {
    const { clock, sent, append } = rig();
    append(16 * 1024);
    append(240 * 1024);
    assert.deepEqual(sent, [2]);
    assert.equal(clock.pendingTimers, 0);
    append(1);
    assert.deepEqual(sent, [2]);
    await clock.advance(24);
    assert.deepEqual(sent, [2]);
    append(16 * 1024);
    await clock.advance(0);
    assert.deepEqual(sent, [2, 4]);
  });

  test("sends nothing while suspended, and the ack of all output afterwards", async () => {
    const { clock, sent, append, acknowledger } = rig();
    append(1);
    acknowledger.suspend(true);
    await clock.advance(25);
    append(256 * 1024);
    acknowledger.flush();
    assert.equal(clock.pendingTimers, 0);
    assert.deepEqual(sent, []);
    acknowledger.suspend(false);
    assert.deepEqual(sent, [2]);
  });

  test("sends an ack only once, except again on a new connection", () => {
    const { sent, append, acknowledger } = rig();
    acknowledger.resend();
    assert.deepEqual(sent, []);
    append(1);
    acknowledger.flush();
    acknowledger.flush();
    assert.deepEqual(sent, [1]);
    acknowledger.resend();
    assert.deepEqual(sent, [1, 1]);
  });

  test("does not keep the Node process alive", () => {
    const { clock, append } = rig();
    append(1);
    append(16 * 1024);
    assert.equal(clock.pendingTimers, 2);
    assert.equal(clock.keepAliveTimers, 0);
  });
});
