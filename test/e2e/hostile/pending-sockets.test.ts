import assert from "node:assert/strict";
import { once } from "node:events";
import { readdirSync } from "node:fs";
import { connect, type Socket } from "node:net";
import { describe, test } from "node:test";
import { sh, startParams, type WireClient } from "../../support/servers/raw-connection.ts";
import { PROCWIRE, ServeChild } from "../../support/servers/serve.ts";
import { until } from "../../support/system/until.ts";

/** A server with few descriptors, and many clients that connect, some without ever sending a request. */

const WAYS = {
  "the addon's sockets": {},
  "Node's sockets": { PROCWIRE_NATIVE_SPAWNER: "/nowhere" },
};

function serveWith(descriptors: number, env: Record<string, string> = {}): Promise<ServeChild> {
  return new ServeChild(["--listen", "ws://127.0.0.1:0"], {
    command: ["sh", "-c", `ulimit -n ${descriptors}; exec "$0" serve "$@"`, PROCWIRE],
    env,
  }).listening();
}

/** Opens connections that send `text`, an incomplete request, and nothing more. */
async function idle(server: ServeChild, count: number, text: string): Promise<Crowd> {
  const crowd = new Crowd(Number(new URL(server.url).port), count, text);
  await crowd.connected;
  return crowd;
}

class Crowd implements Disposable {
  readonly connected: Promise<unknown>;
  readonly #sockets: Socket[];
  gone = 0;
  received = "";

  constructor(port: number, count: number, text: string) {
    this.#sockets = Array.from({ length: count }, () => connect(port, "127.0.0.1"));
    for (const socket of this.#sockets) {
      socket.on("error", () => undefined);
      socket.on("data", (data) => {
        this.received += data.toString("latin1");
      });
      socket.on("close", () => this.gone++);
      socket.write(text);
    }
    // The kernel accepts all of them into its backlog before the server accepts them.
    this.connected = Promise.all(this.#sockets.map((socket) => once(socket, "connect")));
  }

  [Symbol.dispose](): void {
    for (const socket of this.#sockets) socket.destroy();
  }
}

for (const [way, env] of Object.entries(WAYS)) {
  describe(`a large number of sockets over ${way}`, () => {
    for (const text of ["", "GET / HTTP/1.1\r\nhost: "]) {
      test(`that exceeds the descriptors and sends ${JSON.stringify(text)} keeps no client out`, async () => {
        await using server = await serveWith(256, env);
        using crowd = await idle(server, 320, text);
        await using client = await server.connect();
        await client.handshake();
        await client.start("p", sh("echo done"));
        assert.equal((await client.finished("p")).output, "done\n");
        // An eighth of 256 sockets may be pending, and this client was the last of them before its handshake. The
        // server closed no socket because of a timeout.
        await until("the others are gone", () => crowd.gone >= 320 - 31);
        assert.equal(crowd.gone, 320 - 31);
        assert.equal(crowd.received, "");
      });
    }

    test("of authenticated clients takes at most half of the descriptors; the next client receives 503", async () => {
      // The server itself and its first process use about thirty descriptors.
      await using server = await serveWith(80, env);
      await using client = await server.connect();
      await client.handshake();
      const others: WireClient[] = [];
      while (others.length < 39) others.push(await server.connect());
      await assert.rejects(server.connect(), /503/);
      await client.start("p", sh("echo done"));
      assert.equal((await client.finished("p")).output, "done\n");
      await Promise.all(others.map((other) => other.close()));
    });
  });
}

describe("a server without a descriptor left", () => {
  test("keeps serving connected clients, and accepts waiting clients when a descriptor is free again", async () => {
    await using server = await serveWith(64);
    await using client = await server.connect();
    await client.handshake();
    let started = 0;
    for (;;) {
      const { error } = await client.request(
        "process/start",
        startParams(`p${started}`, ["/bin/sleep", "1000"], { pipeStdin: true }),
      );
      if (error) break;
      started++;
    }
    assert.ok(started > 3);
    using crowd = await idle(server, 5, "");
    await until("every descriptor is used", () => {
      return readdirSync(`/proc/${server.serverPid()}/fd`).length >= 63;
    });
    const waiting = fetch(`${server.url.replace(/^ws/, "http")}/readyz`);
    for (let at = 0; at < 20; at++) await client.roundTrip();
    for (let at = 0; at < started; at++) await client.call("process/terminate", { processId: `p${at}` });
    assert.equal((await waiting).status, 200);
    assert.equal(crowd.received, "");
  });
});
