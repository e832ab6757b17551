import assert from "node:assert/strict";
import { describe, test } from "node:test";
import { ProtocolError, RequestError } from "../../src/protocol/errors.ts";
import type { ServerNotification } from "../../src/protocol/methods.ts";
import { ExecServer } from "../../src/server/exec-server.ts";
import { FakeHost } from "../support/servers/fake-host.ts";
import { flushEventLoop } from "../support/system/flush-event-loop.ts";

function setup() {
  const host = new FakeHost();
  const server = new ExecServer(host);
  const connect = () => {
    const received: ServerNotification[] = [];
    const ends: (string | null)[] = [];
    const connection = server.connectInProcess({
      onNotification: (notification) => received.push(notification),
      onDisconnect: (reason) => ends.push(reason),
    });
    return { connection, received, ends };
  };
  return { host, server, connect };
}

const start = { processId: "p", argv: ["x"], cwd: "file:///tmp", env: {}, tty: false };
async function rejection(promise: Promise<unknown>): Promise<RequestError> {
  try {
    await promise;
  } catch (error) {
    assert.ok(error instanceof RequestError);
    return error;
  }
  assert.fail("the call was not rejected");
}

describe("an in-process connection", () => {
  test("has the same handshake and the same errors as a wire connection", async () => {
    const { connect } = setup();
    const { connection } = connect();
    assert.throws(() => connection.initialized(), ProtocolError);
    const early = await rejection(connection.call("process/start", start));
    assert.deepEqual([early.code, early.message], [-32600, "client must call initialize before using exec methods"]);
    const result = await connection.call("initialize", { clientName: "x", extensions: ["started", "what"] });
    assert.equal(result.protocolVersion, "exec-server.v0");
    assert.deepEqual(result.extensions, ["started"]);
    connection.initialized();
    const unknown = await rejection(connection.call("process/read", { processId: "nobody" }));
    assert.equal(unknown.message, "unknown process id nobody");
  });

  test("passes output as bytes, and sends no notification before the response to process/start", async () => {
    const { host, connect } = setup();
    const { connection, received } = connect();
    await connection.call("initialize", { clientName: "x" });
    connection.initialized();
    const started = connection.call("process/start", start);
    let hasResponse = false;
    void started.then(() => {
      hasResponse = true;
    });
    while (!host.processes.has("p")) await flushEventLoop();
    host.process("p").print("hi");
    if (!hasResponse) assert.deepEqual(received, []);
    await started;
    await flushEventLoop();
    await flushEventLoop();
    assert.deepEqual(received, [
      {
        method: "process/output",
        params: { processId: "p", seq: 1, stream: "stdout", chunk: Buffer.from("hi") },
      },
    ]);
  });

  test("detaches its session when it closes, so that another connection can resume it", async () => {
    const { host, connect } = setup();
    const first = connect();
    const { sessionId } = await first.connection.call("initialize", { clientName: "x" });
    first.connection.initialized();
    await first.connection.call("process/start", start);
    await flushEventLoop();
    first.connection.close();
    assert.deepEqual(first.ends, [null]);
    host.process("p").print("missed");
    const second = connect();
    await second.connection.call("initialize", { clientName: "x", resumeSessionId: sessionId ?? "" });
    second.connection.initialized();
    const { chunks } = await second.connection.call("process/read", { processId: "p" });
    assert.deepEqual(
      chunks.map(({ chunk }) => Buffer.from(chunk).toString()),
      ["missed"],
    );
    assert.deepEqual(first.received, []);
  });

  test("calls onDisconnect when the server stops", async () => {
    const { server, connect } = setup();
    const { connection, ends } = connect();
    await connection.call("initialize", { clientName: "x" });
    await server.close();
    assert.deepEqual(ends, ["server is shutting down"]);
  });

  test("reports an unexpected failure as an internal error with its cause", async () => {
    const { host, connect } = setup();
    const { connection } = connect();
    await connection.call("initialize", { clientName: "x" });
    connection.initialized();
    const cause = new Error("a bug");
    host.startGate = Promise.reject(cause);
    const error = await rejection(connection.call("process/start", start));
    assert.deepEqual([error.code, error.message], [-32603, "internal error"]);
    assert.equal(error.cause, cause);
    assert.equal(host.logged.length, 1);
  });
});
