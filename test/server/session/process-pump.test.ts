import assert from "node:assert/strict";
import { test } from "node:test";
import type { Connection } from "../../../src/connection/connection.ts";
import { EventLog } from "../../../src/exec/log/event-log.ts";
import { ConnectionPeer } from "../../../src/server/rpc/peer.ts";
import { ProcessPump } from "../../../src/server/session/process-pump.ts";

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
  const tell = (event: { type: string; seq?: number; chunk?: Uint8Array }) => {
    if (event.type !== "output" || !event.chunk) return;
    const params = { processId: "p", seq: event.seq ?? 0, stream: "stdout" as const, chunk: event.chunk };
    peer.notify({ method: "process/output", params });
  };
  new ProcessPump(log, peer, tell, { afterSeq: 0 });
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
  assert.ok(log.retainedBytes <= 128 * KIB, `${log.retainedBytes} bytes are kept`);
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
