import assert from "node:assert/strict";
import { describe, test } from "node:test";
import { EventLog } from "../../../src/exec/log/event-log.ts";
import { VIEWER_SLICE_BYTES } from "../../../src/server/server-config.ts";
import { ViewerPump } from "../../../src/server/session/viewer-pump.ts";
import { type ScheduledViewer, ViewerScheduler } from "../../../src/server/session/viewer-scheduler.ts";
import { ManualClock } from "../../support/manual-clock.ts";
import { FakePeer } from "../../support/servers/fake-peer.ts";

class CountingScheduler extends ViewerScheduler {
  requests = 0;

  override enqueue(viewer: ScheduledViewer): void {
    this.requests++;
    super.enqueue(viewer);
  }
}

describe("ViewerPump", () => {
  test("enters the queue of its scheduler once while it waits, and sends all events later", async () => {
    const clock = new ManualClock();
    const scheduler = new CountingScheduler(clock);
    const log = new EventLog();
    const received: number[][] = [];
    for (let viewer = 0; viewer < 100; viewer++) {
      const seqs: number[] = [];
      received.push(seqs);
      const notify = (event: { type: string; seq?: number }) => void seqs.push(event.seq ?? 0);
      new ViewerPump(log, new FakePeer(), notify, { afterSeq: 0, scheduler, onEnd: () => undefined });
    }
    for (let n = 0; n < 50; n++) log.append("stdout", Buffer.from("x"));
    assert.equal(scheduler.requests, 100);
    await clock.advance(60_000);
    // Again for each viewer, after all have received everything.
    for (let n = 0; n < 50; n++) log.append("stdout", Buffer.from("y"));
    assert.equal(scheduler.requests, 200);
    await clock.advance(60_000);
    const all = Array.from({ length: 100 }, (_, at) => at + 1);
    for (const seqs of received) assert.deepEqual(seqs, all);
  });

  function setup() {
    const clock = new ManualClock();
    const scheduler = new CountingScheduler(clock);
    const log = new EventLog({ limits: { retainedBytes: 4 * VIEWER_SLICE_BYTES } });
    const cursor = log.cursor();
    log.cursor = () => cursor;
    const peer = new FakePeer();
    const sent: string[] = [];
    let ends = 0;
    const pump = new ViewerPump(log, peer, ({ type }) => void sent.push(type), {
      afterSeq: 0,
      scheduler,
      onEnd: () => ends++,
    });
    return { clock, scheduler, log, cursor, peer, sent, pump, ends: () => ends };
  }

  test("sends one slice at a time, and reports its messages and bytes", () => {
    const { log, pump } = setup();
    for (let n = 0; n < 3; n++) log.append("stdout", new Uint8Array(VIEWER_SLICE_BYTES / 2));
    assert.deepEqual(pump.sendSlice(), { messages: 2, bytes: VIEWER_SLICE_BYTES, isMore: true });
    assert.equal(pump.seq, 2);
    assert.deepEqual(pump.sendSlice(), { messages: 1, bytes: VIEWER_SLICE_BYTES / 2, isMore: false });
  });

  test("waits for the drain of a peer above its bulk limit", async () => {
    const { clock, log, peer, sent, pump } = setup();
    log.append("stdout", Buffer.from("x"));
    peer.isAboveBulkLimit = true;
    assert.deepEqual(pump.sendSlice(), { messages: 0, bytes: 0, isMore: false });
    await clock.advance(1000);
    assert.deepEqual(sent, []);
    peer.drain();
    await clock.advance(1000);
    assert.deepEqual(sent, ["output"]);
  });

  test("ends once after the last event", async () => {
    const { clock, log, peer, sent, pump, ends } = setup();
    log.append("stdout", Buffer.from("x"));
    log.exited({ exitCode: 0, signal: null, reason: "exited", sandboxDenied: false });
    await clock.advance(1000);
    assert.deepEqual([pump.stopped, ends()], [false, 0]);
    log.closed();
    await clock.advance(1000);
    assert.deepEqual(sent, ["output", "exited", "closed"]);
    assert.deepEqual([pump.stopped, ends(), peer.listeners.size], [true, 1, 0]);
    pump.stop();
    peer.drain();
    await clock.advance(1000);
    assert.equal(ends(), 1);
  });

  test("sends nothing after a stop, and needs no timer then", async () => {
    const { clock, scheduler, log, cursor, peer, sent, pump, ends } = setup();
    await clock.advance(1000);
    pump.stop();
    assert.deepEqual([peer.listeners.size, cursor.ended], [0, true]);
    const { requests } = scheduler;
    log.append("stdout", Buffer.from("x"));
    log.closed();
    assert.equal(scheduler.requests, requests);
    await clock.advance(1000);
    assert.deepEqual([sent, ends(), clock.pendingTimers], [[], 0, 0]);
    const waiting = setup();
    waiting.pump.stop();
    assert.equal(waiting.clock.pendingTimers, 0);
  });
});
