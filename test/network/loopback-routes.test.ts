import assert from "node:assert/strict";
import { once } from "node:events";
import { connect, createServer, type Socket } from "node:net";
import { describe, test } from "node:test";
import { LoopbackRouter, planLoopbackRoutes } from "../../src/network/loopback-routes.ts";

describe("planLoopbackRoutes", () => {
  test("gives each loopback endpoint one port, and keeps scheme, credentials and form of the variables", () => {
    const plan = planLoopbackRoutes(
      {
        HTTP_PROXY: "http://127.0.0.1:3128",
        https_proxy: "http://localhost:3128/",
        ALL_PROXY: "socks5h://user:word@127.0.0.1:1080",
        npm_config_proxy: "127.0.0.1:3128",
        FTP_PROXY: "socks5://[::1]",
        WS_PROXY: "http://127.0.0.1",
        PATH: "http://127.0.0.1:9",
      },
      61200,
    );
    assert.ok(plan.type === "routed");
    assert.deepEqual(plan.routes, [
      { host: "127.0.0.1", port: 3128, listenPort: 61200 },
      { host: "127.0.0.1", port: 1080, listenPort: 61201 },
      { host: "::1", port: 1080, listenPort: 61202 },
      { host: "127.0.0.1", port: 80, listenPort: 61203 },
    ]);
    assert.deepEqual(plan.variables, {
      HTTP_PROXY: "http://127.0.0.1:61200",
      https_proxy: "http://127.0.0.1:61200/",
      ALL_PROXY: "socks5h://user:word@127.0.0.1:61201",
      npm_config_proxy: "127.0.0.1:61200",
      FTP_PROXY: "socks5://127.0.0.1:61202",
      WS_PROXY: "http://127.0.0.1:61203",
    });
  });

  test("fails with Codex's texts without a proxy, and without a proxy on loopback", () => {
    for (const env of [{}, { HTTP_PROXY: " " }, { NO_PROXY: "x" }])
      assert.deepEqual(planLoopbackRoutes(env, 1), {
        type: "unroutable",
        reason: "managed proxy mode requires proxy environment variables",
      });
    for (const value of ["http://192.0.2.1:1", "http://127.0.0.1.example:1", "http://", "http://127.0.0.1:0", "::"])
      assert.deepEqual(
        planLoopbackRoutes({ HTTP_PROXY: value }, 1),
        { type: "unroutable", reason: "managed proxy mode requires parseable loopback proxy endpoints" },
        value,
      );
  });

  test("routes at most 16 endpoints", () => {
    const names = ["HTTP_PROXY", "http_proxy", "Http_Proxy", "hTTP_PROXY", "HTTPS_PROXY", "https_proxy"];
    const more = [...names, ...names.map((name) => `YARN_${name}`), ...names.map((name) => `BUNDLE_${name}`)];
    const env = Object.fromEntries(more.map((name, index) => [name, `http://127.0.0.1:${1000 + index}`]));
    const plan = planLoopbackRoutes(env, 61200);
    assert.ok(plan.type === "routed");
    assert.equal(plan.routes.length, 16);
    assert.equal(Object.keys(plan.variables).length, 16);
  });
});

describe("LoopbackRouter", () => {
  async function listenOn(onSocket: (socket: Socket) => void) {
    const server = createServer({ allowHalfOpen: true }, onSocket).listen(0, "127.0.0.1");
    await once(server, "listening");
    const address = server.address();
    assert.ok(typeof address === "object" && address);
    return { server, port: address.port };
  }

  /** Resolves when the socket has closed, also after an error. */
  const closed = (socket: Socket) => new Promise<void>((resolve) => socket.once("close", () => resolve()));

  async function exchange(port: number, text: string): Promise<string> {
    const socket = connect(port, "127.0.0.1");
    socket.on("error", () => undefined);
    socket.end(text);
    let received = "";
    socket.setEncoding("utf8").on("data", (chunk: string) => {
      received += chunk;
    });
    await closed(socket);
    return received;
  }

  test("copies both directions and their ends, and resets connections to its own server", async () => {
    const target = await listenOn((socket) => socket.pipe(socket));
    let isOwn = false;
    const router = new LoopbackRouter((host, port) => isOwn && host === "127.0.0.1" && port === target.port);
    const route = { host: "127.0.0.1", port: target.port, listenPort: 1 };
    const front = await listenOn((socket) => router.accept(socket, route));
    assert.equal(await exchange(front.port, "echoed"), "echoed");
    isOwn = true;
    assert.equal(await exchange(front.port, "echoed"), "");
    isOwn = false;
    // Closing ends open connections and rejects new ones.
    const open = connect(front.port, "127.0.0.1");
    open.on("error", () => undefined);
    open.write("x");
    await once(open, "data");
    router.close();
    await closed(open);
    assert.equal(await exchange(front.port, "echoed"), "");
    for (const { server } of [target, front]) server.close();
  });

  test("closes a connection whose target refuses it", async () => {
    const gone = await listenOn(() => undefined);
    gone.server.close();
    await once(gone.server, "close");
    const router = new LoopbackRouter(() => false);
    const front = await listenOn((socket) =>
      router.accept(socket, { host: "127.0.0.1", port: gone.port, listenPort: 1 }),
    );
    assert.equal(await exchange(front.port, "x"), "");
    front.server.close();
  });
});
