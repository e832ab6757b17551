import assert from "node:assert/strict";
import { after, before, describe, test } from "node:test";
import type { ConnectionState, ExecServerClient as UniversalClient } from "../../src/client/exec-server-client.ts";
import { NodeExecServerClient } from "../../src/client/node/node-client.ts";
import { createLocalHost } from "../../src/host/local-host.ts";
import { ExecServer } from "../../src/server/exec-server.ts";
import { FaultProxy } from "../support/faults/fault-proxy.ts";
import { WireClient, webSocketWire } from "../support/servers/raw-connection.ts";
import { type ServeChild, serve } from "../support/servers/serve.ts";
import { missing, SOCKET_KINDS, type SocketServer, serveOn } from "../support/servers/sockets.ts";
import { until } from "../support/system/until.ts";

const TAKEN_OVER = /was taken over by another connection/;
const CAT = {
  processId: "cat",
  argv: ["cat"],
  cwd: "/",
  env: { PATH: "/usr/bin:/bin" },
  tty: false,
  pipeStdin: true,
};
/** Retries at once, so that repeated takeovers would show. */
const QUICK = { firstDelayMs: 5, maxDelayMs: 20 };

interface Seen {
  client: UniversalClient;
  states: ConnectionState[];
}

async function connect(url: string, options: { resumeSessionId?: string; takeOver?: boolean } = {}): Promise<Seen> {
  const states: ConnectionState[] = [];
  const client = await NodeExecServerClient.connectWebSocket({
    url,
    reconnect: QUICK,
    onConnectionState: (state) => states.push(state),
    ...options,
  });
  return { client, states };
}

/** A second client takes over the session of the first. */
function takeOver(url: string, { client }: Seen): Promise<Seen> {
  assert.ok(client.sessionId !== null);
  return connect(url, { resumeSessionId: client.sessionId, takeOver: true });
}

async function lastError({ states }: Seen): Promise<string> {
  await until("the end of the client", () => states.at(-1)?.type === "disconnected");
  const last = states.at(-1);
  return last?.type === "disconnected" ? last.error.message : "";
}

function contract(name: string, skip: string | false, url: () => string): void {
  describe(`session takeover: ${name}`, { skip, timeout: 600_000 }, () => {
    test("moves the session to the new client; the previous client gets the reason and does not reconnect", async () => {
      const first = await connect(url());
      const process = await first.client.start(CAT);
      const second = await takeOver(url(), first);
      assert.match(await lastError(first), TAKEN_OVER);
      assert.deepEqual(
        first.states.map(({ type }) => type),
        ["connected", "disconnected"],
      );
      const types: string[] = [];
      for await (const event of process.events()) types.push(event.type);
      assert.deepEqual(types, ["failed"]);
      await assert.rejects(process.write(new Uint8Array(1)), TAKEN_OVER);
      const same = await second.client.backend.attach("cat");
      await same.terminate();
      await same.wait();
      assert.deepEqual(
        second.states.map(({ type }) => type),
        ["connected"],
      );
      await second.client.close();
    });

    test("is not reversed by a client that notices it only on reconnect", async () => {
      await using proxy = await FaultProxy.before(url());
      const first = await connect(proxy.url);
      proxy.stall();
      const second = await takeOver(url(), first);
      // The client received none of this; now its connection is lost as well.
      proxy.cut();
      proxy.resume();
      assert.match(await lastError(first), TAKEN_OVER);
      assert.deepEqual(
        second.states.map(({ type }) => type),
        ["connected"],
      );
      await second.client.close();
    });

    test("is not reversed while the new client is briefly disconnected", async () => {
      await using proxy = await FaultProxy.before(url());
      const first = await connect(proxy.url);
      proxy.stall();
      const second = await takeOver(url(), first);
      await second.client.close();
      proxy.cut();
      proxy.resume();
      assert.match(await lastError(first), TAKEN_OVER);
    });

    test("keeps the session with a client across its connections, also after a handshake without result", async () => {
      await using proxy = await FaultProxy.before(url());
      const { client, states } = await connect(proxy.url);
      const process = await client.start(CAT);
      // The server considers each connection alive; on some the `initialize` result never arrives.
      for (const bytes of [0, 150, 200, 400, 700]) {
        const before = proxy.connections;
        proxy.faultFor = (number) =>
          number === before + 1 ? { cutAfter: { bytes, direction: "toClient" }, side: "client" } : {};
        proxy.cut({ side: "client" });
        await until("two more connections", () => proxy.connections >= before + 2);
        await until("the way back", () => states.at(-1)?.type !== "reconnecting");
        assert.equal(states.at(-1)?.type, "connected");
      }
      assert.deepEqual(await process.write(new TextEncoder().encode("still mine")), { status: "accepted" });
      await process.terminate();
      await client.close();
    });

    test("returns the session to its client if an abandoned handshake arrives after a later one", async () => {
      const { client, states } = await connect(url());
      const process = await client.start(CAT);
      const stale = new WireClient(await webSocketWire(url()));
      await stale.handshake({
        resumeSessionId: client.sessionId,
        extensions: ["attach"],
        takeOver: true,
        takeOverFrom: "1",
      });
      await until("the loss", () => states.length > 1);
      await until("the way back", () => states.at(-1)?.type !== "reconnecting");
      assert.deepEqual(
        states.map(({ type }) => type),
        ["connected", "reconnecting", "connected"],
      );
      assert.deepEqual(await process.write(new TextEncoder().encode("still mine")), { status: "accepted" });
      await process.terminate();
      await client.close();
    });
  });

  describe(`restart of the listener: ${name}`, { skip, timeout: 600_000 }, () => {
    test("keeps existing process objects valid", async () => {
      await using proxy = await FaultProxy.before(url());
      const { client, states } = await connect(proxy.url);
      const process = await client.start(CAT);
      await proxy.refuse();
      const writing = process.write(new TextEncoder().encode("after the restart"));
      await until("the loss", () => states.length > 1);
      await proxy.listenAgain();
      assert.deepEqual(await writing, { status: "accepted" });
      await process.closeStdin();
      const { stdout } = await process.wait().then(() => process.snapshot());
      assert.equal(new TextDecoder().decode(stdout), "after the restart");
      await client.close();
    });
  });
}

let child: ServeChild;
before(async () => {
  child = await serve();
});
after(async () => {
  await child.stop();
});
contract("procwire serve", false, () => child.url);

for (const kind of SOCKET_KINDS) {
  let server: SocketServer;
  before(async () => {
    if (missing(kind) === false) server = await serveOn(kind);
  });
  after(() => server?.close());
  contract(kind, missing(kind), () => server.url);
}

describe("in-process session takeover", () => {
  test("notifies the previous client of a takeover", async () => {
    await using server = new ExecServer(createLocalHost());
    const states: ConnectionState[] = [];
    const first = await NodeExecServerClient.connectInProcess(server, {
      onConnectionState: (state) => states.push(state),
    });
    const process = await first.start(CAT);
    assert.ok(first.sessionId !== null);
    const second = await NodeExecServerClient.connectInProcess(server, {
      resumeSessionId: first.sessionId,
      takeOver: true,
    });
    await assert.rejects(process.wait(), TAKEN_OVER);
    const last = states.at(-1);
    assert.match(last?.type === "disconnected" ? last.error.message : "", TAKEN_OVER);
    await second.close();
  });
});
