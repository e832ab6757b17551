import assert from "node:assert/strict";
import { test } from "node:test";
import { ExecServer } from "../../src/server/exec-server.ts";
import { FakeHost } from "../support/fake-host.ts";

test("the server's limit of live processes counts those of all sessions", async () => {
  const host = new FakeHost();
  await using server = new ExecServer(host, { maxServerProcesses: 2 });
  const session = async () => {
    const connection = server.connectInProcess({
      notified: () => undefined,
      disconnected: () => undefined,
    });
    await connection.call("initialize", { clientName: "test" });
    connection.initialized();
    return connection;
  };
  const [one, other] = [await session(), await session()];
  const start = (processId: string) => ({
    processId,
    argv: ["x"],
    cwd: "file:///tmp",
    env: {},
    tty: false,
  });
  await one.call("process/start", start("a"));
  await other.call("process/start", start("b"));
  for (const connection of [one, other]) {
    await assert.rejects(connection.call("process/start", start("c")), {
      message:
        "too many processes: this server may have 2 live processes at once; end one first, or let it have more with --max-server-processes",
    });
  }
  host.process("a").exit(0);
  await other.call("process/start", start("c"));
  await assert.rejects(one.call("process/start", start("d")), /too many processes/);
});
