import assert from "node:assert/strict";
import { test } from "node:test";
import { ManualClock } from "../../../src/async/clock.ts";
import { EventLog } from "../../../src/exec/log/event-log.ts";
import type { Peer } from "../../../src/server/rpc/peer.ts";
import { ViewerPump } from "../../../src/server/session/viewer-pump.ts";
import { type Viewer, ViewerTurns } from "../../../src/server/session/viewer-scheduler.ts";

class CountedTurns extends ViewerTurns {
  asked = 0;

  override wants(viewer: Viewer): void {
    this.asked++;
    super.wants(viewer);
  }
}

/** Takes all it is given. */
const PEER: Peer = {
  notify: () => undefined,
  crowded: false,
  congested: false,
  mark: () => 0,
  hasLeft: () => true,
  onDrain: () => () => undefined,
  close: () => undefined,
};

test("a viewer that waits for its turn costs its process nothing for each event, and is told all of them", async () => {
  const clock = new ManualClock();
  const turns = new CountedTurns(clock);
  const log = new EventLog();
  const told: number[][] = [];
  for (let viewer = 0; viewer < 100; viewer++) {
    const seqs: number[] = [];
    told.push(seqs);
    const tell = (event: { type: string; seq?: number }) => void seqs.push(event.seq ?? 0);
    new ViewerPump(log, PEER, tell, { afterSeq: 0, turns, onEnd: () => undefined });
  }
  for (let n = 0; n < 50; n++) log.append("stdout", Buffer.from("x"));
  assert.equal(turns.asked, 100);
  await clock.advance(60_000);
  // Once more for each of them, now that all have been told everything.
  for (let n = 0; n < 50; n++) log.append("stdout", Buffer.from("y"));
  assert.equal(turns.asked, 200);
  await clock.advance(60_000);
  const all = Array.from({ length: 100 }, (_, at) => at + 1);
  for (const seqs of told) assert.deepEqual(seqs, all);
});
