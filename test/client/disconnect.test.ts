import assert from "node:assert/strict";
import { describe, test } from "node:test";
import { withDeadline } from "../../src/async/deadline.ts";
import { NodeExecServerClient } from "../../src/client/node/node-client.ts";
import { spawnLocalExecServer } from "../../src/client/node/spawn-exec-server.ts";
import type { StartParams } from "../../src/exec/exec-process.ts";
import { lines } from "../../src/exec/run/lines.ts";
import { run } from "../../src/exec/run/run-program.ts";
import { createLocalHost } from "../../src/host/local-host.ts";
import { DisconnectedError } from "../../src/protocol/errors.ts";
import { ExecServer } from "../../src/server/exec-server.ts";
import { SERVE, startServer } from "../contract/backends.ts";

const TIMEOUT = { timeout: 600_000 };
/** Well below the minute that a call waits: no call may hang until another timeout. */
const SOON_MS = 30_000;
/** The server never returns, so the client stops retrying long before the test times out. */
const SHORT_RECONNECT = { deadlineMs: 1000 };
const SLEEP: StartParams = {
  processId: "proc-disconnect",
  argv: ["/bin/sh", "-c", "sleep 60"],
  cwd: "/",
  env: { PATH: process.env.PATH ?? "/usr/bin:/bin" },
  tty: false,
};

describe("loss of the server", TIMEOUT, () => {
  test("fails reads, events and calls of a remote process with the transport disconnect", async () => {
    const server = await startServer("ws://127.0.0.1:0");
    const client = await NodeExecServerClient.connectWebSocket({ url: server.url, reconnect: SHORT_RECONNECT });
    const process = await client.start(SLEEP);
    const failed = failureOf(process.events());
    const pendingRead = process.read({ waitMs: 60_000 });
    const pendingWait = process.wait();
    pendingWait.catch(() => undefined);

    await server.stop("SIGKILL");

    assert.match(await soon(failed), /^exec-server transport disconnected/);
    const read = await soon(pendingRead);
    assert.match(read.failure ?? "", /^exec-server transport disconnected/);
    assert.equal(read.closed, true);
    await assert.rejects(soon(pendingWait), isDisconnect);
    const later = await soon(process.read({ waitMs: 60_000 }));
    assert.match(later.failure ?? "", /^exec-server transport disconnected/);
    assert.equal(later.closed, true);
    await assert.rejects(soon(process.write(new Uint8Array(5))), isDisconnect);
    await assert.rejects(soon(process.terminate()), isDisconnect);
    await assert.rejects(soon(client.start({ ...SLEEP, processId: "another" })), isDisconnect);
    await assert.rejects(soon(client.files.readFile("/etc/hostname")), isDisconnect);
    await assert.rejects(soon(run(client.backend, ["true"])), isDisconnect);
    await process[Symbol.asyncDispose]();
    await client.close();
  });

  test("reports the exits of its processes first on a graceful shutdown", async () => {
    const server = await startServer("ws://127.0.0.1:0");
    const client = await NodeExecServerClient.connectWebSocket({ url: server.url, reconnect: SHORT_RECONNECT });
    const process = await client.start({ ...SLEEP, argv: ["sleep", "1000"] });
    const iterator = process.events();
    const listed = client.list();
    await listed;
    await server.stop("SIGTERM");
    const types: string[] = [];
    for await (const event of iterator) types.push(event.type);
    assert.deepEqual(types, ["exited", "closed"]);
    await assert.rejects(soon(client.list()), isDisconnect);
    await client.close();
  });

  test("is reported on stdio, which cannot reconnect", async () => {
    await using server = await spawnLocalExecServer(SERVE);
    const remote = await server.client.start(SLEEP);
    const failed = failureOf(remote.events());
    const reading = lines(remote).next();
    reading.catch(() => undefined);
    process.kill(server.pid, "SIGKILL");
    assert.match(await soon(failed), /^exec-server transport disconnected/);
    await assert.rejects(soon(reading), isDisconnect);
  });

  test("is reported by an in-process server", async () => {
    const server = new ExecServer(createLocalHost());
    const client = await NodeExecServerClient.connectInProcess(server);
    const process = await client.start({ ...SLEEP, argv: ["sleep", "1000"] });
    const iterator = process.events();
    await server.close();
    const types: string[] = [];
    for await (const event of iterator) types.push(event.type);
    assert.ok(types.at(-1) === "failed" || types.at(-1) === "closed", types.join(" "));
    await assert.rejects(client.list(), isDisconnect);
  });

  test("is distinguished from a close by the client", async () => {
    const server = new ExecServer(createLocalHost());
    const client = await NodeExecServerClient.connectInProcess(server);
    const process = await client.start({ ...SLEEP, argv: ["sleep", "1000"] });
    const failed = failureOf(process.events());
    await client.close();
    assert.equal(await soon(failed), "exec-server transport disconnected: the client was closed");
    await assert.rejects(client.list(), {
      message: "exec-server transport disconnected: the client was closed",
    });
    await client.close();
    await server.close();
  });
});

describe("connect without a listening server", TIMEOUT, () => {
  test("rejects with the system's reason", async () => {
    await assert.rejects(NodeExecServerClient.connectWebSocket({ url: "ws://127.0.0.1:1" }), /ECONNREFUSED/);
    await assert.rejects(NodeExecServerClient.connectUnix({ path: "/no/such/socket" }), /ENOENT/);
    await assert.rejects(NodeExecServerClient.connectWebSocket({ url: "http://127.0.0.1:1" }), {
      message: /^unsupported server URL `http:\/\/127.0.0.1:1`; expected `ws:\/\/HOST:PORT`/,
    });
  });

  test("rejects with the server's reason when the token is wrong", async () => {
    const digest = "0".repeat(64);
    const flags = ["--ws-auth", "capability-token", "--ws-token-sha256", digest];
    const server = await startServer("ws://127.0.0.1:0", flags);
    try {
      await assert.rejects(NodeExecServerClient.connectWebSocket({ url: server.url, authToken: "wrong" }), /401/);
    } finally {
      await server.stop();
    }
  });
});

function soon<T>(promise: Promise<T>): Promise<T> {
  return withDeadline(promise, SOON_MS, "something that must not hang");
}

function isDisconnect(error: unknown): boolean {
  assert.ok(error instanceof DisconnectedError, String(error));
  assert.match(error.message, /^exec-server transport disconnected/);
  return true;
}

async function failureOf(events: AsyncIterable<{ type: string; message?: string }>): Promise<string> {
  for await (const event of events) if (event.type === "failed") return event.message ?? "";
  return "it never failed";
}
