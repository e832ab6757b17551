import assert from "node:assert/strict";
import { createServer, type IncomingMessage, type Server, type ServerResponse } from "node:http";
import { type AddressInfo, connect, createServer as createTcpServer } from "node:net";
import { type TestContext, test } from "node:test";
import { withDeadline } from "../../src/async/deadline.ts";
import { HttpRequests, type HttpRequestsOptions, MAX_DELTA_BYTES } from "../../src/http/http-request.ts";
import type { HttpBodyDelta, HttpHeaderParam, HttpRequestParams } from "../../src/protocol/http-schemas.ts";
import { ManualClock } from "../support/manual-clock.ts";
import { flushEventLoop } from "../support/system/flush-event-loop.ts";

type Handler = (request: IncomingMessage, response: ServerResponse, body: string) => void;

async function serve(t: TestContext, handler: Handler): Promise<string> {
  const server = createServer((request, response) => {
    const chunks: Buffer[] = [];
    request.on("data", (chunk: Buffer) => chunks.push(chunk));
    request.on("end", () => handler(request, response, Buffer.concat(chunks).toString()));
  });
  const port = await listen(t, server);
  return `http://127.0.0.1:${port}`;
}

async function listen(t: TestContext, server: Server): Promise<number> {
  await new Promise<void>((resolve) => server.listen(0, "127.0.0.1", resolve));
  t.after(() => {
    server.closeAllConnections();
    server.close();
  });
  return (server.address() as AddressInfo).port;
}

/** Responds with the request as JSON. */
const echo: Handler = (request, response, body) => {
  response.writeHead(201, { "x-a": ["1", "2"], "content-type": "application/json" });
  response.end(JSON.stringify({ method: request.method, url: request.url, headers: request.headers, body }));
};

function client(t: TestContext, options: Partial<HttpRequestsOptions> = {}) {
  const deltas: HttpBodyDelta[] = [];
  const errors: unknown[] = [];
  const arrived: (() => void)[] = [];
  const requests = new HttpRequests({
    sink: async (delta) => {
      deltas.push(delta);
      for (const wake of arrived.splice(0)) wake();
    },
    onError: (error) => errors.push(error),
    env: {},
    ...options,
  });
  t.after(async () => {
    await requests.close();
    assert.deepEqual(errors, []);
  });
  return {
    requests,
    deltas,
    errors,
    /** Like a server: the response first, then its stream. */
    async get(url: string, more: Partial<HttpRequestParams> = {}) {
      const response = await requests.request({ method: "GET", url, requestId: "q", ...more });
      response.stream?.();
      return response;
    },
    /** Resolves with the deltas of a stream when it has ended. */
    async stream(requestId: string): Promise<HttpBodyDelta[]> {
      const ended = () => deltas.some((delta) => delta.requestId === requestId && delta.done);
      while (!ended()) await withDeadline(new Promise<void>((wake) => arrived.push(wake)), 60_000, "a delta");
      return deltas.filter((delta) => delta.requestId === requestId);
    },
  };
}

const text = (bytes: Uint8Array) => Buffer.from(bytes).toString();
const json = (bytes: Uint8Array) => JSON.parse(text(bytes));

test("http/request sends method, headers and body, and returns status, ordered headers and body", async (t) => {
  const url = await serve(t, echo);
  const headers: HttpHeaderParam[] = [
    { name: "X-T", value: "1" },
    { name: "x-t", value: "2" },
    { name: "x-utf", value: "é" },
    { name: "content-length", value: "999" },
  ];
  const { get } = client(t);
  const response = await get(`${url}/p?q=1#f`, { method: "POST", headers, body: Buffer.from("payload") });
  assert.equal(response.status, 201);
  assert.deepEqual(response.headers.slice(0, 3), [
    { name: "x-a", value: "1" },
    { name: "x-a", value: "2" },
    { name: "content-type", value: "application/json" },
  ]);
  const seen = json(response.body);
  assert.deepEqual([seen.method, seen.url, seen.body], ["POST", "/p?q=1", "payload"]);
  assert.equal(seen.headers["x-t"], "1, 2");
  assert.equal(Buffer.from(seen.headers["x-utf"], "latin1").toString(), "é");
  assert.equal(seen.headers["content-length"], "7");
  assert.equal(seen.headers.accept, "*/*");
});

test("http/request sends a body with any method", async (t) => {
  const url = await serve(t, echo);
  const { get } = client(t);
  for (const method of ["GET", "DELETE", "PUT", "PATCH"]) {
    const seen = json((await get(url, { method, body: Buffer.from("hi") })).body);
    assert.deepEqual([seen.method, seen.body], [method, "hi"]);
  }
});

test("http/request sends credentials of the URL as a header and hides them in errors", async (t) => {
  const url = await serve(t, echo);
  const { get } = client(t);
  const seen = json((await get(url.replace("//", "//user:pw@"))).body);
  assert.equal(seen.headers.authorization, `Basic ${Buffer.from("user:pw").toString("base64")}`);
  await assert.rejects(get("http://user:pw@127.0.0.1:1/"), (error: Error) => !error.message.includes("pw"));
});

test("http/request appends a variable of the server's environment to a header value", async (t) => {
  const url = await serve(t, echo);
  const { get } = client(t, { env: { TOKEN: "s3cret", EMPTY: "", BAD: "a\nb" } });
  const header = (valueEnvVar: string) => ({ headers: [{ name: "x-env", value: "Bearer ", valueEnvVar }] });
  assert.equal(json((await get(url, header("TOKEN"))).body).headers["x-env"], "Bearer s3cret");
  await assert.rejects(get(url, header("NOPE_X")), {
    code: -32602,
    message: "http/request header x-env requires executor environment variable NOPE_X",
  });
  await assert.rejects(get(url, header("EMPTY")), {
    code: -32602,
    message: "http/request header x-env requires a non-empty executor environment variable EMPTY",
  });
  await assert.rejects(get(url, header("BAD")), { code: -32602 });
});

const refused: [what: string, params: Partial<HttpRequestParams>, message: RegExp][] = [
  ["a relative URL", { url: "nope" }, /^http\/request url is invalid: relative URL without a base$/],
  ["no host", { url: "http://" }, /^http\/request url is invalid: empty host$/],
  ["a port out of range", { url: "http://x:99999/" }, /^http\/request url is invalid: /],
  ["another scheme", { url: "ftp://x/" }, /^http\/request only supports http and https URLs, got ftp$/],
  ["a method with a blank", { method: "BAD METHOD" }, /^http\/request method is invalid: invalid HTTP method$/],
  ["no method", { method: "" }, /^http\/request method is invalid: invalid HTTP method$/],
  [
    "a header name with a blank",
    { headers: [{ name: "bad header", value: "x" }] },
    /^http\/request header name is invalid: invalid HTTP header name$/,
  ],
  [
    "a header value with a line break",
    { headers: [{ name: "x", value: "a\nb" }] },
    /^http\/request header value is invalid for x: failed to parse header value$/,
  ],
];
for (const [what, params, message] of refused) {
  test(`http/request rejects ${what} as invalid params`, async (t) => {
    await assert.rejects(client(t).get("http://127.0.0.1:1/", params), { code: -32602, message });
  });
}

test("http/request reports an unreachable server with its URL only", async (t) => {
  await assert.rejects(client(t).get("http://127.0.0.1:1/"), {
    code: -32603,
    message: "http/request failed: error sending request for url (http://127.0.0.1:1/)",
  });
});

test("http/request follows redirects like browsers: 303 changes POST to GET, 307 repeats it", async (t) => {
  const url = await serve(t, (request, response, body) => {
    const status = Number(request.url?.slice(1));
    if (!status) return echo(request, response, body);
    response.writeHead(status, { location: "/echo" }).end("moved");
  });
  const { get } = client(t);
  const post = { method: "POST", body: Buffer.from("hi"), headers: [{ name: "content-type", value: "x/y" }] };
  for (const status of [301, 302, 303]) {
    const seen = json((await get(`${url}/${status}`, post)).body);
    assert.deepEqual([seen.method, seen.body, seen.headers["content-type"]], ["GET", "", undefined], `${status}`);
  }
  for (const status of [307, 308]) {
    const seen = json((await get(`${url}/${status}`, post)).body);
    assert.deepEqual([seen.method, seen.body, seen.headers["content-type"]], ["POST", "hi", "x/y"], `${status}`);
  }
  assert.equal((await get(`${url}/300`)).status, 300);
  const stopped = await get(`${url}/302`, { redirectPolicy: "stop" });
  assert.deepEqual([stopped.status, text(stopped.body)], [302, "moved"]);
  assert.ok(stopped.headers.some(({ name, value }) => name === "location" && value === "/echo"));
});

test("http/request sends header values from the environment to the first origin only", async (t) => {
  const other = await serve(t, echo);
  const url = await serve(t, (request, response, body) => {
    if (request.url === "/echo") return echo(request, response, body);
    const location = request.url === "/stay" ? "/echo" : `${other}/x`;
    response.writeHead(307, { location }).end();
  });
  const headers = [
    { name: "X-Api-Key", value: "k=", valueEnvVar: "MY_KEY" },
    { name: "x-plain", value: "p" },
  ];
  const { get } = client(t, { env: { MY_KEY: "secret" } });
  const stayed = json((await get(`${url}/stay`, { headers })).body);
  assert.deepEqual([stayed.headers["x-api-key"], stayed.headers["x-plain"]], ["k=secret", "p"]);
  const left = json((await get(`${url}/leave`, { headers })).body);
  assert.deepEqual([left.headers["x-api-key"], left.headers["x-plain"]], [undefined, "p"]);
});

test("http/request does not send secrets to another host or port", async (t) => {
  const other = await serve(t, echo);
  const url = await serve(t, (_request, response) => response.writeHead(302, { location: `${other}/x` }).end());
  const headers = ["authorization", "cookie", "x-other"].map((name) => ({ name, value: "v" }));
  const seen = json((await client(t).get(url, { headers })).body);
  assert.deepEqual(
    [seen.headers.authorization, seen.headers.cookie, seen.headers["x-other"]],
    [undefined, undefined, "v"],
  );
});

test("http/request rejects an endless redirect and a redirect to another scheme", async (t) => {
  let hops = 0;
  const url = await serve(t, (request, response) => {
    hops++;
    const location = request.url === "/ftp" ? "ftp://x/" : "/loop";
    response.writeHead(302, { location }).end();
  });
  const { get } = client(t);
  await assert.rejects(get(`${url}/loop`), {
    code: -32603,
    message: "http/request failed: too many redirects",
  });
  assert.equal(hops, 11);
  await assert.rejects(get(`${url}/ftp`), {
    code: -32603,
    message: "http/request failed: redirect target uses unsupported URL scheme: ftp",
  });
});

test("http/request reports a truncated body as an error", async (t) => {
  const url = await serve(t, (_request, response) => {
    response.writeHead(200, { "content-length": "100" });
    response.write("part", () => response.destroy());
  });
  await assert.rejects(client(t).get(url), {
    code: -32603,
    message: "failed to read http/request response body: error decoding response body",
  });
});

test("http/request applies the timeout to the response and the body", async (t) => {
  const reached = Promise.withResolvers<void>();
  const sent = Promise.withResolvers<void>();
  const url = await serve(t, (request, response) => {
    if (request.url === "/body") response.writeHead(200).write("part", () => sent.resolve());
    reached.resolve();
  });
  const clock = new ManualClock();
  const { get } = client(t, { clock });
  const silent = get(`${url}/`, { timeoutMs: 200 });
  await reached.promise;
  await Promise.all([
    assert.rejects(silent, {
      code: -32603,
      message: `http/request failed: error sending request for url (${url}/)`,
    }),
    clock.advance(200),
  ]);
  const slow = get(`${url}/body`, { timeoutMs: 200 });
  await sent.promise;
  await flushEventLoop();
  await Promise.all([
    assert.rejects(slow, {
      code: -32603,
      message: "failed to read http/request response body: error decoding response body",
    }),
    clock.advance(200),
  ]);
  assert.equal(clock.pendingTimers, 0);
});

test("http/request rejects a body above the limit and stops reading it", async (t) => {
  const url = await serve(t, (_request, response) => response.end(Buffer.alloc(1001)));
  await assert.rejects(client(t, { maxBodyBytes: 1000 }).get(url), {
    code: -32603,
    message: "http/request response body is larger than 1000 bytes; use streamResponse",
  });
  assert.equal((await client(t, { maxBodyBytes: 1001 }).get(url)).body.byteLength, 1001);
});

test("http/request streams the body as numbered deltas after the response and ends with an empty one", async (t) => {
  const sent = Buffer.from(Array.from({ length: 3_000_000 }, (_, at) => at % 251));
  const url = await serve(t, (_request, response) => response.end(sent));
  const { requests, deltas, stream } = client(t);
  const params = { method: "GET", url, streamResponse: true, requestId: "s" };
  const response = await requests.request(params);
  await new Promise((resolve) => setImmediate(resolve));
  assert.deepEqual([response.status, response.body.byteLength, deltas.length], [200, 0, 0]);
  response.stream?.();
  response.stream?.();
  const all = await stream("s");
  assert.deepEqual(
    all.map(({ seq }) => seq),
    all.map((_, at) => at + 1),
  );
  const last = all.pop();
  assert.deepEqual(last, {
    requestId: "s",
    seq: all.length + 1,
    delta: new Uint8Array(),
    done: true,
    error: null,
  });
  assert.ok(all.every(({ delta, done, error }) => delta.byteLength <= MAX_DELTA_BYTES && !done && error === null));
  assert.ok(Buffer.concat(all.map(({ delta }) => delta)).equals(sent));
});

test("http/request reports a truncated streamed body in the last delta", async (t) => {
  const url = await serve(t, (_request, response) => {
    response.writeHead(200, { "content-length": "100" });
    response.write("part", () => setImmediate(() => response.destroy()));
  });
  const { get, stream } = client(t);
  await get(url, { streamResponse: true, requestId: "s" });
  const all = await stream("s");
  assert.equal(all.at(-1)?.error, "error decoding response body");
  assert.equal(text(Buffer.concat(all.map(({ delta }) => delta))), "part");
});

test("http/request rejects the id of an active stream; buffered responses ignore ids", async (t) => {
  const waiting: ServerResponse[] = [];
  const url = await serve(t, (request, response, body) => {
    if (request.url !== "/wait") return echo(request, response, body);
    response.writeHead(200).write("a");
    waiting.push(response);
  });
  const { get, stream } = client(t);
  await get(`${url}/wait`, { streamResponse: true, requestId: "s" });
  await assert.rejects(get(url, { streamResponse: true, requestId: "s" }), {
    code: -32602,
    message: "http/request streamResponse requestId `s` is already active",
  });
  assert.equal((await get(url, { requestId: "s" })).status, 201);
  for (const response of waiting) response.end("b");
  await stream("s");
  await assert.rejects(get("http://127.0.0.1:1/", { streamResponse: true, requestId: "t" }), {
    code: -32603,
  });
  await get(url, { streamResponse: true, requestId: "t" });
  await get(url, { streamResponse: true, requestId: "s" });
});

test("http/request applies backpressure of a slow sink to the sender", async (t) => {
  const total = 64 * 1024 * 1024;
  let written = 0;
  const url = await serve(t, (_request, response) => {
    const chunk = Buffer.alloc(256 * 1024);
    const more = () => {
      while (written < total) {
        written += chunk.byteLength;
        if (!response.write(chunk)) return response.once("drain", more);
      }
      return response.end();
    };
    more();
  });
  const gate = Promise.withResolvers<void>();
  let received = 0;
  const ended = Promise.withResolvers<void>();
  const { get } = client(t, {
    sink: async ({ delta, done }) => {
      await gate.promise;
      received += delta.byteLength;
      if (done) ended.resolve();
    },
  });
  await get(url, { streamResponse: true, requestId: "s" });
  await quiet(() => written);
  assert.ok(written < total, `the sender was held back at ${written} bytes`);
  gate.resolve();
  await withDeadline(ended.promise, 60_000, "the end of the body");
  assert.equal(received, total);
});

test("http/request aborts requests in flight on close and sends no more deltas", async (t) => {
  const closed = Promise.withResolvers<void>();
  const url = await serve(t, (request, response) => {
    response.writeHead(200).write("a");
    if (request.url === "/stream") request.socket.once("close", () => closed.resolve());
  });
  const { get, requests, deltas } = client(t);
  await get(`${url}/stream`, { streamResponse: true, requestId: "s" });
  const buffered = get(`${url}/whole`);
  const failed = assert.rejects(buffered, { code: -32603 });
  await requests.close();
  await failed;
  await withDeadline(closed.promise, 60_000, "the server's end of the stream");
  assert.ok(deltas.every(({ done }) => !done));
  await assert.rejects(get(url), { code: -32603 });
});

test("http/request reports a body that fails before `stream()` when the stream starts", async (t) => {
  const url = await serve(t, (_request, response) => {
    response.writeHead(200, { "content-length": "100" });
    response.write("part");
  });
  const clock = new ManualClock();
  const { requests, stream } = client(t, { clock });
  const params = { method: "GET", url, streamResponse: true, requestId: "s", timeoutMs: 50 };
  const response = await requests.request(params);
  await clock.advance(50);
  response.stream?.();
  assert.equal((await stream("s")).at(-1)?.error, "error decoding response body");
});

test("http/request ends the stream of a failed sink and reports the error", async (t) => {
  const closed = Promise.withResolvers<void>();
  const url = await serve(t, (request, response) => {
    response.writeHead(200).write("a");
    request.socket.once("close", () => closed.resolve());
  });
  const { get, errors } = client(t, { sink: () => Promise.reject(new Error("gone")) });
  await get(url, { streamResponse: true, requestId: "s" });
  await withDeadline(closed.promise, 60_000, "the connection to be given up");
  assert.equal(errors.splice(0).length, 1);
});

test("http/request replaces a closed keep-alive connection silently", async (t) => {
  let connections = 0;
  const server = createTcpServer((socket) => {
    connections++;
    let requests = 0;
    socket.on("error", () => undefined);
    // The second request on a connection is reset instead of answered.
    socket.on("data", () => {
      if (++requests > 1) socket.resetAndDestroy();
      else socket.write("HTTP/1.1 200 OK\r\ncontent-length: 2\r\n\r\nok");
    });
  });
  await new Promise<void>((resolve) => server.listen(0, "127.0.0.1", resolve));
  t.after(() => server.close());
  const { port } = server.address() as AddressInfo;
  const { get } = client(t);
  assert.equal(text((await get(`http://127.0.0.1:${port}/`)).body), "ok");
  assert.equal(text((await get(`http://127.0.0.1:${port}/`)).body), "ok");
  assert.equal(connections, 2);
  // The server may have processed a POST before the reset, so it is not sent twice.
  await assert.rejects(get(`http://127.0.0.1:${port}/`, { method: "POST" }), { code: -32603 });
  assert.equal(connections, 2);
});

test("http/request omits headers that are not UTF-8", async (t) => {
  const server = createTcpServer((socket) => {
    socket.on("error", () => undefined);
    socket.once("data", () =>
      socket.end("HTTP/1.1 200 OK\r\nX-L: \xe9\xff\r\nX-U: \xc3\xa9\r\nContent-Length: 2\r\n\r\nok", "latin1"),
    );
  });
  await new Promise<void>((resolve) => server.listen(0, "127.0.0.1", resolve));
  t.after(() => server.close());
  const { port } = server.address() as AddressInfo;
  const { headers } = await client(t).get(`http://127.0.0.1:${port}/`);
  assert.deepEqual(headers, [
    { name: "x-u", value: "é" },
    { name: "content-length", value: "2" },
  ]);
});

test("http/request uses the proxy of the server's environment", async (t) => {
  const target = await serve(t, echo);
  const seen: string[] = [];
  const proxy = createServer((request, response) => {
    seen.push(request.url ?? "");
    response.end("from the proxy");
  });
  proxy.on("connect", (request, socket) => {
    seen.push(request.url ?? "");
    const [host, port] = (request.url ?? "").split(":");
    const through = connect(Number(port), host, () => {
      socket.write("HTTP/1.1 200 OK\r\n\r\n");
      through.pipe(socket).pipe(through);
    });
    socket.on("error", () => through.destroy());
  });
  const port = await listen(t, proxy);
  const { get } = client(t, { env: { http_proxy: `http://127.0.0.1:${port}` } });
  assert.equal((await get(`${target}/x`)).status, 200);
  assert.equal(seen.length, 1);
  const direct = client(t, { env: { http_proxy: `http://127.0.0.1:${port}`, no_proxy: "127.0.0.1" } });
  assert.equal((await direct.get(`${target}/x`)).status, 201);
  assert.equal(seen.length, 1);
});

/** Waits until a number no longer rises. */
async function quiet(value: () => number): Promise<void> {
  for (let same = 0, last = -1; same < 20; ) {
    await new Promise((resolve) => setTimeout(resolve, 10));
    same = value() === last ? same + 1 : 0;
    last = value();
  }
}
