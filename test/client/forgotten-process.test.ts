import assert from "node:assert/strict";
import { describe, test } from "node:test";
import { ExecServerClient } from "../../src/client/exec-server-client.ts";
import { ExecServer } from "../../src/server/exec-server.ts";
import { FakeHost } from "../support/servers/fake-host.ts";
import { memoryConnectionPair } from "../support/servers/memory-connection.ts";

/** A client and a server in this program, on one clock that is moved by hand. */
async function connected() {
  const host = new FakeHost();
  const server = new ExecServer(host);
  const open = () => {
    const [clientSide, serverSide] = memoryConnectionPair();
    void server.accept(serverSide);
    return clientSide;
  };
  const client = await ExecServerClient.connect(open, { clock: host.clock });
  return { host, server, client };
}

const START = { processId: "p", argv: ["x"], cwd: "/", env: {}, tty: false };

describe("a process that the server has forgotten", () => {
  test("keeps its exit status and output on the client", async () => {
    const { host, server, client } = await connected();
    const process = await client.start(START);
    host.process("p").print("all of it");
    host.process("p").finish(7);
    await host.clock.advance(31_000);
    await assert.rejects(client.call("process/read", { processId: "p" }), /unknown process id p/);
    assert.deepEqual(await process.wait(), {
      reason: "exited",
      exitCode: 7,
      signal: null,
      exitReason: "exited",
      seq: 3,
    });
    const { stdout, exitCode, running } = await process.snapshot();
    assert.deepEqual([Buffer.from(stdout).toString(), exitCode, running], ["all of it", 7, false]);
    await client.close();
    await host.clock.advance(60_000);
    await server.close();
  });

  test("is forgotten although the client disposed it before it closed", async () => {
    const { host, server, client } = await connected();
    const process = await client.start(START);
    const fake = host.process("p");
    fake.print("unread");
    // The leader has exited, but a descendant keeps its streams open.
    fake.exit(0);
    await host.clock.advance(0);
    await process[Symbol.asyncDispose]();
    fake.print("late");
    fake.log.closed();
    await host.clock.advance(31_000);
    assert.equal(fake.log.retainedBytes, 0);
    await assert.rejects(client.call("process/read", { processId: "p" }), /unknown process id p/);
    await client.close();
    await host.clock.advance(60_000);
    assert.equal(host.clock.pendingTimers, 0);
    await server.close();
  });
});
