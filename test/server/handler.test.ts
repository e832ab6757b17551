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

describe("the handler", () => {
  test("initialize_response_reports_protocol_version", async () => {
    await using client = connect();
    const result = await client.call("initialize", { clientName: "test" });
    assert.equal(result.protocolVersion, "exec-server.v0");
  });

  test("exec_methods_require_initialize", async () => {
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

  test("exec_methods_require_initialized_notification_after_initialize", async () => {
    await using client = connect();
    await client.call("initialize", { clientName: "test" });
    assert.deepEqual(await client.refused("command/exec", exec("true", true)), {
      code: -32600,
      message: "client must send initialized before using exec methods",
    });
  });

  test("initialized_before_initialize_is_a_protocol_error", async () => {
    const client = connect();
    client.notify("initialized", {});
    await client.ended();
    assert.deepEqual(client.messages, []);
  });

  test("initialize_may_only_be_sent_once_per_connection", async () => {
    await using client = await ready();
    assert.deepEqual(await client.refused("initialize", { clientName: "test" }), {
      code: -32600,
      message: "initialize may only be sent once per connection",
    });
    assert.deepEqual(await client.call("environment/status"), { status: "ready" });
  });

  test("exec_returns_server_generated_session_ids", async () => {
    await using client = await ready();
    assert.deepEqual(await client.call("command/exec", exec("sleep 30")), { sessionId: "session-1" });
    assert.deepEqual(await client.call("command/exec", exec("true")), { sessionId: "session-2" });
  });

  test("writes_to_pipe_backed_processes_are_rejected", async () => {
    await using client = await ready();
    await client.call("command/exec", exec("sleep 30"));
    assert.deepEqual(
      await client.refused("command/exec/write", { sessionId: "session-1", chunk: "aGVsbG8K" }),
      {
        code: -32600,
        message: "stdin is closed for session session-1",
      },
    );
  });

  test("writes_to_unknown_processes_are_rejected", async () => {
    await using client = await ready();
    assert.deepEqual(
      await client.refused("command/exec/write", { sessionId: "missing", chunk: "aGVsbG8K" }),
      {
        code: -32600,
        message: "unknown session id missing",
      },
    );
  });

  test("terminate_unknown_processes_report_running_false", async () => {
    await using client = await ready();
    assert.deepEqual(await client.call("command/exec/terminate", { sessionId: "missing" }), {
      running: false,
    });
  });

  /** The seed looks into its map; from the wire, a reserved id is one that is not given out again. */
  test("terminate_keeps_session_ids_reserved_until_exit_cleanup", async () => {
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
