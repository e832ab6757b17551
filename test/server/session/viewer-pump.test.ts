import assert from "node:assert/strict";
import { test } from "node:test";
import { ManualClock } from "../../../src/async/clock.ts";
import { EventLog } from "../../../src/exec/log/event-log.ts";
import type { Peer } from "../../../src/server/rpc/peer.ts";
import { ViewerPump } from "../../../src/server/session/viewer-pump.ts";
import { type ScheduledViewer, ViewerScheduler } from "../../../src/server/session/viewer-scheduler.ts";

class CountedTurns extends ViewerScheduler {
  asked = 0;

  override enqueue(viewer: ScheduledViewer): void {
    this.asked++;
    super.enqueue(viewer);
  }
}

/** Takes all it is given. */
const PEER: Peer = {
  notify: () => undefined,
  isAboveBulkLimit: false,
  isAboveQueueLimit: false,
  sentPosition: () => 0,
  isFlushedThrough: () => true,
  onDrain: () => () => undefined,
  close: () => undefined,
};

test("ViewerPump: a waiting viewer adds no cost per event, and receives all events later", async () => {
  const clock = new ManualClock();
  const scheduler = new CountedTurns(clock);
  const log = new EventLog();
  const told: number[][] = [];
  for (let viewer = 0; viewer < 100; viewer++) {
    const seqs: number[] = [];
    told.push(seqs);
    const tell = (event: { type: string; seq?: number }) => void seqs.push(event.seq ?? 0);
    new ViewerPump(log, PEER, tell, { afterSeq: 0, scheduler, onEnd: () => undefined });
  }
  for (let n = 0; n < 50; n++) log.append("stdout", Buffer.from("x"));
  assert.equal(scheduler.asked, 100);
  await clock.advance(60_000);
  // Again for each viewer, after all have received everything.
  for (let n = 0; n < 50; n++) log.append("stdout", Buffer.from("y"));
  assert.equal(scheduler.asked, 200);
  await clock.advance(60_000);
  const all = Array.from({ length: 100 }, (_, at) => at + 1);
  for (const seqs of told) assert.deepEqual(seqs, all);
});
