import assert from "node:assert/strict";
import { spawn } from "node:child_process";
import { once } from "node:events";
import { access, mkdtemp, rm } from "node:fs/promises";
import { tmpdir } from "node:os";
import { join } from "node:path";
import { createInterface } from "node:readline";
import { describe, test } from "node:test";
import { withDeadline } from "../../src/async/deadline.ts";
import type { ExecServerClient as UniversalClient } from "../../src/client/exec-server-client.ts";
import { NodeExecServerClient } from "../../src/client/node/node-client.ts";
import { spawnLocalExecServer } from "../../src/client/node/spawn-exec-server.ts";
import type { ExecServerEvent } from "../../src/client/process/v0-client.ts";
import { SERVE, startServer } from "../contract/backends.ts";
import { isAlive } from "../support/servers/serve.ts";
import { until } from "../support/system/until.ts";

const TIMEOUT = { timeout: 600_000 };
const env = { PATH: process.env.PATH ?? "/usr/bin:/bin" };
const ECHO = ["bash", "-lc", "printf 'ready\\n'; while IFS= read -r line; do printf 'echo:%s\\n' \"$line\"; done"];

describe("client tests of the v0 exec-server", TIMEOUT, () => {
  test("accepts initialize over stdio", async () => {
    const child = spawn(SERVE.program, SERVE.args, { stdio: ["pipe", "pipe", "inherit"] });
    const lines = createInterface({ input: child.stdout });
    child.stdin.write('{"id":1,"method":"initialize","params":{"clientName":"exec-server-test"}}\n');
    const [line] = await once(lines, "line");
    const response: unknown = JSON.parse(String(line));
    assert.ok(typeof response === "object" && response !== null && "id" in response && "result" in response);
    assert.equal(response.id, 1);
    assert.equal(Object(response.result).protocolVersion, "exec-server.v0");
    child.stdin.end('{"method":"initialized","params":{}}\n');
    const [code] = await once(child, "exit");
    assert.equal(code, 0);
  });

  test("streams output and accepts writes", async () => {
    await using server = await spawnLocalExecServer(SERVE, {
      clientName: "exec-server-test",
      initializeTimeoutMs: 5000,
    });
    await echoes(server.client);
  });

  test("connects over a WebSocket", async () => {
    const server = await startServer("ws://127.0.0.1:0");
    try {
      await using client = await NodeExecServerClient.connectWebSocket({
        url: server.url,
        clientName: "exec-server-test",
        connectTimeoutMs: 5000,
        initializeTimeoutMs: 5000,
      });
      await echoes(client);
    } finally {
      await server.stop();
    }
  });

  test("terminates the processes of a connection when its WebSocket disconnects", async () => {
    const server = await startServer("ws://127.0.0.1:0");
    const directory = await mkdtemp(join(tmpdir(), "procwire-disconnect-"));
    const marker = join(directory, "marker");
    const pidFile = join(directory, "pid");
    try {
      const client = await NodeExecServerClient.connectWebSocket({ url: server.url });
      const events = client.eventReceiver();
      await client.exec({
        argv: ["bash", "-c", `echo $$ > ${pidFile}; echo up; sleep 30; printf disconnected > ${marker}`],
        cwd: "/",
        env,
        tty: false,
      });
      await receiveUntil(events, "up");
      const pid = Number(await (await import("node:fs/promises")).readFile(pidFile, "utf8"));
      await client.close();
      await until(`process ${pid} ends`, () => !isAlive(pid));
      await assert.rejects(access(marker));
    } finally {
      await server.stop();
      await rm(directory, { recursive: true, force: true, maxRetries: 10 });
    }
  });

  test("rejects a write to a process without a terminal with the text of the v0 exec-server", async () => {
    await using server = await spawnLocalExecServer(SERVE);
    const { sessionId } = await server.client.exec({ argv: ["sleep", "10"], cwd: "/", env, tty: false });
    assert.equal(sessionId, "session-1");
    await assert.rejects(server.client.write(sessionId, new Uint8Array(1)), {
      rpcCode: -32600,
      message: "stdin is closed for session session-1",
    });
    assert.deepEqual(await server.client.terminate(sessionId), { running: true });
  });

  test("delivers events to every receiver from its creation on", async () => {
    await using server = await spawnLocalExecServer(SERVE);
    const receivers = [server.client.eventReceiver(), server.client.eventReceiver()];
    await server.client.exec({ argv: ["echo", "hi"], cwd: "/", env, tty: false });
    for (const receiver of receivers) {
      assert.match((await receiveUntil(receiver, "hi")).text, /hi/);
      const exit = await receiver.next();
      assert.deepEqual(exit.value, { type: "exited", sessionId: "session-1", exitCode: 0 });
    }
  });
});

describe("spawnLocalExecServer", TIMEOUT, () => {
  test("terminates the server and its processes on disposal", async () => {
    const server = await spawnLocalExecServer(SERVE);
    const child = await server.client.start({
      processId: "p",
      argv: ["sleep", "1000"],
      cwd: "/",
      env,
      tty: false,
    });
    await child.wait({ until: { type: "idle", quietMs: 1 } });
    const { pid } = child;
    assert.ok(pid !== null);
    await server.close();
    await until(`process ${server.pid} ends`, () => !isAlive(server.pid));
    await until(`process ${pid} ends`, () => !isAlive(pid));
  });

  test("rejects if the executable is missing", async () => {
    await assert.rejects(spawnLocalExecServer({ program: "/no/such/server" }), {
      ...{ name: "ExecServerError", code: "ENOENT" },
      message: /^cannot start exec-server `\/no\/such\/server`: .*ENOENT/,
    });
  });

  test("rejects if the server exits before the handshake", async () => {
    await assert.rejects(spawnLocalExecServer({ program: "true" }), {
      message: /^exec-server transport disconnected/,
    });
  });
});

async function echoes(client: UniversalClient): Promise<void> {
  const events = client.eventReceiver();
  const { sessionId } = await client.exec({ argv: ECHO, cwd: process.cwd(), env, tty: true });
  const ready = await receiveUntil(events, "ready");
  assert.equal(ready.stream, "stdout");
  assert.deepEqual(await client.write(sessionId, new TextEncoder().encode("hello\n")), { accepted: true });
  const echoed = await receiveUntil(events, "echo:hello");
  assert.equal(echoed.stream, "stdout");
  await client.terminate(sessionId);
}

async function receiveUntil(
  events: AsyncIterableIterator<ExecServerEvent>,
  wanted: string,
): Promise<{ stream: string; text: string }> {
  let text = "";
  for (;;) {
    const { value } = await withDeadline(events.next(), 10_000, wanted);
    if (value?.type !== "output") throw new Error(`expected output with ${wanted}, got ${value?.type}`);
    text += new TextDecoder().decode(value.chunk);
    if (text.includes(wanted)) return { stream: value.stream, text };
  }
}
