import assert from "node:assert/strict";
import { test } from "node:test";
import { ExecServer } from "../../src/server/exec-server.ts";
import { FakeHost } from "../support/servers/fake-host.ts";

const start = (processId: string) => ({ processId, argv: ["x"], cwd: "file:///tmp", env: {}, tty: false });

async function session(server: ExecServer) {
  const connection = server.connectInProcess({
    onNotification: () => undefined,
    onDisconnect: () => undefined,
  });
  await connection.call("initialize", { clientName: "test" });
  connection.initialized();
  return connection;
}

test("the server's limit of live processes counts the processes of all sessions", async () => {
  const host = new FakeHost();
  await using server = new ExecServer(host, { maxServerProcesses: 2 });
  const [one, other] = [await session(server), await session(server)];
  await one.call("process/start", start("a"));
  await other.call("process/start", start("b"));
  for (const connection of [one, other]) {
    await assert.rejects(connection.call("process/start", start("c")), {
      message:
        "too many processes: this server may have 2 live processes at once; end one first, or raise --max-server-processes",
    });
  }
  host.process("a").exit(0);
  await other.call("process/start", start("c"));
  await assert.rejects(one.call("process/start", start("d")), /too many processes/);
});

test("the limit of live v0 processes counts starts in flight", async () => {
  await using server = new ExecServer(new FakeHost(), { maxProcesses: 1 });
  const connection = await session(server);
  const exec = () => connection.call("command/exec", { argv: ["x"], cwd: "/tmp", env: {}, tty: false });
  const outcomes = await Promise.allSettled([exec(), exec()]);
  assert.deepEqual(
    outcomes.map(({ status }) => status),
    ["fulfilled", "rejected"],
  );
});

test("a start does not scan all processes that ended before it", async () => {
  const host = new FakeHost();
  await using server = new ExecServer(host, { maxProcesses: 50 });
  const connection = await session(server);
  let reads = 0;
  for (let at = 0; at < 200; at++) {
    await connection.call("process/start", start(`p${at}`));
    const { log } = host.process(`p${at}`);
    host.process(`p${at}`).exit(0);
    const { exit } = log;
    Object.defineProperty(log, "exit", {
      get: () => {
        reads++;
        return exit;
      },
    });
  }
  // 19,000 if each start counted the live processes.
  assert.ok(reads < 2000, `${reads} reads of ended processes`);
  for (let at = 0; at < 50; at++) await connection.call("process/start", start(`live${at}`));
  await assert.rejects(connection.call("process/start", start("one too many")), /too many processes/);
});
