import assert from "node:assert/strict";
import { describe, test } from "node:test";
import { ExecServerError } from "../../../src/protocol/exec-server-error.ts";
import { ExecServer } from "../../../src/server/exec-server.ts";
import { FakeHost } from "../../support/servers/fake-host.ts";

describe("a v0 process that fails", () => {
  test("exits with code -1, and its output is freed", async () => {
    const host = new FakeHost();
    await using server = new ExecServer(host);
    const exits: unknown[] = [];
    const connection = server.connectInProcess({
      onNotification: ({ method, params }) => {
        if (method === "command/exec/exited") exits.push(params);
      },
      onDisconnect: () => undefined,
    });
    await connection.call("initialize", { clientName: "test" });
    connection.initialized();
    const { sessionId } = await connection.call("command/exec", { argv: ["x"], cwd: "/tmp", env: {}, tty: false });
    await new Promise(setImmediate);
    const { log } = host.process(sessionId);
    host.process(sessionId).print("some output");
    log.fail(new ExecServerError("cannot read the output", "FAILED"));
    assert.deepEqual(exits, [{ sessionId, exitCode: -1 }]);
    assert.equal(log.retainedBytes, 0);
  });
});
