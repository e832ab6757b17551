import assert from "node:assert/strict";
import { describe, test } from "node:test";
import type { ConnectionEvent } from "../../src/connection/connection.ts";
import { memoryConnectionPair } from "../support/servers/memory-connection.ts";
import { flushEventLoop } from "../support/system/flush-event-loop.ts";

describe("a pair of in-memory connections", () => {
  test("carries text both ways in order, and reports the disconnect on both sides", async () => {
    const [a, b] = memoryConnectionPair();
    const seen: Record<"a" | "b", ConnectionEvent[]> = { a: [], b: [] };
    a.open((event) => seen.a.push(event));
    b.open((event) => seen.b.push(event));
    a.send('{"method":"1"}');
    a.sendChunk('{"method":"', Uint8Array.of(1, 2, 3), '"}');
    b.send("broken");
    a.close("enough");
    a.close();
    await flushEventLoop();
    assert.deepEqual(seen.b, [
      { type: "message", message: { type: "notification", method: "1", params: undefined } },
      { type: "message", message: { type: "notification", method: "AQID", params: undefined } },
      { type: "disconnected", reason: "enough" },
    ]);
    assert.equal(seen.a.at(-1)?.type, "disconnected");
    b.send("late");
    await flushEventLoop();
    assert.equal(seen.a.filter(({ type }) => type === "disconnected").length, 1);
  });

  test("delivers no message before `send` returns", async () => {
    const [a, b] = memoryConnectionPair();
    const events: ConnectionEvent[] = [];
    b.open((event) => events.push(event));
    a.send('{"method":"x"}');
    assert.deepEqual(events, []);
    await flushEventLoop();
    assert.equal(events.length, 1);
  });

  test("queues for a paused side, counts the queue, and reports the drain", async () => {
    const [a, b] = memoryConnectionPair();
    const events: ConnectionEvent[] = [];
    let drained = 0;
    a.open(() => undefined);
    a.onDrain = () => {
      drained++;
    };
    b.open((event) => events.push(event));
    b.pause();
    a.send('{"method":"x"}');
    await flushEventLoop();
    assert.equal(a.queuedBytes, 14);
    assert.equal(events.length, 0);
    assert.equal(drained, 0);
    b.resume();
    await flushEventLoop();
    assert.equal(a.queuedBytes, 0);
    assert.equal(events.length, 1);
    assert.equal(drained, 1);
  });

  test("reports the disconnect immediately to a paused side that closes", async () => {
    const [a, b] = memoryConnectionPair();
    const events: ConnectionEvent[] = [];
    a.open(() => undefined);
    b.open((event) => events.push(event));
    b.pause();
    a.send('{"method":"x"}');
    b.close();
    await flushEventLoop();
    assert.deepEqual(events, [{ type: "disconnected", reason: null }]);
  });
});
