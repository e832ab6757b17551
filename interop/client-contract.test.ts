import assert from "node:assert/strict";
import { type ChildProcess, spawn } from "node:child_process";
import { once } from "node:events";
import { existsSync } from "node:fs";
import { mkdtemp, rm, writeFile } from "node:fs/promises";
import { createServer } from "node:http";
import type { AddressInfo } from "node:net";
import { tmpdir } from "node:os";
import { join } from "node:path";
import { createInterface } from "node:readline";
import { after, before, describe, test } from "node:test";
import { fileURLToPath } from "node:url";
import type { ExecServerClient as UniversalClient } from "../src/client/exec-server-client.ts";
import { NodeExecServerClient } from "../src/client/node/node-client.ts";
import type { ExecProcess } from "../src/exec/exec-process.ts";
import { lines } from "../src/exec/run/lines.ts";
import { waitFor } from "../src/exec/wait/wait-for-output.ts";
import { clientContract } from "../test/contract/client-contract.ts";
import { FaultProxy } from "../test/support/faults/fault-proxy.ts";
import { ManualClock } from "../test/support/manual-clock.ts";
import { until } from "../test/support/system/until.ts";

const CODEX = fileURLToPath(new URL("node_modules/.bin/codex", import.meta.url));
const skip = existsSync(CODEX) ? false : "THE REAL EXEC-SERVER IS NOT TESTED: run `npm install --prefix interop` first";

/** The contract of the client on the real Codex exec-server, and behavior that only occurs there. */
describe("the client's contract on the real exec-server", { skip, timeout: 600_000 }, () => {
  let codex: ChildProcess;
  let exited: Promise<unknown>;
  let home: string;
  let url: string;

  before(async () => {
    home = await mkdtemp(join(tmpdir(), "procwire-codex-"));
    codex = spawn(CODEX, ["exec-server", "--listen", "ws://127.0.0.1:0"], {
      env: { PATH: process.env.PATH, HOME: home, CODEX_HOME: home },
      stdio: ["ignore", "pipe", "ignore"],
    });
    exited = once(codex, "exit");
    assert.ok(codex.stdout);
    const [line] = await once(createInterface({ input: codex.stdout }), "line");
    url = String(line);
  });
  after(async () => {
    codex.kill();
    await exited;
    await rm(home, { recursive: true, force: true, maxRetries: 10 });
  });

  clientContract(
    "real Codex",
    async () => {
      const client = await NodeExecServerClient.connectWebSocket({ url });
      return { backend: client.backend, files: client.files, close: () => client.close() };
    },
    { noCloseStdin: true },
  );

  test("continues at once after an aborted HTTP request, streamed or not", async () => {
    const silent = createServer(() => undefined).listen(0, "127.0.0.1");
    await once(silent, "listening");
    const target = `http://127.0.0.1:${(silent.address() as AddressInfo).port}/`;
    const client = await NodeExecServerClient.connectWebSocket({ url });
    for (const ask of ["request", "stream"] as const) {
      const controller = new AbortController();
      const response = client.http[ask]({ url: target, signal: controller.signal });
      response.catch(() => undefined);
      await once(silent, "request");
      controller.abort(new Error("no longer wanted"));
      await assert.rejects(response, { message: "no longer wanted" });
      assert.deepEqual(await client.call("environment/status", {}, { timeoutMs: 20_000 }), {
        status: "ready",
      });
    }
    await client.close();
    silent.closeAllConnections();
    silent.close();
  });

  test("detects a dead connection by a ping, and does not drop a live connection", async () => {
    await using proxy = await FaultProxy.before(url);
    const { client, clock, states } = await watchedClient(proxy.url);
    for (let round = 0; round < 3; round++) {
      // This step includes the pong timeout of the previous round.
      await clock.advance(15_000);
      for (let call = 0; call < 3; call++) await client.call("environment/status", {});
    }
    assert.deepEqual(states, ["connected"]);
    proxy.stall();
    await clock.advance(30_000);
    assert.deepEqual(states, ["connected", "reconnecting"]);
    proxy.cut();
    proxy.resume();
    await clock.advance(100);
    await until("the reconnect", async () => {
      await clock.advance(200);
      return states.at(-1) === "connected";
    });
    await client.close();
  });

  test("leaves a session to its connected client, even if other connections try to resume it", async () => {
    await using proxy = await FaultProxy.before(url);
    const states: string[] = [];
    const clock = new ManualClock();
    const first = await NodeExecServerClient.connectWebSocket({
      url: proxy.url,
      clock,
      onConnectionState: ({ type }) => states.push(type),
    });
    const resumeSessionId = first.sessionId;
    assert.ok(resumeSessionId !== null);
    // This server does not support takeover.
    const attached = { message: /already attached/ };
    await assert.rejects(NodeExecServerClient.connectWebSocket({ url, resumeSessionId, takeOver: true }), attached);
    await first.call("environment/status", {});
    assert.deepEqual(states, ["connected"]);
    // Another client resumes the session while the first cannot connect; the first does not take it over.
    await proxy.refuse();
    await until("the loss", () => states.at(-1) === "reconnecting");
    const resumed: UniversalClient[] = [];
    await until("the session", async () => {
      const tried = NodeExecServerClient.connectWebSocket({ url, resumeSessionId });
      await tried.then((client) => resumed.push(client)).catch(() => undefined);
      return resumed.length > 0;
    });
    const [second] = resumed;
    assert.ok(second);
    await proxy.listenAgain();
    // Small steps: the real server must respond to an attempt before its timeout of at least 1 s elapses.
    await until("the end of the first", async () => {
      await clock.advance(50);
      return states.at(-1) === "disconnected";
    });
    await assert.rejects(first.call("environment/status", {}), attached);
    await second.call("environment/status", {});
    await Promise.all([first.close(), second.close()]);
  });

  test("completes a start whose connection was cut with the process, or with an error that the process may have started", async () => {
    await using proxy = await FaultProxy.before(url);
    const { client, clock, states } = await watchedClient(proxy.url);
    for (let round = 0; round < 5; round++) {
      const processId = `cut-start-${round}`;
      const starting = start(client, processId, ["echo", processId]);
      let isOver = false;
      const outcome = starting
        .then(
          (child) => waitFor(child, processId),
          (error: unknown) => error,
        )
        .finally(() => {
          isOver = true;
        });
      for (let tick = 0; tick < round; tick++) await new Promise((resolve) => setImmediate(resolve));
      proxy.cut({ reset: round % 2 === 0 });
      // This server keeps a cut start pending forever. The test moves the clock faster while the client waits for it.
      await until("the end of the start", async () => {
        await clock.advance(states.at(-1) === "connected" ? 100 : 5);
        return isOver;
      });
      const result = await outcome;
      if (result instanceof Error) assert.match(result.message, /to start.*the process may have started/);
    }
    await client.close();
  });

  test("reports output that the server evicted during an outage as a gap of unknown size", async () => {
    await using proxy = await FaultProxy.before(url);
    const client = await NodeExecServerClient.connectWebSocket({ url: proxy.url });
    const [go, done] = [join(home, "go"), join(home, "done")];
    const flood = `echo ready; while [ ! -e ${go} ]; do sleep 0.02; done
      head -c 4000000 /dev/zero | tr '\\0' x; echo; echo last; touch ${done}`;
    const child = await start(client, "flood", ["/bin/sh", "-c", flood]);
    await waitFor(child, "ready");
    await proxy.refuse();
    await writeFile(go, "");
    await until("the whole output", () => existsSync(done));
    await proxy.listenAgain();
    const seen: unknown[] = [];
    for await (const line of lines(child, { onGap: "yield" }))
      seen.push(typeof line === "string" ? line.slice(0, 5) : line.bytes);
    assert.deepEqual(seen, ["ready", null, "xxxxx", "last"]);
    await client.close();
  });
});

function start(client: UniversalClient, processId: string, argv: string[]): Promise<ExecProcess> {
  const env = { PATH: process.env.PATH ?? "/usr/bin:/bin" };
  return client.start({ processId, argv, cwd: "/", env, tty: false });
}

/** Connects a client with a manual clock. Returns it with the states of its connection. */
async function watchedClient(url: string) {
  const clock = new ManualClock();
  const states: string[] = [];
  const client = await NodeExecServerClient.connectWebSocket({
    url,
    clock,
    onConnectionState: ({ type }) => states.push(type),
  });
  return { client, clock, states };
}
