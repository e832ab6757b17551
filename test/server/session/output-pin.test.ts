import assert from "node:assert/strict";
import { describe, test } from "node:test";
import { EventLog } from "../../../src/exec/log/event-log.ts";
import { RESUME_READ_TIMEOUT_MS } from "../../../src/server/server-config.ts";
import { OutputPin } from "../../../src/server/session/output-pin.ts";
import { ManualClock } from "../../support/manual-clock.ts";

/** A log that retains two of the chunks that `print` appends, and a pin on it. */
function setup(onDetach: "pause" | "evict" = "pause") {
  const clock = new ManualClock();
  const log = new EventLog({ clock, limits: { retainedBytes: 10, retainedChunks: 100 } });
  let timeouts = 0;
  const pin = new OutputPin(log, { clock, onDetach, extraBytes: 1000, onReadTimeout: () => timeouts++ });
  const print = (count: number) => {
    for (let chunk = 0; chunk < count; chunk++) log.append("stdout", Buffer.from("12345"));
  };
  /** Last evicted sequence number; 0 if none is evicted. */
  const evictedSeq = () => log.read({}).gap?.toSeq ?? 0;
  return { clock, log, pin, print, evictedSeq, timeouts: () => timeouts };
}

describe("OutputPin", () => {
  test("pins nothing at first", () => {
    const { pin, print, evictedSeq } = setup();
    print(4);
    assert.equal(evictedSeq(), 2);
    assert.deepEqual([pin.isAcknowledged, pin.isWaitingForRead], [true, false]);
  });

  test("pins output until it is acknowledged, also while the client is disconnected", () => {
    const { pin, print, evictedSeq } = setup("evict");
    pin.pinUnacknowledged(0);
    print(4);
    assert.deepEqual([evictedSeq(), pin.isAcknowledged], [0, false]);
    pin.detach();
    pin.resume({ hasAcks: true });
    assert.deepEqual([evictedSeq(), pin.isAcknowledged, pin.isWaitingForRead], [0, false, false]);
    pin.acknowledge(3);
    assert.equal(pin.isAcknowledged, false);
    pin.acknowledge(4);
    assert.equal(pin.isAcknowledged, true);
    print(1);
    assert.deepEqual([evictedSeq(), pin.isAcknowledged], [3, false]);
  });

  test("pins the retained and all later output of a detached client with `pause`, none with `evict`", () => {
    for (const [onDetach, expected] of [
      ["pause", 1],
      ["evict", 4],
    ] as const) {
      const { pin, print, evictedSeq } = setup(onDetach);
      print(3);
      pin.detach();
      print(3);
      assert.equal(evictedSeq(), expected, onDetach);
      pin.acknowledge(6);
      assert.equal(evictedSeq(), expected, "acknowledgements do not count");
    }
  });

  test("pins the missed output until a resumed client has read it", async () => {
    const { pin, print, evictedSeq, clock, timeouts } = setup();
    pin.detach();
    print(5);
    pin.resume({ hasAcks: false });
    assert.equal(pin.isWaitingForRead, true);
    await clock.advance(RESUME_READ_TIMEOUT_MS - 1);
    assert.equal(pin.onRead(0, 2), false);
    // Each read starts the timeout again, and frees the output before it.
    await clock.advance(RESUME_READ_TIMEOUT_MS - 1);
    assert.equal(pin.onRead(2, 4), false);
    print(1);
    assert.deepEqual([evictedSeq(), pin.isWaitingForRead], [2, true]);
    assert.equal(pin.onRead(4, 5), true);
    assert.deepEqual([pin.isWaitingForRead, pin.onRead(5, 6)], [false, false]);
    await clock.advance(RESUME_READ_TIMEOUT_MS);
    assert.equal(timeouts(), 0);
    print(1);
    assert.equal(evictedSeq(), 5);
  });

  test("releases the missed output if a resumed client does not read it in time", async () => {
    const { pin, print, evictedSeq, clock, timeouts } = setup();
    pin.detach();
    print(4);
    pin.resume({ hasAcks: false });
    await clock.advance(RESUME_READ_TIMEOUT_MS - 1);
    assert.deepEqual([timeouts(), evictedSeq()], [0, 0]);
    await clock.advance(1);
    assert.deepEqual([timeouts(), pin.isWaitingForRead], [1, false]);
    print(1);
    assert.equal(evictedSeq(), 3);
  });

  test("waits for no read if a resumed client missed nothing", () => {
    const { pin, print, evictedSeq } = setup();
    pin.detach();
    pin.resume({ hasAcks: false });
    assert.equal(pin.isWaitingForRead, false);
    print(3);
    assert.equal(evictedSeq(), 1);
  });

  test("starts with the retained output if a client enables acknowledgements on resume", () => {
    const { pin, print, evictedSeq } = setup();
    print(3);
    pin.detach();
    pin.resume({ hasAcks: true });
    print(3);
    assert.deepEqual([evictedSeq(), pin.isAcknowledged], [1, false]);
    pin.acknowledge(6);
    print(1);
    assert.deepEqual([evictedSeq(), pin.isAcknowledged], [5, false]);
  });
});
