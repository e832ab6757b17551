import assert from "node:assert/strict";
import { describe, test } from "node:test";
import type { Connection } from "../../../src/connection/connection.ts";
import type { ExecEvent } from "../../../src/exec/exec-process.ts";
import { EventLog } from "../../../src/exec/log/event-log.ts";
import { ConnectionPeer } from "../../../src/server/rpc/peer.ts";
import { ProcessPump, type ProcessPumpOptions } from "../../../src/server/session/process-pump.ts";
import { FakePeer } from "../../support/servers/fake-peer.ts";

const KIB = 1024;

/** A connection whose socket takes bytes only on request of the test. */
function slowConnection() {
  const connection = {
    label: "test",
    queuedBytes: 0,
    onDrain: (): void => undefined,
    open: () => undefined,
    send: () => undefined,
    sendChunked: async () => undefined,
    sendChunk(head: string, bytes: Uint8Array, tail: string) {
      connection.queuedBytes += head.length + Math.ceil(bytes.length / 3) * 4 + tail.length;
    },
    pause: () => undefined,
    resume: () => undefined,
    close: () => undefined,
  } satisfies Connection;
  return connection;
}

/** A process whose output goes to that connection. */
function pumped(connection: Connection, retainedBytes: number): EventLog {
  const log = new EventLog({ limits: { retainedBytes } });
  const peer = new ConnectionPeer(connection);
  const notify = (event: { type: string; seq?: number; chunk?: Uint8Array }) => {
    if (event.type !== "output" || !event.chunk) return;
    const params = { processId: "p", seq: event.seq ?? 0, stream: "stdout" as const, chunk: event.chunk };
    peer.notify({ method: "process/output", params });
  };
  new ProcessPump(log, peer, notify, { afterSeq: 0 });
  return log;
}

test("ProcessPump unpins sent output even if the queue is never empty", () => {
  const connection = slowConnection();
  const log = pumped(connection, 64 * KIB);
  for (let n = 0; n < 100; n++) {
    log.append("stdout", new Uint8Array(16 * KIB));
    connection.queuedBytes = Math.min(connection.queuedBytes, 30 * KIB);
    connection.onDrain();
  }
  assert.ok(log.retainedBytes <= 128 * KIB, `${log.retainedBytes} bytes are retained`);
});

test("ProcessPump pins queued output, even above the retention limit", () => {
  const connection = slowConnection();
  const log = pumped(connection, 4 * KIB);
  for (let n = 0; n < 6; n++) log.append("stdout", new Uint8Array(4 * KIB));
  assert.equal(log.read().gap, undefined);
  connection.queuedBytes = 0;
  connection.onDrain();
  assert.equal(log.retainedBytes, 4 * KIB);
});

/** A pump whose peer takes everything until the test changes its queue. */
function setup(options: Partial<ProcessPumpOptions> = {}, retainedBytes = 4 * KIB) {
  const log = new EventLog({ limits: { retainedBytes } });
  const peer = new FakePeer();
  let ends = 0;
  const notify = (event: { type: string; seq?: number; chunk?: Uint8Array }) => {
    const params = { processId: "p", seq: event.seq ?? 0, stream: "stdout" as const };
    peer.notify({ method: "process/output", params: { ...params, chunk: event.chunk ?? new Uint8Array() } });
  };
  const pump = new ProcessPump(log, peer, notify, { afterSeq: 0, onEnd: () => ends++, ...options });
  const append = (bytes: number, count = 1) => {
    for (let n = 0; n < count; n++) log.append("stdout", new Uint8Array(bytes));
  };
  return { log, peer, pump, append, sent: () => peer.notifications.length, ends: () => ends };
}

describe("ProcessPump", () => {
  test("sends events that precede it, and ends once after the last one", () => {
    const log = new EventLog();
    log.append("stdout", Buffer.from("x"));
    const peer = new FakePeer();
    let events = 0;
    new ProcessPump(log, peer, () => events++, { afterSeq: 0 });
    assert.equal(events, 1);
    const { log: other, pump, ends, peer: otherPeer } = setup();
    other.exited({ exitCode: 0, signal: null, reason: "exited", sandboxDenied: false });
    assert.deepEqual([pump.stopped, ends()], [false, 0]);
    other.closed();
    assert.deepEqual([pump.stopped, pump.seq, ends()], [true, 2, 1]);
    assert.equal(otherPeer.listeners.size, 0);
    pump.stop();
    assert.equal(ends(), 1);
  });

  test("sends nothing after a stop, and pins nothing then", () => {
    const { log, peer, pump, append, sent, ends } = setup();
    peer.flushed = 0;
    append(KIB, 5);
    assert.equal(log.retainedBytes, 5 * KIB);
    pump.stop();
    assert.equal(log.retainedBytes, 4 * KIB);
    assert.equal(peer.listeners.size, 0);
    append(KIB);
    log.closed();
    pump.release();
    assert.deepEqual([sent(), ends()], [5, 0]);
  });

  test("stops listening to the log when it stops", () => {
    const log = new EventLog();
    let listeners = 0;
    const listen = log.listen.bind(log);
    log.listen = (listener) => {
      listeners++;
      const stop = listen(listener);
      return () => {
        listeners--;
        stop();
      };
    };
    const pump = new ProcessPump(log, new FakePeer(), () => undefined, { afterSeq: 0 });
    assert.equal(listeners, 1);
    pump.stop();
    assert.equal(listeners, 0);
  });

  test("sends interactive output above the bulk limit, and none above the queue limit", () => {
    const { peer, append, sent } = setup({}, 64 * KIB);
    peer.isAboveBulkLimit = true;
    append(4 * KIB);
    assert.equal(sent(), 1);
    append(4 * KIB + 1);
    assert.equal(sent(), 1);
    peer.drain();
    assert.equal(sent(), 2);
    peer.isAboveBulkLimit = true;
    peer.isAboveQueueLimit = true;
    append(1);
    assert.equal(sent(), 2);
    peer.drain();
    assert.equal(sent(), 3);
  });

  test("stops at its allowance of bytes or events until it gets more", () => {
    const { pump, append, sent } = setup({ allowance: { bytes: 2 * KIB, events: 10 } }, 64 * KIB);
    append(KIB, 3);
    assert.equal(sent(), 2);
    pump.allow({ bytes: 64 * KIB, events: 2 });
    assert.equal(sent(), 3);
    append(KIB, 3);
    assert.equal(sent(), 4);
    pump.release();
    assert.equal(sent(), 6);
    append(KIB, 20);
    assert.equal(sent(), 26);
  });

  test("unpins output that has left the queue, and keeps the rest", () => {
    const { log, peer, append } = setup();
    peer.flushed = 0;
    append(KIB, 6);
    peer.drain();
    assert.equal(log.retainedBytes, 6 * KIB, "nothing has left");
    // The first check after an event remembers its position.
    peer.flushed = 6;
    peer.drain();
    append(KIB, 3);
    peer.drain();
    assert.equal(log.read({ afterSeq: 6 }).gap, undefined, "seq 7 to 9 are in the queue");
    peer.flushed = 9;
    peer.drain();
    assert.equal(log.retainedBytes, 4 * KIB);
  });

  test("pins at most 1 MiB or 10,000 events that have not left the queue", () => {
    const { log, peer, append } = setup();
    peer.flushed = -1;
    append(64 * KIB, 16);
    assert.equal(log.retainedBytes, 1024 * KIB);
    append(1);
    assert.ok(log.retainedBytes <= 4 * KIB, `${log.retainedBytes} bytes are retained`);
    const many = setup({}, 100);
    many.peer.flushed = -1;
    many.append(1, 10_000);
    assert.equal(many.log.retainedBytes, 10_000);
    many.append(1);
    assert.equal(many.log.retainedBytes, 100);
  });

  test("pins up to 1 MiB or 10,000 events in the queue also after twice as much has left it", () => {
    for (const [bytes, count] of [
      [64 * KIB, 16],
      [1, 10_000],
    ] as const) {
      const { log, peer, append } = setup({}, 100);
      append(bytes, 2 * count);
      peer.drain();
      assert.ok(log.retainedBytes <= 4 * KIB);
      peer.flushed = -1;
      append(bytes, count - 1);
      assert.equal(log.retainedBytes, bytes * (count - 1));
    }
  });

  test("sends chunks that stay valid after their eviction to a peer that keeps their bytes", () => {
    for (const keepsBytes of [true, false]) {
      const log = new EventLog({ ownsChunks: true, limits: { retainedBytes: 256 * KIB, headBytes: 0, tailBytes: 0 } });
      const sent: Uint8Array[] = [];
      const notify = (event: ExecEvent) => void (event.type === "output" && sent.push(event.chunk));
      new ProcessPump(log, Object.assign(new FakePeer(), { keepsBytes }), notify, { afterSeq: 0 });
      log.append("stdout", new Uint8Array(64 * KIB));
      log.append("stdout", new Uint8Array(64 * KIB));
      log.evictTo(0);
      assert.equal(sent[0]?.length, keepsBytes ? 64 * KIB : 0);
    }
  });

  test("pauses the process when its peer stalls", () => {
    const { log, peer, append } = setup();
    const pauses: boolean[] = [];
    log.onBackpressure = (isPaused) => void pauses.push(isPaused);
    peer.isAboveBulkLimit = true;
    peer.isAboveQueueLimit = true;
    append(KIB, 5);
    assert.deepEqual(pauses, [true]);
    peer.drain();
    assert.deepEqual(pauses, [true, false]);
  });
});
