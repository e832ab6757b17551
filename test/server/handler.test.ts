import assert from "node:assert/strict";
import { after, describe, test } from "node:test";
import { createLocalHost } from "../../src/host/local-host.ts";
import { ExecServer } from "../../src/server/exec-server.ts";
import { memoryWire, WireClient } from "../support/servers/raw-connection.ts";

/** The seed's handler tests, from the wire, on real processes. */

const server = new ExecServer(createLocalHost());
after(() => server.close());

const connect = () => new WireClient(memoryWire((connection) => server.accept(connection)));

async function ready(): Promise<WireClient> {
  const client = connect();
  await client.handshake();
  return client;
}

const exec = (script: string, tty = false) => ({
  argv: ["bash", "-lc", script],
  cwd: process.cwd(),
  env: { PATH: "/usr/bin:/bin" },
  tty,
  arg0: null,
});

describe("ConnectionHandler", () => {
  test("reports the protocol version in the initialize response", async () => {
    await using client = connect();
    const result = await client.call("initialize", { clientName: "test" });
    assert.equal(result.protocolVersion, "exec-server.v0");
  });

  test("rejects exec methods before initialize", async () => {
    await using client = connect();
    for (const method of ["command/exec", "process/start"]) {
      const params =
        method === "command/exec" ? exec("true", true) : { ...exec("true"), cwd: "file:///", processId: "p" };
      assert.deepEqual(await client.refused(method, params), {
        code: -32600,
        message: "client must call initialize before using exec methods",
      });
    }
  });

  test("rejects exec methods before the initialized notification", async () => {
    await using client = connect();
    await client.call("initialize", { clientName: "test" });
    assert.deepEqual(await client.refused("command/exec", exec("true", true)), {
      code: -32600,
      message: "client must send initialized before using exec methods",
    });
  });

  test("treats initialized before initialize as a protocol error", async () => {
    const client = connect();
    client.notify("initialized", {});
    await client.ended();
    assert.deepEqual(client.messages, []);
  });

  test("rejects a second initialize on a connection", async () => {
    await using client = await ready();
    assert.deepEqual(await client.refused("initialize", { clientName: "test" }), {
      code: -32600,
      message: "initialize may only be sent once per connection",
    });
    assert.deepEqual(await client.call("environment/status"), { status: "ready" });
  });

  test("returns generated session ids from command/exec", async () => {
    await using client = await ready();
    assert.deepEqual(await client.call("command/exec", exec("sleep 30")), { sessionId: "session-1" });
    assert.deepEqual(await client.call("command/exec", exec("true")), { sessionId: "session-2" });
  });

  test("rejects command/exec/write to a process without a terminal", async () => {
    await using client = await ready();
    await client.call("command/exec", exec("sleep 30"));
    assert.deepEqual(await client.refused("command/exec/write", { sessionId: "session-1", chunk: "aGVsbG8K" }), {
      code: -32600,
      message: "stdin is closed for session session-1",
    });
  });

  test("rejects command/exec/write to an unknown process", async () => {
    await using client = await ready();
    assert.deepEqual(await client.refused("command/exec/write", { sessionId: "missing", chunk: "aGVsbG8K" }), {
      code: -32600,
      message: "unknown session id missing",
    });
  });

  test("reports running: false when an unknown process is terminated", async () => {
    await using client = await ready();
    assert.deepEqual(await client.call("command/exec/terminate", { sessionId: "missing" }), {
      running: false,
    });
  });

  /** The Codex test inspects its map. On the wire, a reserved id is an id that the server does not assign again. */
  test("does not reuse the session id of a terminated process", async () => {
    await using client = await ready();
    await client.call("command/exec", exec("sleep 30"));
    assert.deepEqual(await client.call("command/exec/terminate", { sessionId: "session-1" }), {
      running: true,
    });
    const exited = await client.notification("command/exec/exited", "session-1");
    assert.deepEqual(exited.params, { sessionId: "session-1", exitCode: 137 });
    assert.deepEqual(await client.call("command/exec/terminate", { sessionId: "session-1" }), {
      running: false,
    });
    assert.deepEqual(await client.call("command/exec", exec("true")), { sessionId: "session-2" });
  });
});
