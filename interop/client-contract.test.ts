import assert from "node:assert/strict";
import { type ChildProcess, spawn } from "node:child_process";
import { once } from "node:events";
import { existsSync } from "node:fs";
import { mkdtemp, rm } from "node:fs/promises";
import { createServer } from "node:http";
import type { AddressInfo } from "node:net";
import { tmpdir } from "node:os";
import { join } from "node:path";
import { createInterface } from "node:readline";
import { after, before, describe, it } from "node:test";
import { fileURLToPath } from "node:url";
import { ManualClock } from "../src/async/clock.ts";
import { ExecServerClient } from "../src/client/node/socket-client.ts";
import { clientContract } from "../test/contract/client-contract.ts";
import { FaultProxy } from "../test/support/fault-proxy.ts";
import { until } from "../test/support/until.ts";

const CODEX = fileURLToPath(new URL("node_modules/.bin/codex", import.meta.url));
const skip = existsSync(CODEX)
  ? false
  : "THE REAL EXEC-SERVER IS NOT TESTED: run `npm install --prefix interop` first";

/** What the client promises on every host, on the real Codex exec-server, and what only shows there. */
describe("the client's contract on the real exec-server", { skip, timeout: 120_000 }, () => {
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
    await rm(home, { recursive: true, force: true });
  });

  clientContract(
    "real Codex",
    async () => {
      const client = await ExecServerClient.connectWebSocket({ url });
      return { backend: client.backend, files: client.files, close: () => client.close() };
    },
    { noCloseStdin: true },
  );

  it("goes on at once after an HTTP request that was given up, streamed or not", async () => {
    const silent = createServer(() => undefined).listen(0, "127.0.0.1");
    await once(silent, "listening");
    const target = `http://127.0.0.1:${(silent.address() as AddressInfo).port}/`;
    const client = await ExecServerClient.connectWebSocket({ url });
    for (const ask of ["request", "stream"] as const) {
      const controller = new AbortController();
      const asked = client.http[ask]({ url: target, signal: controller.signal });
      asked.catch(() => undefined);
      await once(silent, "request");
      controller.abort(new Error("no longer wanted"));
      await assert.rejects(asked, { message: "no longer wanted" });
      assert.deepEqual(await client.call("environment/status", {}, { timeoutMs: 20_000 }), {
        status: "ready",
      });
    }
    await client.close();
    silent.closeAllConnections();
    silent.close();
  });

  it("notices a dead wire, and only that, by a ping", async () => {
    await using proxy = await FaultProxy.before(url);
    const clock = new ManualClock();
    const states: string[] = [];
    const client = await ExecServerClient.connectWebSocket({
      url: proxy.url,
      clock,
      onConnectionState: ({ type }) => states.push(type),
    });
    for (let round = 0; round < 3; round++) {
      // The time for the pong of the round before is over by then.
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
    await until("the way back", async () => {
      await clock.advance(200);
      return states.at(-1) === "connected";
    });
    await client.close();
  });
});
