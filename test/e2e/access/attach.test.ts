/** Several sessions on one real process, over TCP sockets, unix sockets and an in-process connection. */

import assert from "node:assert/strict";
import { describe, test } from "node:test";
import { ExecServerClient, type ExecServerClientOptions } from "../../../src/client/exec-server-client.ts";
import { NodeExecServerClient as SocketClient } from "../../../src/client/node/node-client.ts";
import type { AttachedProcess } from "../../../src/client/process/attached-process.ts";
import type { RemoteProcess } from "../../../src/client/process/remote-process.ts";
import type { StartParams } from "../../../src/exec/exec-process.ts";
import { waitFor } from "../../../src/exec/wait/wait-for-output.ts";
import { createLocalHost } from "../../../src/host/local-host.ts";
import { ExecServer } from "../../../src/server/exec-server.ts";
import { CuttingProxy } from "../../support/faults/cutting-proxy.ts";
import { sh, WireClient, webSocketWire } from "../../support/servers/raw-connection.ts";
import { missing, SOCKET_KINDS, serveOn } from "../../support/servers/sockets.ts";
import { repetitions } from "../../support/system/repetitions.ts";
import { until } from "../../support/system/until.ts";

interface Place extends AsyncDisposable {
  connect(options?: ExecServerClientOptions): Promise<ExecServerClient>;
  /** The URL that other clients connect to; null for an in-process server. */
  url: string | null;
}

async function inProcess(): Promise<Place> {
  const server = new ExecServer(createLocalHost());
  return {
    url: null,
    connect: (options) => ExecServerClient.connectInProcess(server, options),
    [Symbol.asyncDispose]: () => server.close(),
  };
}

const PLACES: [name: string, skip: string | false, open: () => Promise<Place>][] = [
  ...SOCKET_KINDS.map((kind): (typeof PLACES)[number] => [
    kind,
    missing(kind),
    async () => {
      const { url, close } = await serveOn(kind);
      return {
        url,
        connect: (options) => SocketClient.connectWebSocket({ url, ...options }),
        [Symbol.asyncDispose]: close,
      };
    },
  ]),
  ["one program", false, inProcess],
];

const start = (client: ExecServerClient, script: string, more: Partial<StartParams> = {}) =>
  client.start({
    processId: "p",
    argv: sh(script),
    cwd: "/tmp",
    env: { PATH: "/usr/bin:/bin" },
    tty: false,
    ...more,
  });

function handleOf(process: RemoteProcess): string {
  assert.ok(process.handle !== null);
  return process.handle;
}

interface Seen {
  text: string;
  bytes: number;
  gapBytes: number;
  exitCode: number | null;
}

/** Collects every event of a process until it is closed. */
async function follow(process: RemoteProcess, isTextCollected = true): Promise<Seen> {
  const seen: Seen = { text: "", bytes: 0, gapBytes: 0, exitCode: null };
  for await (const event of process.events({ lossless: true })) {
    if (event.type === "output") {
      seen.bytes += event.chunk.length;
      if (isTextCollected) seen.text += Buffer.from(event.chunk).toString("latin1");
    }
    if (event.type === "gap") seen.gapBytes += event.bytes ?? 0;
    if (event.type === "exited") seen.exitCode = event.exitCode;
    if (event.type === "failed") assert.fail(event.message);
  }
  return seen;
}

const bytes = (text: string) => new TextEncoder().encode(text);

for (const [name, skip, open] of PLACES) {
  describe(`over ${name}`, { skip }, () => {
    test("process/list returns the awaited input, limits and exit reason of a process to clients that requested the extension", async () => {
      await using place = await open();
      await using client = await place.connect();
      const limits = { wallTimeMs: 60_000 };
      const secret = await start(client, "stty -echo; read -r word; exit 3", { tty: true, limits });
      // An in-process server returns unset members as undefined; JSON drops them.
      const status = async () => JSON.parse(JSON.stringify((await client.list())[0]?.status));
      await until("it waits for a secret", async () => (await status()).awaits === "secret");
      assert.deepEqual(await status(), { limits, awaits: "secret" });
      await secret.write(Buffer.from("word\n"));
      await secret.wait();
      assert.deepEqual(await status(), { limits, exitReason: "exited" });
      if (place.url === null) return;
      // A client without the extension receives a list without `status`.
      await using plain = new WireClient(await webSocketWire(place.url));
      await plain.handshake();
      const { processes } = await plain.call("process/list", { allSessions: true });
      assert.ok(Array.isArray(processes) && processes.length === 1 && !("status" in processes[0]));
    });

    test("viewers and a driver share a process with its owner", async () => {
      await using place = await open();
      await using owner = await place.connect();
      const own = await start(owner, "while read x; do echo got $x; done; exit 6", { pipeStdin: true });
      const driverChanges: string[] = [];
      own.onDriverChanged = (driver) => driverChanges.push(driver);
      await using other = await place.connect();
      await using third = await place.connect();
      const viewer = await other.attach(handleOf(own));
      const driver = await third.attach(handleOf(own), { role: "driver" });
      assert.deepEqual([viewer.role, driver.role, driver.listing().argv[0]], ["viewer", "driver", "/bin/sh"]);
      await assert.rejects(viewer.write(bytes("no\n")), /attach to it as driver/);
      assert.equal((await driver.write(bytes("driver\n"))).status, "accepted");
      await waitFor(viewer, "got driver");
      await own.write(bytes("owner\n"));
      for (const one of [own, viewer, driver]) await waitFor(one, "got owner");
      await driver.becomeViewer();
      await assert.rejects(driver.write(bytes("no\n")), /attach to it as driver/);
      const received = Promise.withResolvers<string>();
      await driver.becomeDriver();
      driver.onRoleChanged = (role) => received.resolve(role);
      await viewer.becomeDriver();
      assert.equal(await received.promise, "viewer");
      assert.equal(driver.role, "viewer");
      assert.equal((await viewer.closeStdin()).status, "accepted");
      for (const one of [own, viewer, driver]) {
        const { text, exitCode } = await follow(one);
        assert.deepEqual([text, exitCode], ["got driver\ngot owner\n", 6]);
      }
      assert.deepEqual(driverChanges.slice(0, 4), ["attached", "none", "attached", "attached"]);
    });

    test("the terminal size of the driver is the terminal size of the process", async () => {
      await using place = await open();
      await using owner = await place.connect();
      const own = await start(owner, "trap 'stty size' WINCH; stty size; while :; do sleep 0.02; done", {
        tty: true,
        size: { rows: 10, cols: 20 },
      });
      await waitFor(own, "10 20");
      await using other = await place.connect();
      const driver = await other.attach(handleOf(own), { role: "driver", size: { rows: 33, cols: 44 } });
      await waitFor(own, "33 44");
      assert.deepEqual(driver.size, { rows: 33, cols: 44 });
      await driver.resize({ rows: 55, cols: 66 });
      await waitFor(own, "55 66");
      await driver.terminate();
    });

    test("a process keeps running when a driver detaches and when an attached process object is disposed", async () => {
      await using place = await open();
      await using owner = await place.connect();
      const own = await start(owner, "read x; echo $x", { pipeStdin: true });
      await using other = await place.connect();
      const first = await other.attach(handleOf(own), { role: "driver" });
      await first.detach();
      const ended = await first.wait({ timeoutMs: 0 }).catch((error: Error) => error);
      assert.ok(ended);
      {
        await using again = await other.attach(handleOf(own), { role: "driver", processId: "again" });
        assert.equal(again.processId, "again");
      }
      await own.write(bytes("alive\n"));
      assert.equal((await follow(own)).text, "alive\n");
    });

    test("a process that ends while others attach delivers all its events, hundreds of times", async () => {
      await using place = await open();
      await using owner = await place.connect();
      await using other = await place.connect();
      for (let run = 0; run < repetitions(200); run++) {
        const processId = `p${run}`;
        const role = run % 2 ? "viewer" : "driver";
        const own = await start(owner, `echo ${run}; exit ${run % 50}`, { processId });
        const attached = await other.attach(handleOf(own), { role });
        const { text, exitCode } = await follow(attached);
        assert.deepEqual([text, exitCode], [`${run}\n`, run % 50]);
      }
    });

    test("a client kills a process by its handle", async () => {
      await using place = await open();
      await using owner = await place.connect();
      await using other = await place.connect();
      const own = await start(owner, "trap 'echo usr1' USR1; echo ready; while :; do sleep 0.02; done");
      await waitFor(own, "ready");
      assert.equal((await other.kill(handleOf(own), { signal: "SIGUSR1" })).running, true);
      await waitFor(own, "usr1");
      assert.equal((await other.kill(handleOf(own))).running, true);
      assert.equal((await follow(own)).exitCode, 137);
    });

    test("maxAgeMs ends a process of lifetime `server` with reason `timeout`", async () => {
      await using place = await open();
      await using owner = await place.connect();
      const own = await start(owner, "exec sleep 100", {
        lifetime: "server",
        maxAgeMs: 100,
        timeoutMs: 60_000,
      });
      assert.equal((await own.wait()).exitReason, "timeout");
    });

    test("a slow viewer does not slow bulk output and receives a gap for every byte it missed", async () => {
      await using place = await open();
      await using owner = await place.connect();
      const total = 64 * 1024 * 1024;
      const own = await start(owner, `read x; head -c ${total} /dev/zero; echo; read y`, { pipeStdin: true });
      await using other = await place.connect();
      const viewer = await other.attach(handleOf(own));
      const watching = follow(viewer, false);
      const reading = follow(own, false);
      // This viewer does not read while the bulk output continues.
      await using stalled = await place.connect();
      const stalledViewer = await stalled.attach(handleOf(own));
      const late = stalledViewer.events({ lossless: true });
      await own.write(bytes("go\n"));
      await until("the owner to have read the flood", () => own.log.totalBytes === total + 1);
      await own.write(bytes("end\n"));
      const owned = await reading;
      assert.deepEqual([owned.bytes, owned.gapBytes, owned.exitCode], [total + 1, 0, 0]);
      const watched = await watching;
      assert.deepEqual([watched.bytes + watched.gapBytes, watched.exitCode], [total + 1, 0]);
      let [lateBytes, lateGap] = [0, 0];
      for await (const event of late) {
        if (event.type === "output") lateBytes += event.chunk.length;
        if (event.type === "gap") lateGap += event.bytes ?? 0;
      }
      assert.equal(lateBytes + lateGap, total + 1);
    });

    test("drivers take over from each other hundreds of times while bytes flow", async () => {
      await using place = await open();
      await using owner = await place.connect();
      const own = await start(owner, "cat", { pipeStdin: true });
      const clients = [await place.connect(), await place.connect()];
      const attached: AttachedProcess[] = [];
      for (const client of clients) attached.push(await client.attach(handleOf(own)));
      const seen = [own, ...attached].map((process) => follow(process));
      let written = "";
      for (let round = 0; round < repetitions(300); round++) {
        const driver = attached[round % 2];
        assert.ok(driver);
        await driver.becomeDriver();
        assert.equal((await driver.write(bytes(`${round} `))).status, "accepted");
        written += `${round} `;
      }
      await own.closeStdin();
      for (const one of await Promise.all(seen)) assert.equal(one.text, written);
      for (const client of clients) await client.close();
    });
  });
}

for (const kind of SOCKET_KINDS) {
  describe(`over ${kind}, with cut connections`, { skip: missing(kind) }, () => {
    test("a driver loses and duplicates no input when its connection is cut repeatedly", async () => {
      const { url, close } = await serveOn(kind);
      await using proxy = await CuttingProxy.to(url);
      await using owner = await SocketClient.connectWebSocket({ url });
      const own = await start(owner, "cat", { pipeStdin: true });
      const client = await SocketClient.connectWebSocket({ url: proxy.url });
      const driver = await client.attach(handleOf(own), { role: "driver" });
      const seen = follow(driver);
      let written = "";
      for (let round = 0; round < 30; round++) {
        const word = `${round}:${"x".repeat(2000)} `;
        const writing = driver.write(bytes(word));
        if (round % 3 === 0) proxy.cut();
        assert.equal((await writing).status, "accepted");
        written += word;
      }
      await driver.closeStdin();
      assert.equal((await seen).text, written);
      assert.equal((await follow(own)).text, written);
      await client.close();
      await close();
    });

    test("a viewer that never reads its socket does not slow bulk output, and uses bounded memory", async () => {
      const { url, close } = await serveOn(kind);
      await using owner = await SocketClient.connectWebSocket({ url });
      const total = 96 * 1024 * 1024;
      const own = await start(owner, `read x; head -c ${total} /dev/zero`, { pipeStdin: true });
      const stalled: WireClient[] = [];
      for (let i = 0; i < 5; i++) {
        const client = new WireClient(await webSocketWire(url));
        await client.handshake();
        await client.call("process/attach", { handle: handleOf(own), role: "viewer" });
        client.pause();
        stalled.push(client);
      }
      await own.write(bytes("go\n"));
      const { bytes: got, exitCode } = await follow(own, false);
      assert.deepEqual([got, exitCode], [total, 0]);
      for (const client of stalled) {
        client.resume();
        const { exitCode: code } = await client.finished(handleOf(own));
        assert.equal(code, 0);
        const gaps = client.notificationsOf(handleOf(own)).filter(({ method }) => method === "process/gap");
        const missed = gaps.reduce((sum, { params }) => sum + Number(params.bytes), 0);
        assert.ok(missed > 0, "it cannot have been sent everything");
        assert.equal(missed + client.outputBytes(handleOf(own)).length, total);
        client.cut();
      }
      await close();
    });
  });
}
