import assert from "node:assert/strict";
import { once } from "node:events";
import { createServer as createHttpServer, type Server as HttpServer, type IncomingMessage } from "node:http";
import { type AddressInfo, createServer, Server, type Socket } from "node:net";
import { after, before, describe, test } from "node:test";
import { NetworkProxy, type NetworkProxyOptions } from "../../src/network/network-proxy.ts";
import type { NetworkDecision, NetworkPolicy } from "../../src/protocol/network/network-schemas.ts";
import { ManualClock } from "../support/manual-clock.ts";
import { policy } from "../support/network/network-config.ts";
import { exchange, openConnection, parseResponse, socksConnect } from "../support/network/proxy-client.ts";
import { until } from "../support/system/until.ts";

/** Listens on loopback and returns the port. */
async function listen(server: Server | HttpServer): Promise<number> {
  server.listen(0, "127.0.0.1");
  await once(server, "listening");
  return (server.address() as AddressInfo).port;
}

const seen: { method: string; url: string; headers: IncomingMessage["headers"]; body: string }[] = [];
const web = createHttpServer((request, response) => {
  let body = "";
  request.setEncoding("latin1");
  request.on("data", (text) => {
    body += text;
  });
  request.on("end", () => {
    seen.push({ method: request.method ?? "", url: request.url ?? "", headers: request.headers, body });
    response.writeHead(200, { "x-from": "web", connection: "x-hop", "x-hop": "1", "proxy-test": "1" });
    response.end(`hello ${request.method} ${request.url} ${body.length}`);
  });
});
const echo = createServer({ allowHalfOpen: true }, (socket) => {
  socket.on("error", () => undefined);
  socket.pipe(socket);
});
let webPort = 0;
let echoPort = 0;
let refusedPort = 0;

before(async () => {
  webPort = await listen(web);
  echoPort = await listen(echo);
  const closed = createServer();
  refusedPort = await listen(closed);
  closed.close();
});
after(() => {
  web.closeAllConnections();
  web.close();
  echo.close();
});

/** A server that accepts connections and never responds. */
async function startSilentServer(): Promise<Disposable & { port: number; open: ReadonlySet<Socket> }> {
  const open = new Set<Socket>();
  const server = createServer((socket) => {
    open.add(socket);
    socket.on("error", () => undefined);
    socket.on("close", () => open.delete(socket));
    socket.resume();
  });
  const port = await listen(server);
  return { port, open, [Symbol.dispose]: () => void server.close() };
}

/** Sends a request, and disconnects once the server is connected. Resolves when the server is disconnected too. */
async function abandonRequest(proxyPort: number, request: string, open: ReadonlySet<Socket>): Promise<void> {
  const requester = await openConnection(proxyPort);
  requester.write(request);
  await until("the server is connected", () => open.size === 1);
  requester.resetAndDestroy();
  await until("the server is disconnected", () => open.size === 0);
}

interface Proxy extends AsyncDisposable {
  http: number;
  socks: number;
  decisions: NetworkDecision[];
  lookups: string[];
  close(): void;
}

/** Names below `test.` resolve to loopback. With `allowLocalBinding` the allow patterns decide about them. */
async function startProxy(
  changes: Partial<NetworkPolicy>,
  options: Partial<NetworkProxyOptions> = {},
  addresses: readonly string[] = ["127.0.0.1"],
): Promise<Proxy> {
  const decisions: NetworkDecision[] = [];
  const lookups: string[] = [];
  const proxy = new NetworkProxy({
    processId: "p",
    config: { proxy: policy({ allowLocalBinding: true, ...changes }) },
    onDecision: (decision) => decisions.push(decision),
    isOwnListener: () => false,
    lookup: async (host) => {
      lookups.push(host);
      return addresses;
    },
    ...options,
  });
  const ports = await proxy.listen();
  return {
    http: ports.http,
    socks: ports.socks ?? 0,
    decisions,
    lookups,
    close: () => proxy.close(),
    [Symbol.asyncDispose]: async () => proxy.close(),
  };
}

const get = (url: string, headers = "", method = "GET") =>
  `${method} ${url} HTTP/1.1\r\n${headers}Connection: close\r\n\r\n`;
const allowGood = { domains: { "good.test": "allow", "*.good.test": "allow", "bad.good.test": "deny" } } as const;

describe("HTTP listener", () => {
  test("forwards absolute form, and removes headers of one connection in both directions", async () => {
    await using proxy = await startProxy(allowGood);
    const headers = `Host: good.test:${webPort}\r\nConnection: x-drop\r\nX-Drop: 1\r\nX-Keep: 1\r\nProxy-Authorization: a\r\nTE: trailers\r\nUpgrade: websocket\r\n`;
    const text = await exchange(proxy.http, `GET http://good.test:${webPort}/x?y=1 HTTP/1.0\r\n${headers}\r\n`);
    const { status, headers: received, body } = parseResponse(text);
    assert.equal(status, "HTTP/1.1 200 OK");
    assert.equal(body, "hello GET /x?y=1 0");
    assert.equal(received["x-from"], "web");
    assert.equal(received["x-hop"], undefined);
    assert.equal(received["proxy-test"], undefined);
    const last = seen.at(-1);
    assert.equal(last?.url, "/x?y=1");
    assert.equal(last?.headers["x-keep"], "1");
    for (const name of ["x-drop", "proxy-authorization", "te", "upgrade"])
      assert.equal(last?.headers[name], undefined, name);
    assert.equal(last?.headers.host, `good.test:${webPort}`);
    assert.equal(proxy.decisions.length, 1);
    const [decision] = proxy.decisions;
    assert.match(decision?.client ?? "", /^127\.0\.0\.1:\d+$/);
    assert.match(decision?.timestamp ?? "", /^\d{4}-\d\d-\d\dT[\d:.]+Z$/);
    assert.deepEqual(
      { ...decision, client: "", timestamp: "" },
      {
        ...{ timestamp: "", scope: "domain", decision: "allow", source: "baseline_policy", reason: "allow" },
        ...{ protocol: "http", host: "good.test", port: webPort, method: "GET", client: "", policyOverride: false },
      },
    );
  });

  test("continues after connections that the system did not accept", async (t) => {
    const listening = t.mock.method(Server.prototype, "listen");
    await using proxy = await startProxy(allowGood);
    const [server = assert.fail()] = listening.mock.calls.map(({ this: listener }) => listener as Server);
    for (let count = 0; count < 2; count++)
      server.emit("error", Object.assign(new Error("accept"), { code: "ENFILE" }));
    const response = await exchange(proxy.http, get(`http://good.test:${webPort}/`));
    assert.match(response, /^HTTP\/1\.1 200 /);
  });

  test("forwards origin form by its Host header", async () => {
    await using proxy = await startProxy(allowGood);
    const text = await exchange(proxy.http, get("/origin", `Host: GOOD.test.:${webPort}\r\n`));
    assert.match(text, /hello GET \/origin 0/);
  });

  test("streams request bodies with a length and in chunks", async () => {
    await using proxy = await startProxy(allowGood);
    const url = `http://good.test:${webPort}/post`;
    const sized = await exchange(proxy.http, `${get(url, "Content-Length: 5\r\n", "POST")}hello`);
    assert.match(sized, /hello POST \/post 5/);
    const chunked = await exchange(
      proxy.http,
      `${get(url, "Transfer-Encoding: chunked\r\n", "PUT")}3\r\nabc\r\n2\r\nde\r\n0\r\n\r\n`,
    );
    assert.match(chunked, /hello PUT \/post 5/);
    const empty = await exchange(proxy.http, get(url, "", "POST"));
    assert.match(empty, /hello POST \/post 0/);
    assert.equal(seen.at(-1)?.headers["content-length"], "0");
    const large = await exchange(
      proxy.http,
      `${get(url, `Content-Length: ${3 << 20}\r\n`, "POST")}${"x".repeat(3 << 20)}`,
    );
    assert.match(large, /hello POST \/post 3145728/);
  });

  test("checks every request of a connection, also pipelined ones", async () => {
    await using proxy = await startProxy(allowGood);
    const url = (host: string, path: string) => `http://${host}:${webPort}${path}`;
    const first = `GET ${url("good.test", "/1")} HTTP/1.1\r\n\r\n`;
    const text = await exchange(proxy.http, `${first}${first}${get(url("other.test", "/2"))}`);
    assert.equal(text.match(/HTTP\/1\.1 200 OK/g)?.length, 2);
    assert.match(text, /HTTP\/1\.1 403 Forbidden.*"host":"other\.test"/s);
    assert.deepEqual(proxy.decisions.map(({ reason }) => reason).sort(), ["allow", "allow", "not_allowed"]);
  });

  test("responds to blocked requests with 403 and the JSON of Codex", async () => {
    await using proxy = await startProxy({ ...allowGood, allowLocalBinding: false }, {}, ["10.1.2.3"]);
    const cases: [host: string, error: string, reason: string, message: string][] = [
      ["other.test", "blocked-by-allowlist", "not_allowed", "Domain not in allowlist."],
      ["bad.good.test", "blocked-by-denylist", "denied", "Domain denied by the sandbox policy."],
      [
        ...(["10.1.2.3", "blocked-by-allowlist", "not_allowed_local"] as const),
        "Sandbox policy blocks local/private network addresses.",
      ],
      [
        ...(["good.test", "blocked-by-allowlist", "not_allowed_local"] as const),
        "Sandbox policy blocks local/private network addresses.",
      ],
    ];
    for (const [host, error, reason, message] of cases) {
      const { status, headers, body } = parseResponse(await exchange(proxy.http, get(`http://${host}/`)));
      assert.equal(status, "HTTP/1.1 403 Forbidden");
      assert.equal(headers["content-type"], "application/json");
      assert.equal(headers["x-proxy-error"], error);
      assert.equal(
        body,
        `{"status":"blocked","host":"${host}","reason":"${reason}","decision":"deny","source":"baseline_policy","protocol":"http","port":80,"message":"${message}"}`,
      );
    }
    assert.deepEqual(proxy.lookups, ["good.test"], "blocked names are not looked up");
  });

  const bad: [title: string, request: string, status: string, body: string][] = [
    [
      "Host header of another host",
      get("http://good.test/", "Host: other.test\r\n"),
      "400 Bad Request",
      "Host header does not match request target",
    ],
    [
      "Host header of another port",
      get("http://good.test:81/", "Host: good.test\r\n"),
      "400 Bad Request",
      "Host header does not match request target",
    ],
    [
      "two Host headers",
      get("http://good.test/", "Host: good.test\r\nHost: good.test\r\n"),
      "400 Bad Request",
      "invalid Host header",
    ],
    [
      "IPv6 Host header without a port",
      get("http://[2606:4700::1]/", "Host: [2606:4700::1]\r\n"),
      "400 Bad Request",
      "invalid Host header",
    ],
    [
      "Host header with another dot",
      get("http://good.test/", "Host: good.test.\r\n"),
      "400 Bad Request",
      "Host header does not match request target",
    ],
    ["HTTP/0.9", "GET http://good.test/\r\n\r\n", "400 Bad Request", "unsupported HTTP version"],
    ["no host", get("/x"), "400 Bad Request", "missing host"],
    ["a user in the URL", get("http://good.test@other.test/"), "400 Bad Request", "invalid request target"],
    ["another scheme", get("ftp://good.test/"), "400 Bad Request", "invalid request target"],
    [
      "a transfer coding before chunked",
      `${get("http://good.test/", "Transfer-Encoding: gzip, chunked\r\n", "POST")}0\r\n\r\n`,
      "400 Bad Request",
      "unsupported transfer encoding",
    ],
    [
      "x-unix-socket",
      get("http://good.test/", "x-unix-socket: /run/x.sock\r\n"),
      "501 Not Implemented",
      "unix sockets unsupported",
    ],
  ];
  for (const [title, request, status, body] of bad)
    test(`rejects ${title} with ${status}`, async () => {
      await using proxy = await startProxy(allowGood);
      const response = parseResponse(await exchange(proxy.http, request));
      assert.equal(response.status, `HTTP/1.1 ${status}`);
      assert.equal(response.body, body);
    });

  const smuggled: [title: string, headers: string][] = [
    ["Content-Length and Transfer-Encoding", "Content-Length: 4\r\nTransfer-Encoding: chunked\r\n"],
    ["two different Content-Length headers", "Content-Length: 4\r\nContent-Length: 5\r\n"],
    ["an invalid Content-Length", "Content-Length: +4\r\n"],
    ["a space before the colon", "Content-Length : 4\r\n"],
    ["a folded header", "X-A: 1\r\n Content-Length: 4\r\n"],
    ["a header above the limit", `X-A: ${"a".repeat(70_000)}\r\n`],
  ];
  for (const [title, headers] of smuggled)
    test(`rejects ${title} without a connection to the destination`, async () => {
      await using proxy = await startProxy(allowGood);
      const text = await exchange(proxy.http, get(`http://good.test:${webPort}/`, headers, "POST"));
      assert.match(text, /^HTTP\/1\.1 4(?:00|31) /);
      assert.deepEqual(proxy.lookups, []);
    });

  test("responds with 502 if the destination refuses the connection", async () => {
    await using proxy = await startProxy(allowGood);
    const { status, body } = parseResponse(await exchange(proxy.http, get(`http://good.test:${refusedPort}/`)));
    assert.equal(status, "HTTP/1.1 502 Bad Gateway");
    assert.equal(body, "upstream failure");
  });

  test("responds with 502 if the destination of an https URL has no TLS", async () => {
    await using proxy = await startProxy(allowGood);
    const { status } = parseResponse(await exchange(proxy.http, get(`https://good.test:${echoPort}/`)));
    assert.equal(status, "HTTP/1.1 502 Bad Gateway");
  });

  test("closes connections that send no complete request within a minute, also between requests", async () => {
    const clock = new ManualClock();
    let accepted = 0;
    const isMember = async () => ++accepted > 0;
    await using proxy = await startProxy(allowGood, { clock, isMember });
    const head = "GET http://good.test/ HTTP/1.1\r\nX-A: ";
    const slow = [exchange(proxy.http, head), exchange(proxy.socks, Uint8Array.of(5))];
    const kept = await openConnection(proxy.http);
    kept.write(`GET http://good.test:${webPort}/kept HTTP/1.1\r\n\r\n`);
    await once(kept, "data");
    const tunnel = await openConnection(proxy.http);
    tunnel.write(`CONNECT good.test:${echoPort} HTTP/1.1\r\n\r\n`);
    await once(tunnel, "data");
    await until("four connections", () => accepted === 4);
    let closed = 0;
    for (const ended of [...slow, once(kept.resume(), "end")]) void ended.then(() => closed++);
    await clock.advance(59_000);
    assert.equal(closed, 0);
    await clock.advance(1000);
    await until("the others to close", () => closed === 3);
    assert.deepEqual(await Promise.all(slow), ["", ""]);
    tunnel.write("still open");
    assert.equal(String(await once(tunnel, "data")), "still open");
    kept.destroy();
    tunnel.destroy();
  });
});

describe("CONNECT", () => {
  test("opens a tunnel with half-closed streams", async () => {
    await using proxy = await startProxy(allowGood);
    const text = await exchange(proxy.http, `CONNECT good.test:${echoPort} HTTP/1.1\r\n\r\nping`, "close");
    assert.match(text, /^HTTP\/1\.1 200 OK\r\ndate: [^\r]+\r\n\r\nping$/);
    assert.equal(proxy.decisions[0]?.protocol, "https_connect");
    assert.equal(proxy.decisions[0]?.method, "CONNECT");
  });

  test("opens a tunnel whose head arrives in parts or has unusual headers", async () => {
    await using proxy = await startProxy(allowGood);
    const head = `CONNECT good.test:${echoPort} HTTP/1.1\r\nX-A: \xe9\r\n\r\nping`;
    for (let split = 1; split < head.length; split += 7) {
      const socket = await openConnection(proxy.http);
      let received = "";
      socket.on("data", (chunk) => {
        received += chunk;
      });
      socket.write(head.slice(0, split), "latin1");
      // The proxy has read the first part when it has answered another connection.
      await exchange(proxy.http, get("http://other.test/"));
      socket.end(head.slice(split), "latin1");
      await once(socket, "end");
      assert.match(received, /^HTTP\/1\.1 200 OK\r\n[\s\S]*\r\n\r\nping$/, `${split}`);
      socket.destroy();
    }
  });

  test("closes a connection that ends before its first byte", async () => {
    await using proxy = await startProxy(allowGood);
    assert.equal(await exchange(proxy.http, "", "close"), "");
  });

  test("responds with 200 before it connects, and closes if the destination refuses", async () => {
    await using proxy = await startProxy(allowGood);
    const text = await exchange(proxy.http, `CONNECT good.test:${refusedPort} HTTP/1.1\r\n\r\n`);
    assert.match(text, /^HTTP\/1\.1 200 OK\r\ndate: [^\r]+\r\n\r\n$/);
  });

  test("responds to blocked tunnels with 403 and the message", async () => {
    await using proxy = await startProxy(allowGood);
    const text = await exchange(proxy.http, "CONNECT other.test:443 HTTP/1.1\r\n\r\n");
    const { status, headers, body } = parseResponse(text);
    assert.equal(status, "HTTP/1.1 403 Forbidden");
    assert.equal(headers["content-type"], "text/plain");
    assert.equal(headers["x-proxy-error"], "blocked-by-allowlist");
    assert.equal(body, "Domain not in allowlist.");
  });

  test("closes open tunnels with the proxy", async () => {
    await using proxy = await startProxy(allowGood);
    const socket = await openConnection(proxy.http);
    socket.write(`CONNECT good.test:${echoPort} HTTP/1.1\r\n\r\n`);
    await once(socket, "data");
    proxy.close();
    socket.resume();
    await once(socket, "end");
    socket.destroy();
  });
});

describe("SOCKS5 listener", () => {
  test("connects by name after the destination has accepted", async () => {
    await using proxy = await startProxy(allowGood);
    const text = await exchange(
      proxy.socks,
      Buffer.concat([socksConnect("good.test", echoPort), Buffer.from("hi")]),
      "close",
    );
    assert.match(Buffer.from(text, "latin1").toString("hex"), /^0500050000017f000001[\da-f]{4}6869$/);
    assert.equal(proxy.decisions[0]?.protocol, "socks5_tcp");
    assert.equal("method" in (proxy.decisions[0] ?? {}) && proxy.decisions[0]?.method !== undefined, false);
  });

  const cases: [title: string, bytes: () => Uint8Array, reply: string][] = [
    ["a blocked host", () => socksConnect("other.test", 443), "050005020001000000000000"],
    ["a refused connection", () => socksConnect("good.test", refusedPort), "050005050001000000000000"],
    ["BIND", () => socksConnect("good.test", 443, 2), "050005070001000000000000"],
    ["UDP ASSOCIATE", () => socksConnect("good.test", 443, 3), "050005070001000000000000"],
    ["authentication only", () => Uint8Array.of(5, 1, 2), "05ff"],
  ];
  for (const [title, bytes, reply] of cases)
    test(`responds to ${title} with ${reply}`, async () => {
      await using proxy = await startProxy(allowGood);
      assert.equal(Buffer.from(await exchange(proxy.socks, bytes()), "latin1").toString("hex"), reply);
    });

  for (const [title, bytes] of [
    ["SOCKS4", Uint8Array.of(4, 1, 0, 80, 1, 2, 3, 4, 0)],
    ["HTTP", Buffer.from(get("http://good.test/"))],
  ] as const)
    test(`resets ${title}`, async () => {
      await using proxy = await startProxy(allowGood);
      assert.equal(await exchange(proxy.socks, bytes), "<ECONNRESET>");
    });

  test("has no port if the policy disables it", async () => {
    await using proxy = await startProxy({ ...allowGood, enableSocks5: false });
    assert.equal(proxy.socks, 0);
  });
});

describe("limited mode", () => {
  test("permits GET, HEAD and OPTIONS, and reports two decisions for other methods", async () => {
    await using proxy = await startProxy({ ...allowGood, mode: "limited" });
    for (const method of ["GET", "HEAD", "OPTIONS"])
      assert.match(await exchange(proxy.http, get(`http://good.test:${webPort}/`, "", method)), /^HTTP\/1\.1 200/);
    proxy.decisions.length = 0;
    const { headers, body } = parseResponse(await exchange(proxy.http, get("http://good.test/", "", "POST")));
    assert.equal(headers["x-proxy-error"], "blocked-by-method-policy");
    assert.match(body, /"reason":"method_not_allowed","decision":"deny","source":"mode_guard"/);
    assert.deepEqual(
      proxy.decisions.map(({ scope, source, reason }) => [scope, source, reason]),
      [
        ["domain", "baseline_policy", "allow"],
        ["non_domain", "mode_guard", "method_not_allowed"],
      ],
    );
  });

  test("blocks tunnels", async () => {
    await using proxy = await startProxy({ ...allowGood, mode: "limited" });
    const { headers, body } = parseResponse(await exchange(proxy.http, "CONNECT good.test:443 HTTP/1.1\r\n\r\n"));
    assert.equal(headers["x-proxy-error"], "blocked-by-mitm-required");
    assert.equal(body, "MITM required for limited HTTPS.");
    for (const port of [443, 80])
      assert.equal((await exchange(proxy.socks, socksConnect("good.test", port))).charCodeAt(3), 2);
    assert.deepEqual(
      proxy.decisions.map(({ protocol, reason }) => `${protocol} ${reason}`),
      [
        ...["https_connect allow", "https_connect mitm_required", "socks5_tcp allow", "socks5_tcp mitm_required"],
        "socks5_tcp method_not_allowed",
      ],
    );
  });
});

describe("questions", () => {
  const asking = (decide: NetworkProxyOptions["decide"]): Partial<NetworkProxyOptions> => ({
    config: { proxy: policy({ allowLocalBinding: true }), policyDecisionTimeoutMs: 60_000 },
    decide,
  });

  test("an allow answer permits one request, and the next request asks again", async () => {
    const asked: string[] = [];
    await using proxy = await startProxy(
      {},
      asking(async ({ protocol, host, port }) => {
        asked.push(`${protocol} ${host} ${port}`);
        return { type: "allow" };
      }),
    );
    for (let count = 0; count < 2; count++)
      assert.match(await exchange(proxy.http, get(`http://other.test:${webPort}/`)), /^HTTP\/1\.1 200/);
    assert.deepEqual(asked, [`http other.test ${webPort}`, `http other.test ${webPort}`]);
    assert.deepEqual(
      proxy.decisions.map(({ source, reason, policyOverride }) => [source, reason, policyOverride]),
      [
        ["decider", "not_allowed", true],
        ["decider", "not_allowed", true],
      ],
    );
  });

  test("a deny or ask answer blocks with its reason, an empty reason becomes policy_denied, and an error denies", async () => {
    const answers = [
      async () => ({ type: "deny", reason: "no" }) as const,
      async () => ({ type: "ask", reason: "needs_approval" }) as const,
      async () => ({ type: "deny", reason: "" }) as const,
      async () => Promise.reject(new Error("lost")),
    ];
    await using proxy = await startProxy(
      {},
      asking(() => answers.shift()?.() ?? Promise.reject(new Error("none"))),
    );
    for (let count = answers.length; count > 0; count--) await exchange(proxy.http, get("http://other.test/"));
    assert.deepEqual(
      proxy.decisions.map(({ decision, source, reason }) => [decision, source, reason]),
      [
        ["deny", "decider", "no"],
        ["ask", "decider", "needs_approval"],
        ["deny", "decider", "policy_denied"],
        ["deny", "decider", "not_allowed"],
      ],
    );
    assert.deepEqual(proxy.lookups, []);
  });

  test("aborts the signal when the requester disconnects, and when the proxy closes", async () => {
    const signals: AbortSignal[] = [];
    const asked = [Promise.withResolvers<void>(), Promise.withResolvers<void>()];
    await using proxy = await startProxy(
      {},
      asking((_request, signal) => {
        asked[signals.push(signal) - 1]?.resolve();
        return new Promise(() => undefined);
      }),
    );
    const socket = await openConnection(proxy.http);
    socket.write(get("http://other.test/"));
    await asked[0]?.promise;
    socket.destroy();
    await once(signals[0] ?? assert.fail(), "abort");
    const second = exchange(proxy.socks, socksConnect("other.test", 80));
    await asked[1]?.promise;
    proxy.close();
    assert.equal(signals[1]?.aborted, true);
    await second;
  });
});

describe("limits", () => {
  test("resets connections above 2048, and accepts another one after one has closed", async () => {
    await using proxy = await startProxy(allowGood);
    let resets = 0;
    const sockets = await Promise.all(Array.from({ length: 2048 }, () => openConnection(proxy.http)));
    for (const socket of sockets) socket.on("error", () => resets++);
    assert.equal(await exchange(proxy.http, get("http://other.test/")), "<ECONNRESET>");
    sockets.pop()?.destroy();
    await until("room for a connection", async () =>
      (await exchange(proxy.http, get("http://other.test/"))).startsWith("HTTP/1.1 403 "),
    );
    assert.equal(resets, 0);
    for (const socket of sockets) socket.destroy();
  });
});

describe("destinations", () => {
  test("connects only to the addresses that were checked", async () => {
    const answers = [["93.184.216.34", "10.1.2.3"], ["10.1.2.3"], []];
    await using proxy = await startProxy(
      { ...allowGood, allowLocalBinding: false },
      { lookup: async () => answers.shift() ?? ["127.0.0.1"] },
    );
    for (let count = answers.length; count > 0; count--) {
      const { body } = parseResponse(await exchange(proxy.http, get(`http://good.test:${webPort}/`)));
      assert.match(body, /"reason":"not_allowed_local"/);
    }
  });

  test("disconnects a destination if the requester disconnects during the TLS handshake", async () => {
    using destination = await startSilentServer();
    await using proxy = await startProxy(allowGood);
    await abandonRequest(proxy.http, get(`https://good.test:${destination.port}/`), destination.open);
  });

  test("blocks listeners of this server, whatever the policy allows", async () => {
    await using proxy = await startProxy(
      { domains: { "*": "allow", "127.0.0.1": "allow" } },
      { isOwnListener: (address, port) => address === "127.0.0.1" && port === webPort },
    );
    for (const host of ["127.0.0.1", "good.test"]) {
      const { status, body } = parseResponse(await exchange(proxy.http, get(`http://${host}:${webPort}/`)));
      assert.equal(status, "HTTP/1.1 403 Forbidden");
      assert.match(body, /"reason":"not_allowed_local"/);
      assert.equal((await exchange(proxy.socks, socksConnect(host, webPort))).charCodeAt(3), 2);
      assert.doesNotMatch(
        await exchange(proxy.http, `CONNECT ${host}:${webPort} HTTP/1.1\r\n\r\n${get("/")}`),
        /hello/,
      );
    }
  });

  test("blocks listeners of this server behind an IPv4-mapped address", async () => {
    await using proxy = await startProxy(
      { domains: { "*": "allow", "::ffff:127.0.0.1": "allow" } },
      { isOwnListener: (address, port) => address === "127.0.0.1" && port === webPort },
      ["::ffff:7f00:1"],
    );
    for (const host of ["[::ffff:127.0.0.1]", "good.test"])
      assert.match(await exchange(proxy.http, get(`http://${host}:${webPort}/`)), /"reason":"not_allowed_local"/);
  });

  test("blocks ports outside of `ports`", async () => {
    await using proxy = await startProxy({ ...allowGood, ports: [echoPort] });
    assert.match(await exchange(proxy.http, get(`http://good.test:${webPort}/`)), /"reason":"port_not_allowed"/);
    assert.match(await exchange(proxy.http, `CONNECT good.test:${echoPort} HTTP/1.1\r\n\r\nx`, "close"), /200 OK.*x$/s);
  });

  test("blocks methods outside of `methods`, and tunnels, whose methods it cannot see", async () => {
    await using proxy = await startProxy({ ...allowGood, methods: ["GET"] });
    const url = `http://good.test:${webPort}/`;
    assert.match(await exchange(proxy.http, get(url)), /hello/);
    const post = get(url).replace(/^GET/, "POST");
    assert.match(await exchange(proxy.http, post), /"reason":"method_not_listed"/);
    const connect = `CONNECT good.test:${webPort} HTTP/1.1\r\n\r\n${get("/")}`;
    assert.match(await exchange(proxy.http, connect), /^HTTP\/1\.1 403 /);
    assert.equal((await exchange(proxy.socks, socksConnect("good.test", webPort))).charCodeAt(3), 2);
  });

  test("resets connections from outside of the process tree", async () => {
    await using proxy = await startProxy(allowGood, { isMember: async () => false });
    assert.equal(await exchange(proxy.http, get("http://good.test/")), "<ECONNRESET>");
    assert.equal(await exchange(proxy.socks, socksConnect("good.test", 80)), "<ECONNRESET>");
  });
});

describe("upstream proxy", () => {
  test("receives absolute form and CONNECT, and private addresses only if permitted", async () => {
    const requests: string[] = [];
    const upstream = createHttpServer((request, response) => {
      const { host, "proxy-authorization": authorization } = request.headers;
      requests.push(`${request.method} ${request.url} ${host} ${authorization}`);
      response.end("via upstream");
    });
    upstream.on("connect", (request: IncomingMessage, socket) => {
      requests.push(`CONNECT ${request.url}`);
      socket.write("HTTP/1.1 200 OK\r\n\r\nUP:");
      socket.pipe(socket);
    });
    const port = await listen(upstream);
    const proxyUrl = { host: "127.0.0.1", port, authorization: "Basic eDp5" };
    const start = (privateViaUpstream: boolean) =>
      startProxy(
        { domains: { "*": "allow", "10.1.2.3": "allow", "127.0.0.1": "allow" }, allowUpstreamProxy: true },
        { upstream: { http: proxyUrl, tunnel: proxyUrl }, privateViaUpstream },
      );
    try {
      await using proxy = await start(false);
      assert.match(await exchange(proxy.http, get("http://good.test/x")), /via upstream/);
      assert.match(await exchange(proxy.http, get("http://good.test/", "Host: GOOD.test\r\n")), /via upstream/);
      assert.match(await exchange(proxy.http, "CONNECT good.test:443 HTTP/1.1\r\n\r\nhi", "close"), /UP:hi$/);
      assert.match(await exchange(proxy.http, get(`http://127.0.0.1:${webPort}/`)), /hello GET/);
      await using flagged = await start(true);
      assert.match(await exchange(flagged.http, get("http://10.1.2.3/")), /via upstream/);
      assert.match(await exchange(flagged.http, get(`http://127.0.0.1:${webPort}/`)), /hello GET/);
      assert.deepEqual(requests, [
        "GET http://good.test/x good.test:80 Basic eDp5",
        "GET http://good.test/ GOOD.test Basic eDp5",
        "CONNECT good.test:443",
        "GET http://10.1.2.3/ 10.1.2.3:80 Basic eDp5",
      ]);
    } finally {
      upstream.closeAllConnections();
      upstream.close();
    }
  });

  test("is disconnected if the requester disconnects before it responds", async () => {
    using upstream = await startSilentServer();
    const proxyUrl = { host: "127.0.0.1", port: upstream.port, authorization: null };
    await using proxy = await startProxy(
      { domains: { "*": "allow" }, allowUpstreamProxy: true },
      { upstream: { http: null, tunnel: proxyUrl } },
    );
    await abandonRequest(proxy.http, "CONNECT good.test:443 HTTP/1.1\r\n\r\n", upstream.open);
    await abandonRequest(proxy.http, get("https://good.test/"), upstream.open);
  });
});
