import assert from "node:assert/strict";
import { describe, test } from "node:test";
import {
  VIEWER_BURST,
  VIEWER_COST_PER_MS,
  VIEWER_INTERVAL_MS,
  VIEWER_MESSAGE_COST,
} from "../../../src/server/server-config.ts";
import { type ScheduledViewer, ViewerScheduler } from "../../../src/server/session/viewer-scheduler.ts";
import { ManualClock } from "../../support/manual-clock.ts";

function setup() {
  const clock = new ManualClock();
  const scheduler = new ViewerScheduler(clock);
  const served: string[] = [];
  /** A viewer whose slices have these bytes and no message, until they are used up. */
  const viewer = (name: string, slices: number[], messages = 0): ScheduledViewer => ({
    sendSlice: () => {
      served.push(name);
      const bytes = slices.shift() ?? 0;
      return { messages, bytes, isMore: slices.length > 0 };
    },
  });
  return { clock, scheduler, served, viewer };
}

describe("ViewerScheduler", () => {
  test("serves viewers in rotation, and not in the tick in which they are enqueued", async () => {
    const { clock, scheduler, served, viewer } = setup();
    scheduler.enqueue(viewer("a", [1, 1]));
    scheduler.enqueue(viewer("b", [1]));
    assert.deepEqual(served, []);
    await clock.advance(0);
    assert.deepEqual(served, ["a", "b", "a"]);
    assert.equal(clock.pendingTimers, 0);
  });

  test("stops at the burst limit and continues at the rate limit", async () => {
    const { clock, scheduler, served, viewer } = setup();
    const sliceBytes = VIEWER_COST_PER_MS * VIEWER_INTERVAL_MS;
    scheduler.enqueue(viewer("a", [VIEWER_BURST, sliceBytes, sliceBytes, sliceBytes]));
    await clock.advance(0);
    assert.equal(served.length, 1);
    await clock.advance(VIEWER_INTERVAL_MS);
    assert.equal(served.length, 2);
    await clock.advance(VIEWER_INTERVAL_MS);
    assert.equal(served.length, 3);
  });

  test("charges each message in addition to its bytes", async () => {
    const { clock, scheduler, served, viewer } = setup();
    const messages = VIEWER_BURST / VIEWER_MESSAGE_COST;
    scheduler.enqueue(viewer("a", [0, 0], messages - 1));
    await clock.advance(0);
    assert.equal(served.length, 2, "credit for one message was left");
    const other = setup();
    other.scheduler.enqueue(other.viewer("a", [VIEWER_MESSAGE_COST, 0], messages - 1));
    await other.clock.advance(0);
    assert.equal(other.served.length, 1);
  });

  test("saves at most the burst limit while no viewer waits", async () => {
    const { clock, scheduler, served, viewer } = setup();
    await clock.advance(60_000);
    scheduler.enqueue(viewer("a", [VIEWER_BURST, 1]));
    await clock.advance(0);
    assert.equal(served.length, 1);
  });

  test("serves no removed viewer, and needs no timer without viewers", async () => {
    const { clock, scheduler, served, viewer } = setup();
    const [a, b] = [viewer("a", [1]), viewer("b", [1])];
    scheduler.enqueue(a);
    scheduler.enqueue(b);
    scheduler.remove(a);
    assert.equal(clock.pendingTimers, 1);
    await clock.advance(0);
    assert.deepEqual(served, ["b"]);
    scheduler.enqueue(a);
    scheduler.remove(a);
    assert.equal(clock.pendingTimers, 0);
    scheduler.enqueue(a);
    await clock.advance(0);
    assert.deepEqual(served, ["b", "a"]);
  });
});
