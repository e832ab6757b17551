import assert from "node:assert/strict";
import { mkdtempSync, rmSync, writeFileSync } from "node:fs";
import { join } from "node:path";
import { describe, test } from "node:test";
import { NodeExecServerClient } from "../../src/client/node/node-client.ts";
import { createLocalHost } from "../../src/host/local-host.ts";
import { ExecServer } from "../../src/server/exec-server.ts";
import { listen } from "../../src/server/listen/listen.ts";
import { createUnifiedExec } from "../../src/tools/unified-exec.ts";
import { FaultProxy } from "../support/faults/fault-proxy.ts";
import { until } from "../support/system/until.ts";
import { call, collectEvents, fact, sessionOf, textOf, typesOf } from "./calls.ts";
import { testCommands } from "./command-behavior.ts";
import type { Host } from "./host.ts";
import { behavesOn } from "./host.ts";
import { testLogin } from "./login-behavior.ts";
import { testSandbox } from "./sandboxed-behavior.ts";
import { testSwappedWorkdirs } from "./swapped-workdir.ts";

/** A separate server, and a client behind a proxy that can cut the connection. */
async function openRemote(reconnect = true): Promise<Host & { proxy: FaultProxy; server: ExecServer }> {
  const server = new ExecServer(createLocalHost());
  const listening = await listen(server, { type: "websocket", host: "127.0.0.1", port: 0 });
  const proxy = await FaultProxy.before(listening.url);
  const client = await NodeExecServerClient.connectWebSocket({ url: proxy.url, reconnect });
  const { sandboxes = [] } = await client.call("environment/info", {});
  return {
    ...{ backend: client.backend, sandboxes, proxy, server },
    async [Symbol.asyncDispose]() {
      await client.close();
      await proxy[Symbol.asyncDispose]();
      await listening.close();
      await server.close();
    },
  };
}

const behaves = behavesOn(() => openRemote());

// These tests mostly wait, so they run concurrently.
describe("remote", { concurrency: 4 }, () => {
  testCommands(behaves);
  testSandbox(behaves);
  testLogin(behaves);
  testSwappedWorkdirs(behaves);
});

async function withTools(
  run: (
    set: Awaited<ReturnType<typeof openRemote>> & {
      directory: string;
      unified: ReturnType<typeof createUnifiedExec>;
    },
  ) => Promise<void>,
  reconnect = true,
): Promise<void> {
  await using remote = await openRemote(reconnect);
  const directory = mkdtempSync("/var/tmp/procwire-remote-");
  const unified = createUnifiedExec({ backend: remote.backend, cwd: directory, env: { HOME: directory } });
  try {
    await run({ ...remote, directory, unified });
  } finally {
    await unified.close();
    rmSync(directory, { recursive: true, force: true, maxRetries: 10 });
  }
}

test("a connection lost during a command loses neither its output nor its end", async () => {
  await withTools(async ({ proxy, unified, directory }) => {
    const events = collectEvents(unified);
    const cmd = "for i in $(seq 1 2000); do echo line $i; done; until [ -e go ]; do sleep 0.02; done; echo end";
    const running = call(unified, "exec_command", { cmd, yield_time_ms: 30_000 });
    await until("some output", () => events.some((event) => event.type === "ExecCommandOutputDelta"));
    for (let cuts = 0; cuts < 3; cuts++) {
      proxy.cut({ reset: cuts % 2 === 0 });
      const connections = proxy.connections;
      await until("it has connected again", () => proxy.connections > connections);
    }
    writeFileSync(join(directory, "go"), "");
    const output = await running;
    assert.equal(fact(output, "exit_code"), 0, output.text.slice(0, 400));
    const lines = Array.from({ length: 2000 }, (_, index) => `line ${index + 1}\n`);
    assert.equal(textOf(output), `${lines.join("")}end\n`);
    assert.deepEqual([typesOf(events)[0], typesOf(events).at(-1)], ["ExecCommandBegin", "ExecCommandEnd"]);
    const deltas = events.filter((event) => event.type === "ExecCommandOutputDelta");
    assert.equal(Buffer.concat(deltas.map((event) => event.chunk)).toString(), textOf(output));
  });
});

test("a session accepts input after a reconnect", async () => {
  await withTools(async ({ proxy, unified }) => {
    const cmd = 'while read -r word; do echo "<$word>"; done';
    const session_id = sessionOf(await call(unified, "exec_command", { cmd, tty: true, yield_time_ms: 250 }));
    for (const word of ["one", "two", "three"]) {
      proxy.cut();
      await call(unified, "write_stdin", { session_id, chars: `${word}\n` });
      const args = { session_id, until: "pattern", pattern: `<${word}>` };
      const waited = await call(unified, "wait_for", args);
      assert.match(String(fact(waited, "wait")), /^matched/, waited.text);
    }
  });
});

test("a lost server ends every session once, with the reason", async () => {
  await withTools(async ({ proxy, unified }) => {
    const events = collectEvents(unified);
    const session_id = sessionOf(
      await call(unified, "exec_command", { cmd: "echo so far; sleep 60", yield_time_ms: 250 }),
    );
    const polled = call(unified, "write_stdin", { session_id, yield_time_ms: 60_000 });
    await proxy.refuse();
    const output = await polled;
    assert.equal(output.ok, false);
    assert.match(output.text, /\nProcess of session ID 1 failed: exec-server transport disconnected/);
    assert.deepEqual(await call(unified, "write_stdin", { session_id }), {
      ok: false,
      text: `write_stdin failed: Unknown process id ${session_id}`,
    });
    const later = await call(unified, "exec_command", { cmd: "true" });
    assert.match(later.text, /^exec_command failed: exec-server transport disconnected/);
    const ends = events.filter((event) => event.type === "ExecCommandEnd");
    assert.deepEqual(
      ends.map((event) => event.end.type),
      ["failed"],
    );
    assert.equal(Buffer.from(ends[0]?.head ?? []).toString(), "so far\n");
  }, false);
});
