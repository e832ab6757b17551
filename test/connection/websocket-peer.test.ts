import assert from "node:assert/strict";
import { once } from "node:events";
import { mkdtempSync, rmSync } from "node:fs";
import { createServer as createHttpServer } from "node:http";
import { type AddressInfo, connect as connectTcp, createServer, type Socket } from "node:net";
import { tmpdir } from "node:os";
import { join } from "node:path";
import { after, describe, test } from "node:test";
import fc from "fast-check";
import { WebSocket, WebSocketServer } from "ws";
import type { Connection, ConnectionEvent } from "../../src/connection/connection.ts";
import { websocketAcceptKey } from "../../src/connection/websocket-accept-key.ts";
import { connectWebSocket, UpgradeRefusedError } from "../../src/connection/websocket-client.ts";
import { WebSocketConnection } from "../../src/connection/websocket-connection.ts";
import { lazyNativeCodec } from "../../src/host/client-codec.ts";
import { listenerOf, serveWebSockets, tcpPort } from "../support/servers/websocket-server.ts";

/** The `ws` package as an independent peer, in both roles, through a proxy that cuts the bytes anywhere. */

const closers: (() => void)[] = [];
after(() => {
  for (const close of closers.reverse()) close();
});

/** Forwards TCP, a few bytes at a time. */
async function cuttingProxy(targetPort: number, sizes: () => number): Promise<number> {
  const pipe = (from: Socket, to: Socket) => {
    from.on("data", (chunk: Buffer) => {
      for (let at = 0; at < chunk.length; ) {
        const size = sizes();
        to.write(chunk.subarray(at, at + size));
        at += size;
      }
    });
    from.on("close", () => to.destroy());
    from.on("error", () => to.destroy());
  };
  const server = createServer((near) => {
    const far = connectTcp(targetPort, "127.0.0.1");
    near.setNoDelay(true);
    far.setNoDelay(true);
    pipe(near, far);
    pipe(far, near);
  });
  closers.push(() => server.close());
  return listenOn(server);
}

async function listenOn(
  server: { listen(port: number, host: string): unknown; address(): unknown } & NodeJS.EventEmitter,
) {
  server.listen(0, "127.0.0.1");
  await once(server, "listening");
  return (server.address() as AddressInfo).port;
}

function collector(connection: Connection, count: number): Promise<ConnectionEvent[]> {
  const { promise, resolve } = Promise.withResolvers<ConnectionEvent[]>();
  const events: ConnectionEvent[] = [];
  connection.open((event) => {
    events.push(event);
    if (events.length === count) resolve(events);
  });
  return promise;
}

/** A server whose upgrade response is followed by `frames` in the same packet. */
class UpgradeServer {
  frames: Buffer = Buffer.alloc(0);
  readonly server = createHttpServer().on("upgrade", (request, socket) => {
    const accept = websocketAcceptKey(request.headers["sec-websocket-key"] ?? "");
    const head = `HTTP/1.1 101 Switching Protocols\r\nsec-websocket-accept: ${accept}\r\n\r\n`;
    socket.end(Buffer.concat([Buffer.from(head), this.frames]));
  });
}

const methodsOf = (events: ConnectionEvent[]) =>
  events.map((event) =>
    event.type === "message" && event.message.type === "notification" ? event.message.method : event.type,
  );

/** Small, at each edge of the length forms, and large. */
const MESSAGES = ["", "é😀", "x".repeat(90), "y".repeat(110), "y".repeat(111), "z".repeat(65_520), "z".repeat(200_000)];
const asJson = (method: string) => JSON.stringify({ method });

for (const kind of ["node", "native"] as const)
  describe(`a client connected to the ws package, over ${kind === "node" ? "Node's" : "the addon's"} sockets`, () => {
    const codec = kind === "node" ? undefined : lazyNativeCodec();

    test("exchanges messages of every length, split at any position", async () => {
      const http = createHttpServer();
      const server = new WebSocketServer({ server: http });
      server.on("connection", (socket) => {
        socket.on("message", (data, isBinary) => socket.send(data, { binary: isBinary }));
      });
      const port = await listenOn(http);
      closers.push(() => http.close());
      let seed = 1;
      const proxyPort = await cuttingProxy(port, () => {
        seed = (seed * 48_271) % 2_147_483_647;
        return 1 + (seed % 5000);
      });
      const connection = await connectWebSocket({ url: `ws://127.0.0.1:${proxyPort}/`, codec });
      const events = collector(connection, MESSAGES.length + 1);
      for (const message of MESSAGES) connection.send(asJson(message));
      connection.sendChunk('{"method":"', Uint8Array.of(1, 2, 3), '"}');
      assert.deepEqual(methodsOf(await events), [...MESSAGES, "AQID"]);
      const closed = new Promise<number>((resolve) => {
        for (const socket of server.clients) socket.on("close", (code) => resolve(code));
      });
      connection.close();
      assert.equal(await closed, 1000);
    });

    test("accepts fragmented messages of ws with pings between", async () => {
      const http = createHttpServer();
      const server = new WebSocketServer({ server: http });
      server.on("connection", (socket) => {
        const text = asJson("whole");
        for (let at = 0; at < text.length; at++) {
          socket.send(text.charAt(at), { fin: at === text.length - 1 });
          socket.ping();
        }
      });
      const port = await listenOn(http);
      closers.push(() => http.close());
      const connection = await connectWebSocket({ url: `ws://127.0.0.1:${port}/`, codec });
      assert.deepEqual(methodsOf(await collector(connection, 1)), ["whole"]);
      connection.close();
    });

    test("reports the response of a server that rejects the upgrade", async () => {
      const http = createHttpServer((_, response) => response.writeHead(418).end("short and stout"));
      const port = await listenOn(http);
      closers.push(() => http.close());
      await assert.rejects(connectWebSocket({ url: `ws://127.0.0.1:${port}/`, codec }), (error: unknown) => {
        assert.ok(error instanceof UpgradeRefusedError);
        assert.equal(error.status, 418);
        assert.match(error.message, /HTTP 418: short and stout$/);
        return true;
      });
    });

    test("reports no page of a web server that has no websocket", async () => {
      const http = createHttpServer((_, response) =>
        response.writeHead(200, { "content-type": "text/html" }).end("<!DOCTYPE html>\n<title>Files</title>\n"),
      );
      const port = await listenOn(http);
      closers.push(() => http.close());
      const url = `ws://127.0.0.1:${port}/`;
      await assert.rejects(connectWebSocket({ url, codec }), {
        message: `${url} refused the websocket upgrade with HTTP 200`,
      });
    });

    test("rejects a server with a wrong Sec-WebSocket-Accept", async () => {
      const http = createHttpServer();
      http.on("upgrade", (_, socket) => {
        socket.end(
          `HTTP/1.1 101 Switching Protocols\r\nconnection: upgrade\r\nupgrade: websocket\r\nsec-websocket-accept: ${websocketAcceptKey("other")}\r\n\r\n`,
        );
      });
      const port = await listenOn(http);
      closers.push(() => http.close());
      await assert.rejects(connectWebSocket({ url: `ws://127.0.0.1:${port}/`, codec }), /wrong sec-websocket-accept/);
    });

    test("disconnects from a server that sends an invalid frame with the upgrade response", async () => {
      const upgrade = new UpgradeServer();
      closers.push(() => upgrade.server.close());
      const url = `ws://127.0.0.1:${await listenOn(upgrade.server)}/`;
      const valid = Buffer.concat([Buffer.of(0x81, 14), Buffer.from(asJson("a"))]);
      for (const [frame, problem] of [
        [[0x81, 0x82, 1, 2, 3, 4, 5, 6], /must not be masked$/],
        [[0x81, 127, 255, 255, 255, 255, 255, 255, 255, 255], /message is larger than/],
        [[0x82, 127, 127, 255, 255, 255, 255, 255, 255, 255], /message is larger than/],
        [[0x80, 1, 65], /unexpected continuation frame$/],
        [[0x81, 2, 0xff, 0xfe], /text is not UTF-8$/],
      ] as const) {
        upgrade.frames = Buffer.concat([valid, Buffer.from(frame)]);
        const connection = await connectWebSocket({ url, codec });
        const [first, second] = await collector(connection, 2);
        assert.equal(first?.type, "message");
        assert.ok(second?.type === "disconnected");
        assert.match(second.reason ?? "", problem);
      }
    });

    test("times out on a server that never responds", async () => {
      const silent = createServer((socket) => closers.push(() => socket.destroy()));
      const port = await listenOn(silent);
      closers.push(() => silent.close());
      await assert.rejects(
        connectWebSocket({ url: `ws://127.0.0.1:${port}/`, connectTimeoutMs: 50, codec }),
        /timed out waiting for a connection to ws:/,
      );
    });

    test("rejects with the error of the system if nothing listens", async () => {
      const closed = createServer();
      const address = `127.0.0.1:${await listenOn(closed)}`;
      await new Promise((resolve) => closed.close(resolve));
      for (const [url, code, target] of [
        [`ws://${address}/`, "ECONNREFUSED", address],
        ["unix:///nowhere/socket", "ENOENT", "/nowhere/socket"],
      ] as const)
        await assert.rejects(connectWebSocket({ url, codec }), {
          message: `connect ${code} ${target}`,
          code,
          syscall: "connect",
        });
    });

    test("rejects the path of a Unix socket with a zero byte", async () => {
      const directory = mkdtempSync(join(tmpdir(), "procwire-client-"));
      closers.push(() => rmSync(directory, { recursive: true }));
      const path = join(directory, "socket");
      const other = createServer((socket) => void socket.end());
      other.listen(path);
      await once(other, "listening");
      closers.push(() => other.close());
      await assert.rejects(connectWebSocket({ url: `unix://${path}\0suffix`, codec }), { code: "EINVAL" });
    });

    test("connects to a host name and to a Unix socket", async () => {
      const http = createHttpServer();
      const server = new WebSocketServer({ server: http });
      server.on("connection", (socket) => socket.send(asJson("hello")));
      const port = await listenOn(http);
      closers.push(() => http.close());
      const directory = mkdtempSync(join(tmpdir(), "procwire-client-"));
      closers.push(() => rmSync(directory, { recursive: true }));
      const path = join(directory, "socket");
      const unix = createServer((socket) => void http.emit("connection", socket));
      unix.listen(path);
      await once(unix, "listening");
      closers.push(() => unix.close());
      for (const url of [`ws://localhost:${port}/`, `unix://${path}`]) {
        const connection = await connectWebSocket({ url, codec });
        assert.deepEqual(methodsOf(await collector(connection, 1)), ["hello"]);
        connection.close();
      }
    });

    test("reports a server that closes or resets the connection", async () => {
      for (const [end, method] of [
        ["destroy", null],
        ["resetAndDestroy", /^failed to read websocket JSON-RPC message from .*: read ECONNRESET$/],
      ] as const) {
        const http = createHttpServer();
        const server = new WebSocketServer({ server: http });
        server.on("connection", (_, { socket }) => setImmediate(() => socket[end]()));
        const port = await listenOn(http);
        closers.push(() => http.close());
        const connection = await connectWebSocket({ url: `ws://127.0.0.1:${port}/`, codec });
        const [event] = await collector(connection, 1);
        assert.ok(event?.type === "disconnected");
        if (method === null) assert.equal(event.reason, null);
        else assert.match(event.reason ?? "", method);
      }
    });

    test("stops when it is aborted", async () => {
      const silent = createServer((socket) => closers.push(() => socket.destroy()));
      const port = await listenOn(silent);
      closers.push(() => silent.close());
      const aborter = new AbortController();
      const connected = connectWebSocket({ url: `ws://127.0.0.1:${port}/`, codec, signal: aborter.signal });
      const [socket] = await once(silent, "connection");
      aborter.abort(new Error("enough"));
      await assert.rejects(connected, { message: "enough" });
      socket.resume();
      await once(socket, "close");
    });
  });

for (const kind of ["node", "native"] as const)
  describe(`a server for ws, over ${kind === "node" ? "Node's" : "the addon's"} sockets`, () => {
    async function serve(onConnection: (connection: Connection) => void): Promise<number> {
      const maxMessageBytes = 300_000;
      const listener = await serveWebSockets(listenerOf(kind), { maxMessageBytes }, (socket) =>
        onConnection(new WebSocketConnection(socket, { label: "test", role: "server", maxMessageBytes })),
      );
      closers.push(() => listener.close());
      return tcpPort(listener);
    }

    const echo = (connection: Connection) =>
      connection.open((event) => {
        if (event.type === "message" && event.message.type === "notification") {
          connection.send(asJson(event.message.method));
        }
      });

    test("exchanges messages of every length, split at any position", async () => {
      const port = await serve(echo);
      await fc.assert(
        fc.asyncProperty(
          fc.array(fc.integer({ min: 1, max: 3000 }), { minLength: 1, maxLength: 10 }),
          fc.shuffledSubarray(MESSAGES),
          async (sizes, messages) => {
            let next = 0;
            const proxyPort = await cuttingProxy(port, () => sizes[next++ % sizes.length] ?? 1);
            const socket = new WebSocket(`ws://127.0.0.1:${proxyPort}/`);
            await once(socket, "open");
            const received: string[] = [];
            const all = new Promise<void>((resolve) => {
              socket.on("message", (data) => {
                received.push(JSON.parse(String(data)).method);
                if (received.length === messages.length) resolve();
              });
            });
            for (const [index, message] of messages.entries()) {
              const bytes = Buffer.from(asJson(message));
              const half = bytes.length >> 1;
              if (index % 3 === 0) socket.send(bytes.subarray(0, half), { binary: false, fin: false });
              socket.send(index % 3 === 0 ? bytes.subarray(half) : bytes, { binary: index % 3 === 1 });
            }
            if (messages.length > 0) await all;
            assert.deepEqual(received, messages);
            const closed = once(socket, "close");
            socket.close(1000);
            assert.equal((await closed)[0], 1000);
          },
        ),
        { numRuns: 15 },
      );
    });

    test("replies to a ping, and closes with 1009 after a message above the limit", async () => {
      const port = await serve(echo);
      const socket = new WebSocket(`ws://127.0.0.1:${port}/`);
      await once(socket, "open");
      socket.ping("hello");
      assert.equal(String((await once(socket, "pong"))[0]), "hello");
      const closed = once(socket, "close");
      socket.send("x".repeat(300_001));
      assert.equal((await closed)[0], 1009);
    });
  });
