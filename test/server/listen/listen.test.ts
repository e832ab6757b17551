import assert from "node:assert/strict";
import { describe, test } from "node:test";
import { KEY_SET_REFRESH_MS } from "../../../src/server/auth/remote-key-set.ts";
import { ExecServer } from "../../../src/server/exec-server.ts";
import { listen } from "../../../src/server/listen/listen.ts";
import { FakeHost } from "../../support/servers/fake-host.ts";
import { missing, SOCKET_KINDS, serveOn } from "../../support/servers/sockets.ts";

describe("listen()", () => {
  for (const kind of SOCKET_KINDS) {
    test(`uses the sockets that the host provides: ${kind}`, { skip: missing(kind) }, async () => {
      const before = listeners();
      const server = await serveOn(kind);
      // Only Node's own sockets are known to Node.
      assert.equal(listeners() - before, kind === "Node's sockets" ? 1 : 0);
      await server.close();
    });
  }

  test("fetches no key set after the address could not be used", async (t) => {
    const host = new FakeHost();
    await using server = new ExecServer(host);
    const loopback = { type: "websocket", host: "127.0.0.1" } as const;
    const first = await listen(server, { ...loopback, port: 0 });
    t.after(() => first.close());
    const fetch = t.mock.method(globalThis, "fetch", () => Promise.reject(new Error("no issuer")));
    const taken = { ...loopback, port: Number(new URL(first.url).port) };
    const keySetUrl = "https://issuer.example/keys";
    const auth = { type: "signed-bearer-token", secret: null, keySetUrl, maxClockSkewSeconds: 0 } as const;
    await assert.rejects(listen(server, taken, { auth }), { code: "EADDRINUSE" });
    await host.clock.advance(KEY_SET_REFRESH_MS);
    assert.equal(fetch.mock.callCount(), 1);
  });
});

const listeners = () => process.getActiveResourcesInfo().filter((name) => name === "TCPServerWrap").length;
