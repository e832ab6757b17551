/** HTTP and WebSocket access to a server with a web console, over the addon's sockets and Node's. */
import assert from "node:assert/strict";
import { writeFileSync } from "node:fs";
import { connect, type Socket } from "node:net";
import { join } from "node:path";
import { after, describe, test } from "node:test";
import { systemClock } from "../../../src/async/clock.ts";
import { nodeSocketProvider } from "../../../src/connection/socket-provider.ts";
import { createLocalHost } from "../../../src/host/local-host.ts";
import { parseAuthFlags } from "../../../src/server/auth/auth-config.ts";
import { Authenticator } from "../../../src/server/auth/authenticator.ts";
import { LOCAL_PRINCIPAL, type Principal } from "../../../src/server/auth/principal.ts";
import type { WebSocketAuth } from "../../../src/server/auth/websocket-auth.ts";
import {
  CONSOLE_SESSION_VALID_MS,
  ConsoleAuth,
  LOGIN_TOKEN_VALID_MS,
} from "../../../src/server/console/console-auth.ts";
import { HTTP_TIMEOUTS, type HttpTimeouts } from "../../../src/server/console/console-http-server.ts";
import { ExecServer } from "../../../src/server/exec-server.ts";
import type { FdQuota } from "../../../src/server/listen/fd-quota.ts";
import { listen } from "../../../src/server/listen/listen.ts";
import { WebSocketGateway } from "../../../src/server/listen/websocket-gateway.ts";
import { ServerMetrics } from "../../../src/server/observability/server-metrics.ts";
import { ManualClock } from "../../support/manual-clock.ts";
import { scratchDirectory } from "../../support/servers/serve.ts";
import { tcpPort } from "../../support/servers/websocket-server.ts";
import { until } from "../../support/system/until.ts";

const scratch = scratchDirectory();
after(() => scratch[Symbol.dispose]());
const PAGE = "<!doctype html><title>page</title>";
writeFileSync(join(scratch.path, "index.html"), PAGE);
writeFileSync(join(scratch.path, "app.js"), "void 0;".repeat(500));
writeFileSync(join(scratch.path, "secret.txt"), "not a page's file");

interface Answer {
  status: number;
  headers: Map<string, string>;
  body: string;
}

/** A connection that sends requests unchanged and reads responses by their length. */
class RawHttp {
  readonly socket: Socket;
  /** By the server. */
  isClosed = false;
  #text = "";

  constructor(port: number) {
    this.socket = connect(port, "127.0.0.1");
    this.socket.on("data", (chunk: Buffer) => {
      this.#text += chunk.toString("latin1");
    });
    this.socket.on("error", () => {
      this.isClosed = true;
    });
    this.socket.on("end", () => {
      this.isClosed = true;
    });
  }

  async send(request: string): Promise<Answer> {
    this.socket.write(request);
    await until("a head", () => this.#text.includes("\r\n\r\n") || this.socket.destroyed);
    const [head = "", ...rest] = this.#text.split("\r\n\r\n");
    const [first = "", ...lines] = head.split("\r\n");
    const headers = new Map(
      lines.map((line) => {
        const at = line.indexOf(":");
        return [line.slice(0, at).toLowerCase(), line.slice(at + 1).trim()] as const;
      }),
    );
    const length = Number(headers.get("content-length") ?? 0);
    const body = () => this.#text.slice(head.length + 4);
    await until("the body", () => body().length >= length || this.socket.destroyed);
    const whole = rest.join("\r\n\r\n").slice(0, length) || body().slice(0, length);
    this.#text = body().slice(length);
    return { status: Number(first.split(" ")[1]), headers, body: whole };
  }
}

async function open(
  useNode: boolean,
  auth: WebSocketAuth = { type: "none" },
  more: object = {},
  metrics?: ServerMetrics,
) {
  const host = createLocalHost();
  const server = new ExecServer({ ...host, metrics, sockets: useNode ? nodeSocketProvider : host.sockets });
  const listening = await listen(
    server,
    { type: "websocket", host: "127.0.0.1", port: 0 },
    { auth, web: { directory: scratch.path, allowOrigins: ["https://console.example"] }, ...more },
  );
  const { port } = new URL(listening.url);
  const sockets: Socket[] = [];
  return {
    port: Number(port),
    listening,
    http: () => {
      const raw = new RawHttp(Number(port));
      sockets.push(raw.socket);
      return raw;
    },
    async [Symbol.asyncDispose]() {
      for (const socket of sockets) socket.destroy();
      const closed = listening.close();
      await server.close();
      listening.destroyPending();
      await closed;
    },
  };
}

/** A gateway with low limits and short timeouts, on the sockets of a real server. */
async function openNarrow(useNode: boolean, { timeouts, shares = {}, metrics }: NarrowOptions = {}) {
  const host = createLocalHost();
  const server = new ExecServer({ ...host, metrics, sockets: useNode ? nodeSocketProvider : host.sockets });
  const gateway = new WebSocketGateway(
    server,
    {
      auth: new Authenticator({ type: "none" }),
      anonymousPrincipal: () => LOCAL_PRINCIPAL,
      allowedHosts: new Set(),
      web: { directory: scratch.path },
      httpTimeouts: timeouts && { ...HTTP_TIMEOUTS, ...timeouts, checkIntervalMs: 10 },
    },
    server.sockets.codec,
    systemClock,
    { pendingSockets: 1000, connections: 1000, ...shares },
  );
  const listener = await server.sockets.listenAt({ host: "127.0.0.1", port: 0 }, (socket) => {
    gateway.handleSocket(socket);
    void socket.closed.then(() => closed++);
  });
  const listening = gateway.attachListener(listener, `ws://127.0.0.1:${listener.port}`);
  const sockets: Socket[] = [];
  let closed = 0;
  return {
    /** Connections that the server has closed. */
    closed: () => closed,
    http: () => {
      const raw = new RawHttp(tcpPort(listener));
      sockets.push(raw.socket);
      return raw;
    },
    async [Symbol.asyncDispose]() {
      const allClosed = listening.close();
      await server.close();
      listening.destroyPending();
      // HTTP connections are closed too, without their peers' help.
      await allClosed;
      for (const socket of sockets) socket.destroy();
    },
  };
}

interface NarrowOptions {
  timeouts?: Partial<HttpTimeouts> | undefined;
  shares?: Partial<FdQuota> | undefined;
  metrics?: ServerMetrics | undefined;
}

const get = (path: string, more = "") => `GET ${path} HTTP/1.1\r\nhost: 127.0.0.1\r\n${more}\r\n`;
const post = (path: string, body: string, more = "") =>
  `POST ${path} HTTP/1.1\r\nhost: 127.0.0.1\r\ncontent-length: ${body.length}\r\n${more}\r\n${body}`;
const UPGRADE =
  "connection: upgrade\r\nupgrade: websocket\r\nsec-websocket-version: 13\r\nsec-websocket-key: AAAAAAAAAAAAAAAAAAAAAA==\r\n";
/** A short message as a client sends it. */
const webSocketText = (text: string) =>
  Buffer.concat([Buffer.from([0x81, 0x80 | text.length, 0, 0, 0, 0]), Buffer.from(text)]);
const ORIGIN = "origin: http://127.0.0.1\r\n";
const tokenIn = (url: string | null) => new URL(url ?? "").hash.replace("#token=", "");
/** Secret of the console session in the response to a sign-in. */
const secretIn = ({ body }: Answer): string => JSON.parse(body).secret;
const bearer = (secret: string) => `authorization: Bearer ${secret}\r\n`;
const offer = (token: string, first = "procwire.v1, ") =>
  `sec-websocket-protocol: ${first}procwire.token.${Buffer.from(token).toString("base64url")}\r\n`;

for (const useNode of [false, true]) {
  describe(`a gateway with a web console, over ${useNode ? "Node's sockets" : "the addon's sockets"}`, () => {
    test("counts rejected requests, also on kept-alive connections", async () => {
      const metrics = new ServerMetrics();
      await using gateway = await open(useNode, undefined, {}, metrics);
      const http = gateway.http();
      const statuses: number[] = [];
      const send = async (request: string) => void statuses.push((await http.send(request)).status);
      await send(get("/"));
      await send(get("/no-such-page"));
      await send(get("/api/me"));
      await send(get("/", "origin: https://evil.example\r\n"));
      await send("POST / HTTP/1.1\r\nhost: localhost\r\ncontent-length: 0\r\n\r\n");
      await send("no request at all\r\n\r\n");
      assert.deepEqual(statuses, [200, 404, 401, 403, 405, 400]);
      await until("all are counted", () => metrics.rejectionsByStatus.size === 5);
      const counted = [...metrics.rejectionsByStatus].toSorted(([one], [other]) => one - other);
      assert.deepEqual(counted, [
        [400, 1],
        [401, 1],
        [403, 1],
        [404, 1],
        [405, 1],
      ]);
    });

    test("serves several requests on one connection, and only the files of the console", async () => {
      await using gateway = await open(useNode);
      const http = gateway.http();
      const page = await http.send(get("/"));
      assert.equal(page.status, 200);
      assert.equal(page.body, PAGE);
      assert.match(page.headers.get("content-security-policy") ?? "", /^default-src 'none'; script-src 'self';/);
      assert.equal(page.headers.get("x-content-type-options"), "nosniff");
      const zipped = await http.send(get("/app.js", "accept-encoding: gzip\r\n"));
      assert.equal(zipped.headers.get("content-encoding"), "gzip");
      const etag = zipped.headers.get("etag");
      assert.equal((await http.send(get("/app.js", `if-none-match: ${etag}\r\n`))).status, 304);
      for (const path of ["/secret.txt", "/../package.json", "/%2e%2e/package.json", "/nothing"])
        assert.equal((await http.send(get(path))).status, 404, path);
      assert.equal((await http.send(get("/healthz"))).status, 200);
      const wrong = await http.send(post("/", "x"));
      assert.deepEqual([wrong.status, wrong.headers.get("allow")], [405, "GET, HEAD"]);
      assert.equal((await http.send(get("/metrics"))).status, 404);
    });

    test("accepts a head and a body that arrive byte by byte", async () => {
      await using gateway = await open(useNode);
      const http = gateway.http();
      const body = JSON.stringify({ token: tokenIn(gateway.listening.loginUrl()) });
      const request = post("/api/sign-in", body);
      for (const byte of request.slice(0, -1)) {
        http.socket.write(byte);
        await new Promise((resolve) => setImmediate(resolve));
      }
      assert.equal((await http.send(request.slice(-1))).status, 200);
    });

    test("exchanges the token of the login URL for a console session once", async () => {
      await using gateway = await open(useNode);
      const url = gateway.listening.loginUrl();
      assert.match(url ?? "", /^http:\/\/127\.0\.0\.1:\d+\/#token=[\w-]{32}$/);
      const body = JSON.stringify({ token: tokenIn(url) });
      const http = gateway.http();
      const signedIn = await http.send(post("/api/sign-in", body));
      assert.equal(signedIn.status, 200);
      // Browsers share cookies between all ports of a host.
      assert.equal(signedIn.headers.get("set-cookie"), undefined);
      const secret = secretIn(signedIn);
      assert.match(secret, /^console-[\w-]{32}$/);
      assert.deepEqual(JSON.parse((await http.send(get("/api/me", bearer(secret)))).body), LOCAL_PRINCIPAL);
      const again = await http.send(post("/api/sign-in", body));
      assert.equal(again.status, 401);
      assert.match(again.body, /already used or expired; run `procwire console`/);
      assert.equal((await http.send(post("/api/sign-out", "", bearer(secret)))).status, 204);
      assert.equal((await http.send(get("/api/me", bearer(secret)))).status, 401);
      for (const bad of ["", "{}", '{"token":1}', "x".repeat(20_000)])
        assert.equal((await http.send(post("/api/sign-in", bad))).status, 400);
    });

    test("accepts a page only with its console session and the server's own origin", async () => {
      await using gateway = await open(useNode);
      const secret = secretIn(
        await gateway
          .http()
          .send(post("/api/sign-in", JSON.stringify({ token: tokenIn(gateway.listening.loginUrl()) }))),
      );
      const send = async (more: string) => gateway.http().send(get("/", UPGRADE + more));
      const cases: [string, number][] = [
        [ORIGIN + offer(secret), 101],
        // A TLS proxy in front of the server.
        [`origin: https://127.0.0.1\r\n${offer(secret)}`, 101],
        // Programs without an origin need no session.
        ["", 101],
        [ORIGIN, 401],
        [ORIGIN + offer(secret.slice(0, -1)), 401],
        [ORIGIN + offer(`x${secret}`), 401],
        [`${ORIGIN}cookie: procwire_${gateway.port}=${secret}\r\n`, 401],
        [`origin: http://127.0.0.1:${gateway.port + 1}\r\n${offer(secret)}`, 403],
        [`origin: http://evil.example\r\n${offer(secret)}`, 403],
        // A page of another allowed origin cannot use this server's console sessions.
        [`origin: https://console.example\r\n${offer(secret)}`, 401],
      ];
      for (const [more, status] of cases) assert.equal((await send(more)).status, status, more);
      const refused = await send("origin: http://evil.example\r\n");
      assert.match(refused.body, /`--allow-origin ORIGIN`/);
    });

    test("accepts a token as a subprotocol, and selects only an offered subprotocol", async () => {
      const { auth, newToken = "" } = parseAuthFlags({ wsAuth: "auto" });
      await using gateway = await open(useNode, auth);
      const send = async (more: string) => gateway.http().send(get("/", UPGRADE + more));
      const right = await send(ORIGIN + offer(newToken));
      assert.equal(right.status, 101);
      assert.equal(right.headers.get("sec-websocket-protocol"), "procwire.v1");
      const bare = await send(ORIGIN + offer(newToken, ""));
      assert.equal(bare.status, 101);
      assert.equal(bare.headers.get("sec-websocket-protocol"), undefined);
      assert.equal((await send(`origin: https://console.example\r\n${offer(newToken)}`)).status, 101);
      assert.equal((await send(ORIGIN + offer("wrong"))).status, 401);
      assert.equal((await send(`${ORIGIN}authorization: Bearer ${newToken}\r\n`)).status, 101);
      // A WebSocket token can be exchanged too, any number of times.
      for (let n = 0; n < 2; n++) {
        const http = gateway.http();
        assert.equal((await http.send(post("/api/sign-in", JSON.stringify({ token: newToken })))).status, 200);
      }
    });

    test("applies the same checks to a WebSocket on a kept-alive connection", async () => {
      await using gateway = await open(useNode);
      const http = gateway.http();
      const secret = secretIn(
        await http.send(post("/api/sign-in", JSON.stringify({ token: tokenIn(gateway.listening.loginUrl()) }))),
      );
      const refused = gateway.http();
      assert.equal((await refused.send(get("/"))).status, 200);
      assert.equal((await refused.send(get("/", UPGRADE + ORIGIN))).status, 401);
      const foreign = gateway.http();
      assert.equal((await foreign.send(get("/"))).status, 200);
      assert.equal((await foreign.send(get("/", `${UPGRADE}origin: http://evil.example\r\n`))).status, 403);
      assert.equal((await http.send(get("/", UPGRADE + ORIGIN + offer(secret)))).status, 101);
      let received = Buffer.alloc(0);
      http.socket.on("data", (chunk: Buffer) => {
        received = Buffer.concat([received, chunk]);
      });
      http.socket.write(webSocketText('{"id":1,"method":"initialize","params":{"clientName":"page"}}'));
      await until("an answer", () => received.includes("sessionId"));
    });

    test("closes the oldest idle kept-alive connection above the limit", async () => {
      await using gateway = await openNarrow(useNode, { shares: { pendingSockets: 4 } });
      const idle: RawHttp[] = [];
      for (let n = 0; n < 4; n++) {
        const http = gateway.http();
        assert.equal((await http.send(get("/"))).status, 200);
        idle.push(http);
      }
      const last = gateway.http();
      assert.equal((await last.send(get("/"))).status, 200);
      await until("the oldest is closed", () => idle[0]?.isClosed === true);
      assert.deepEqual(
        idle.map(({ isClosed }) => isClosed),
        [true, false, false, false],
      );
      assert.equal((await last.send(get("/"))).status, 200);
    });

    test("applies the connection limit to a WebSocket on a kept-alive connection", async () => {
      await using gateway = await openNarrow(useNode, { shares: { connections: 1 } });
      const send = async () => {
        const http = gateway.http();
        assert.equal((await http.send(get("/"))).status, 200);
        return (await http.send(get("/", UPGRADE))).status;
      };
      assert.equal(await send(), 101);
      assert.equal(await send(), 503);
    });

    test("closes a connection that is idle after its response, but not a WebSocket on such a connection", async () => {
      await using gateway = await openNarrow(useNode, { timeouts: { keepAliveMs: 300, stalledMs: 300 } });
      let webSocket: RawHttp;
      // On a busy machine the second request may come after the time of the first.
      do {
        webSocket = gateway.http();
        await webSocket.send(get("/"));
      } while ((await webSocket.send(get("/", UPGRADE))).status !== 101);
      const idle = gateway.http();
      assert.equal((await idle.send(get("/"))).status, 200);
      await until("the idle one is closed", () => idle.isClosed);
      let received = Buffer.alloc(0);
      webSocket.socket.on("data", (chunk: Buffer) => {
        received = Buffer.concat([received, chunk]);
      });
      webSocket.socket.write(webSocketText('{"id":1,"method":"initialize","params":{"clientName":"page"}}'));
      await until("an answer", () => received.includes("sessionId"));
    });

    test("closes a connection whose second request never ends, even if it keeps sending", async () => {
      await using gateway = await openNarrow(useNode, { timeouts: { headMs: 200, requestMs: 400 } });
      const slow = gateway.http();
      await slow.send(get("/"));
      slow.socket.write("GET / HTTP/1.1\r\nhost: 127.0.0.1\r\n");
      const slowBody = gateway.http();
      slowBody.socket.write(post("/api/sign-in", "x").replace("length: 1", "length: 10000"));
      await until("both are closed", () => {
        slow.socket.write("x: y\r\n");
        slowBody.socket.write("x");
        return slow.isClosed && slowBody.isClosed;
      });
    });

    test("closes a connection that does not read its responses", async () => {
      await using gateway = await openNarrow(useNode, {
        timeouts: { stalledMs: 300, headMs: 600_000, requestMs: 600_000 },
      });
      const http = gateway.http();
      await http.send(get("/"));
      http.socket.pause();
      // Tens of megabytes are requested, more than the socket buffers hold.
      http.socket.write(get("/app.js").repeat(20_000));
      await until("it is closed", () => gateway.closed() === 1);
    });

    test("serves /metrics only to operators when the console is disabled", async () => {
      const operator = "o".repeat(40);
      const file = join(scratch.path, `operator-${useNode}`);
      writeFileSync(file, operator, { mode: 0o600 });
      const { auth, newToken } = parseAuthFlags({ wsAuth: "auto", operatorTokenFile: file });
      await using gateway = await open(useNode, auth, { web: { directory: null } }, new ServerMetrics());
      assert.equal(gateway.listening.loginUrl(), null);
      const http = gateway.http();
      assert.equal((await http.send(get("/"))).status, 404);
      for (const [more, status] of [
        ["", 401],
        [`authorization: Bearer ${newToken}\r\n`, 401],
        [`authorization: Bearer ${operator}\r\n`, 200],
      ] as const) {
        assert.equal((await http.send(get("/metrics", more))).status, status, more);
      }
    });

    test("rejects foreign hosts and sandboxed peers before serving any page", async () => {
      await using gateway = await open(useNode);
      const http = gateway.http();
      const answer = await http.send("GET / HTTP/1.1\r\nhost: rebound.example\r\n\r\n");
      assert.equal(answer.status, 403);
      assert.match(answer.body, /--allow-host/);
      const connection = gateway.http();
      assert.equal((await connection.send(get("/"))).status, 200);
      // Every request of a connection passes the same checks.
      assert.equal((await connection.send("GET / HTTP/1.1\r\nhost: rebound.example\r\n\r\n")).status, 403);
      assert.equal((await connection.send(get("/", "origin: http://evil.example\r\n"))).status, 403);
      assert.equal((await connection.send(post("/api/sign-in", "{}", "origin: http://evil.example\r\n"))).status, 403);
    });
  });
}

describe("console sessions", () => {
  const none = new Authenticator({ type: "none" });
  const signIn = async (access: ConsoleAuth, principal: Principal = LOCAL_PRINCIPAL, device?: string) =>
    (await access.signIn(access.newLoginToken(principal), none, device)) ?? assert.fail("not signed in");

  test("expire, and the oldest is removed above the limit", async () => {
    const clock = new ManualClock();
    const access = new ConsoleAuth(clock);
    const token = access.newLoginToken(LOCAL_PRINCIPAL);
    await clock.advance(LOGIN_TOKEN_VALID_MS);
    assert.equal(await access.signIn(token, none), null);
    const secret = await signIn(access);
    const closed: string[] = [];
    access.onEnd(secret, (reason) => closed.push(reason));
    await clock.advance(CONSOLE_SESSION_VALID_MS - 1);
    assert.deepEqual(access.principalOf(secret), LOCAL_PRINCIPAL);
    await clock.advance(1);
    assert.equal(access.principalOf(secret), null);
    assert.deepEqual(closed, ["the console session has expired"]);
    const first = await signIn(access);
    for (let n = 0; n < 100; n++) await signIn(access);
    assert.equal(access.principalOf(first), null);
  });

  test("of one principal do not sign out another principal", async () => {
    const access = new ConsoleAuth(new ManualClock());
    const other: Principal = { id: "jwt:other", role: "user" };
    const secret = await signIn(access, other);
    for (let n = 0; n < 200; n++) await signIn(access);
    assert.deepEqual(access.principalOf(secret), other);
    access.signOutEverywhere(LOCAL_PRINCIPAL);
    assert.deepEqual(access.principalOf(secret), other);
    assert.deepEqual(access.devices(LOCAL_PRINCIPAL, undefined), []);
  });

  test("above the limit of the server sign out the principal with most sessions", async () => {
    const access = new ConsoleAuth(new ManualClock());
    const operator: Principal = { id: "operator", role: "operator" };
    const secret = await signIn(access, operator);
    for (let user = 0; user < 12; user++)
      for (let n = 0; n < 100; n++) await signIn(access, { id: `jwt:${user}`, role: "user" });
    assert.deepEqual(access.principalOf(secret), operator);
  });

  test("are listed with their devices, and end one by one or all at once", async () => {
    const clock = new ManualClock();
    const access = new ConsoleAuth(clock);
    const laptop = await signIn(access, LOCAL_PRINCIPAL, "laptop");
    const phone = await signIn(access, LOCAL_PRINCIPAL, "phone".repeat(1000));
    const unused = access.newLoginToken(LOCAL_PRINCIPAL);
    const listed = access.devices(LOCAL_PRINCIPAL, laptop);
    assert.deepEqual(
      listed.map(({ device, isCurrent }) => [device.slice(0, 6), device.length, isCurrent]),
      [
        ["laptop", 6, true],
        ["phonep", 200, false],
      ],
    );
    const closed: string[] = [];
    access.onEnd(phone, (reason) => closed.push(reason));
    const id = listed[1]?.id ?? 0;
    assert.equal(access.signOutDevice({ id: "jwt:other", role: "user" }, id), false);
    assert.equal(access.signOutDevice(LOCAL_PRINCIPAL, id), true);
    assert.equal(access.signOutDevice(LOCAL_PRINCIPAL, id), false);
    assert.deepEqual(closed, ["signed out on another device"]);
    assert.equal(
      access.onEnd(phone, () => undefined),
      null,
    );
    access.signOutEverywhere(LOCAL_PRINCIPAL);
    assert.equal(access.principalOf(laptop), null);
    // A link that was created before is void too.
    assert.equal(await access.signIn(unused, none), null);
  });
});

test("signing out everywhere closes the WebSockets of all devices, and a device link signs in once", async () => {
  await using gateway = await open(false);
  const http = gateway.http();
  const signIn = async (token: string) => secretIn(await http.send(post("/api/sign-in", JSON.stringify({ token }))));
  const laptop = await signIn(tokenIn(gateway.listening.loginUrl()));
  const link = JSON.parse((await http.send(post("/api/devices/link", "", bearer(laptop)))).body);
  assert.equal(link.validMs, LOGIN_TOKEN_VALID_MS);
  const phone = await signIn(link.token);
  const { devices } = JSON.parse((await http.send(get("/api/devices", bearer(phone)))).body);
  assert.deepEqual(
    devices.map(({ isCurrent }: { isCurrent: boolean }) => isCurrent),
    [false, true],
  );
  const sockets = [laptop, phone].map((secret) => ({ secret, raw: gateway.http() }));
  for (const { secret, raw } of sockets)
    assert.equal((await raw.send(get("/", UPGRADE + ORIGIN + offer(secret)))).status, 101);
  for (const path of ["/api/devices", "/api/me"]) assert.equal((await http.send(get(path))).status, 401);
  for (const path of ["/api/devices/link", "/api/devices/sign-out", "/api/sign-out-everywhere"])
    assert.equal((await http.send(post(path, ""))).status, 401);
  const missing = await http.send(post("/api/devices/sign-out", '{"id":99}', bearer(phone)));
  assert.deepEqual([missing.status, missing.body], [404, "no signed-in device has the number 99\n"]);
  assert.equal((await http.send(post("/api/devices/sign-out", "{}", bearer(phone)))).status, 400);
  assert.equal((await http.send(post("/api/sign-out-everywhere", "", bearer(phone)))).status, 204);
  await until("both WebSockets are closed", () => sockets.every(({ raw }) => raw.isClosed));
  for (const { secret } of sockets) assert.equal((await http.send(get("/api/me", bearer(secret)))).status, 401);
});
