import assert from "node:assert/strict";
import { randomBytes } from "node:crypto";
import { once } from "node:events";
import { mkdtempSync, rmSync, writeFileSync } from "node:fs";
import { Agent, createServer, type IncomingMessage, type RequestOptions, request } from "node:http";
import { createServer as createHttpsServer } from "node:https";
import { type AddressInfo, connect, type Socket } from "node:net";
import { tmpdir } from "node:os";
import { join } from "node:path";
import type { Duplex } from "node:stream";
import { after, before, describe, test } from "node:test";
import { createSecureContext, connect as tlsConnect } from "node:tls";
import { gzipSync } from "node:zlib";
import { CertificateAuthority } from "../../../src/network/credentials/certificate-authority.ts";
import { ProcessCredentials } from "../../../src/network/credentials/process-credentials.ts";
import { NetworkProxy } from "../../../src/network/network-proxy.ts";
import { parseCredential } from "../../../src/protocol/network/credential-definition.ts";
import { policy } from "../../support/network/network-config.ts";

const SECRET = 'sk-test/"1234567890';
const originAuthority = CertificateAuthority.create();
const authority = CertificateAuthority.create();
const scratch = mkdtempSync(join(tmpdir(), "procwire-credential-"));
const secretFile = join(scratch, "secret");

interface Seen {
  method: string;
  url: string;
  headers: IncomingMessage["headers"];
  body: string;
  /** Connections of the origin so far. */
  connection: number;
}
const seen: Seen[] = [];
let connections = 0;

async function onRequest(incoming: IncomingMessage, response: import("node:http").ServerResponse): Promise<void> {
  let body = "";
  for await (const chunk of incoming) body += chunk;
  const { method = "", url = "", headers } = incoming;
  seen.push({ method, url, headers, body, connection: connections });
  const received = `${headers["x-api-key"] ?? headers.authorization}`;
  switch (url) {
    case "/echo":
      response.writeHead(200, { "x-echo": received, etag: "1" }).end(`got ${received} end`);
      return;
    case "/bytes":
      response.writeHead(200, { "content-type": "text/plain" });
      for (const character of `<${received}>`) {
        response.write(character);
        await new Promise((resolve) => setImmediate(resolve));
      }
      response.end();
      return;
    case "/gzip":
      response.writeHead(200, { "content-encoding": "gzip" }).end(gzipSync(`zip ${received}`));
      return;
    case "/unknown-encoding":
      response.writeHead(200, { "content-encoding": "zzz" }).end(received);
      return;
    case "/json":
      response.writeHead(200).end(JSON.stringify({ received }).replaceAll("/", "\\/"));
      return;
    case "/head":
      response.writeHead(200, { "content-length": "1234" }).end();
      return;
    case "/204":
      response.writeHead(204).end();
      return;
    case "/304":
      response.writeHead(304, { etag: received }).end();
      return;
    case "/redirect":
      response.writeHead(302, { location: `https://other.test/?${encodeURIComponent(received)}` }).end();
      return;
    case "/truncated":
      response.writeHead(200, { "content-length": "100" });
      response.write("part");
      setImmediate(() => response.destroy());
      return;
    case "/large":
      response.writeHead(200, { "content-length": String(LARGE.length) }).end(LARGE);
      return;
    default:
      response.end(`hello ${method} ${url} ${body.length}`);
  }
}
const LARGE = randomBytes(8 * 1024 * 1024);

function httpsOrigin(host: string) {
  const leaf = originAuthority.contextFor(host);
  const server = createHttpsServer({ SNICallback: (_name, done) => done(null, leaf), ALPNProtocols: ["http/1.1"] });
  server.on("request", (incoming, response) => void onRequest(incoming, response));
  server.on("secureConnection", () => connections++);
  server.on("upgrade", (incoming: IncomingMessage, socket: Duplex) => {
    seen.push({ method: "UPGRADE", url: incoming.url ?? "", headers: incoming.headers, body: "", connection: 0 });
    socket.destroy();
  });
  return server;
}
const api = httpsOrigin("api.test");
const plain = createServer((incoming, response) => void onRequest(incoming, response));
let apiPort = 0;
let plainPort = 0;
const portOf = (server: { address(): unknown }) => (server.address() as AddressInfo).port;

before(async () => {
  writeFileSync(secretFile, `${SECRET}\n`);
  for (const server of [api, plain]) {
    server.listen(0, "127.0.0.1");
    await once(server, "listening");
  }
  apiPort = portOf(api);
  plainPort = portOf(plain);
});
after(() => {
  for (const server of [api, plain]) {
    server.closeAllConnections();
    server.close();
  }
  rmSync(scratch, { recursive: true });
});

interface Proxy extends Disposable {
  http: number;
  socks: number;
  placeholder: string;
  variables: Record<string, string>;
}

async function startProxy(header = "X-Api-Key", domain = "*.test"): Promise<Proxy> {
  const credentials = new ProcessCredentials([parseCredential(`KEY=${domain}:${header}:file:${secretFile}`)]);
  const proxy = new NetworkProxy({
    processId: "p",
    config: { proxy: policy({ allowLocalBinding: true, domains: { "*.test": "allow", "other.example": "allow" } }) },
    isOwnListener: () => false,
    lookup: async () => ["127.0.0.1"],
    credentials: {
      credentials,
      contextFor: (host) => authority.contextFor(host),
      originContext: createSecureContext({ ca: originAuthority.certificate }),
    },
  });
  const ports = await proxy.listen();
  const variables = credentials.variables("/bundle.pem");
  return {
    ...{ http: ports.http, socks: ports.socks ?? 0, variables, placeholder: variables.KEY ?? "" },
    [Symbol.dispose]: () => proxy.close(),
  };
}

/** Opens a tunnel through the HTTP listener. */
async function openTunnel(proxyPort: number, host: string, port: number): Promise<Socket> {
  const socket = connect(proxyPort, "127.0.0.1");
  socket.on("error", () => undefined);
  socket.write(`CONNECT ${host}:${port} HTTP/1.1\r\nHost: ${host}:${port}\r\n\r\n`);
  const [head] = await once(socket, "data");
  assert.match(String(head), /^HTTP\/1\.1 200 /);
  return socket;
}

async function openTls(proxyPort: number, host: string, { ca = authority.certificate, alpn = ["http/1.1"] } = {}) {
  const socket = await openTunnel(proxyPort, host, apiPort);
  const secure = tlsConnect({ socket, servername: host, ca, ALPNProtocols: alpn });
  await once(secure, "secureConnect");
  return secure;
}

interface Reply {
  status: number;
  headers: IncomingMessage["headers"];
  body: Buffer;
}

const agents = new WeakMap<Duplex, Agent>();

/** Sends requests one after the other over a connection. */
async function send(secure: Duplex, options: RequestOptions, body: readonly string[] = []): Promise<Reply> {
  const agent = agents.get(secure) ?? new Agent({ keepAlive: true, maxSockets: 1 });
  agents.set(secure, agent);
  agent.createConnection = () => secure;
  const host = `api.test:${apiPort}`;
  const sent = request({ ...options, agent, headers: { host, ...(options.headers as Record<string, string>) } });
  if (sent.getHeader("expect") !== undefined) {
    sent.flushHeaders();
    await once(sent, "continue");
  }
  for (const part of body) sent.write(part);
  sent.end();
  const [answer] = (await once(sent, "response")) as [IncomingMessage];
  const chunks: Buffer[] = [];
  for await (const chunk of answer) chunks.push(chunk);
  return { status: answer.statusCode ?? 0, headers: answer.headers, body: Buffer.concat(chunks) };
}

describe("network proxy with credentials", () => {
  test("gives the process a random placeholder and the certificate bundle", async () => {
    using first = await startProxy();
    using second = await startProxy();
    assert.match(first.placeholder, /^procwire-credential-KEY-[\da-f]{32}$/);
    assert.notEqual(first.placeholder, second.placeholder);
    for (const name of [
      "SSL_CERT_FILE",
      "NODE_EXTRA_CA_CERTS",
      "CURL_CA_BUNDLE",
      "GIT_SSL_CAINFO",
      "npm_config_cafile",
    ])
      assert.equal(first.variables[name], "/bundle.pem");
  });

  test("puts the secret into the header, and the placeholder into the response", async () => {
    using proxy = await startProxy();
    const secure = await openTls(proxy.http, "api.test");
    const headers = {
      "x-api-key": `key ${proxy.placeholder}`,
      "x-other": proxy.placeholder,
      "accept-encoding": "gzip",
    };
    const { headers: received, body } = await send(secure, { path: "/echo", headers });
    assert.equal(seen.at(-1)?.headers["x-api-key"], `key ${SECRET}`);
    assert.equal(seen.at(-1)?.headers["x-other"], proxy.placeholder);
    assert.equal(seen.at(-1)?.headers["accept-encoding"], "identity");
    assert.equal(received["x-echo"], `key ${proxy.placeholder}`);
    assert.equal(body.toString(), `got key ${proxy.placeholder} end`);
    secure.destroy();
  });

  test("does not add the header to a request without it", async () => {
    using proxy = await startProxy();
    const secure = await openTls(proxy.http, "api.test");
    await send(secure, { path: "/plain" });
    assert.equal(seen.at(-1)?.headers["x-api-key"], undefined);
    secure.destroy();
  });

  test("replaces placeholders inside Basic credentials, and returns them as the process sent them", async () => {
    using proxy = await startProxy("Authorization");
    const secure = await openTls(proxy.http, "api.test");
    const authorization = `Basic ${Buffer.from(`user:${proxy.placeholder}`).toString("base64")}`;
    const { body } = await send(secure, { path: "/echo", headers: { authorization } });
    const sent = `${seen.at(-1)?.headers.authorization}`.replace("Basic ", "");
    assert.equal(Buffer.from(sent, "base64").toString(), `user:${SECRET}`);
    assert.equal(body.toString(), `got ${authorization} end`);
    const bearer = await send(secure, { path: "/echo", headers: { authorization: `Bearer ${proxy.placeholder}` } });
    assert.equal(seen.at(-1)?.headers.authorization, `Bearer ${SECRET}`);
    assert.equal(bearer.body.toString(), `got Bearer ${proxy.placeholder} end`);
    secure.destroy();
  });

  for (const [path, expected] of [
    ["/bytes", "<PLACEHOLDER>"],
    ["/gzip", "zip PLACEHOLDER"],
    ["/json", '{"received":"PLACEHOLDER"}'],
  ] as const)
    test(`removes the secret from the body of ${path}`, async () => {
      using proxy = await startProxy();
      const secure = await openTls(proxy.http, "api.test");
      const { body, headers } = await send(secure, { path, headers: { "x-api-key": proxy.placeholder } });
      assert.equal(body.toString(), expected.replace("PLACEHOLDER", proxy.placeholder));
      assert.equal(headers["content-encoding"], undefined);
      secure.destroy();
    });

  test("keeps connections alive, and handles HEAD, 204, 304, redirects and unknown encodings", async () => {
    using proxy = await startProxy();
    const secure = await openTls(proxy.http, "api.test");
    const headers = { "x-api-key": proxy.placeholder };
    const before = connections;
    const head = await send(secure, { path: "/head", method: "HEAD", headers });
    assert.deepEqual([head.status, head.headers["content-length"], head.body.length], [200, "1234", 0]);
    assert.equal((await send(secure, { path: "/204", headers })).status, 204);
    const unchanged = await send(secure, { path: "/304", headers });
    assert.deepEqual([unchanged.status, unchanged.headers.etag], [304, proxy.placeholder]);
    const redirect = await send(secure, { path: "/redirect", headers });
    assert.equal(redirect.headers.location, `https://other.test/?${proxy.placeholder}`);
    assert.equal(connections, before + 1);
    const refused = await send(secure, { path: "/unknown-encoding", headers });
    assert.deepEqual([refused.status, refused.body.toString()], [502, "upstream failure"]);
    assert.equal((await send(secure, { path: "/x", headers })).body.toString(), "hello GET /x 0");
    secure.destroy();
  });

  test("forwards chunked bodies and `Expect: 100-continue`", async () => {
    using proxy = await startProxy();
    const secure = await openTls(proxy.http, "api.test");
    const headers = { "x-api-key": proxy.placeholder, "transfer-encoding": "chunked" };
    const { body } = await send(secure, { path: "/p", method: "POST", headers }, ["one", "two"]);
    assert.equal(body.toString(), "hello POST /p 6");
    assert.equal(seen.at(-1)?.body, "onetwo");
    const expecting = { expect: "100-continue", "content-length": "5" };
    await send(secure, { path: "/p", method: "PUT", headers: expecting }, ["three"]);
    assert.equal(seen.at(-1)?.body, "three");
    secure.destroy();
  });

  test("streams large bodies unchanged, and does not complete a truncated one", async () => {
    using proxy = await startProxy();
    const secure = await openTls(proxy.http, "api.test");
    const { body } = await send(secure, { path: "/large" });
    assert.ok(body.equals(LARGE));
    await assert.rejects(send(secure, { path: "/truncated" }), /aborted|hang up|ECONNRESET/);
  });

  test("forwards a request for an upgrade without it, so that no message passes unread", async () => {
    using proxy = await startProxy();
    const headers = { connection: "Upgrade", upgrade: "websocket", "x-api-key": proxy.placeholder };
    const secure = await openTls(proxy.http, "api.test");
    const { status, body } = await send(secure, { path: "/echo", headers });
    assert.equal(status, 200);
    const last = seen.at(-1);
    assert.deepEqual([last?.method, last?.url, last?.headers["x-api-key"]], ["GET", "/echo", SECRET]);
    assert.equal(last?.headers.upgrade, undefined);
    assert.ok(!String(body).includes(SECRET));
    secure.destroy();
  });

  test("rejects a request whose Host names another host, and never sends it", async () => {
    using proxy = await startProxy();
    const secure = await openTls(proxy.http, "api.test");
    const count = seen.length;
    const reply = await send(secure, { path: "/echo", headers: { host: "evil.test", "x-api-key": proxy.placeholder } });
    assert.equal(reply.status, 421);
    assert.equal(seen.length, count);
    secure.destroy();
  });

  test("leaves tunnels to other domains untouched: the process sees the certificate of the origin", async () => {
    using proxy = await startProxy("X-Api-Key", "api.test");
    const secure = await openTls(proxy.http, "other.example", { ca: originAuthority.certificate }).catch(String);
    // The certificate of the origin is for api.test.
    assert.match(String(secure), /altnames|does not match/);
    const socket = await openTunnel(proxy.http, "other.example", apiPort);
    const other = tlsConnect({ socket, servername: "api.test", ca: originAuthority.certificate });
    await once(other, "secureConnect");
    await send(other, { path: "/echo", headers: { "x-api-key": proxy.placeholder } });
    assert.equal(seen.at(-1)?.headers["x-api-key"], proxy.placeholder);
    other.destroy();
  });

  test("passes other protocols than TLS unchanged", async () => {
    using proxy = await startProxy();
    const socket = await openTunnel(proxy.http, "api.test", plainPort);
    await send(socket, { path: "/echo", headers: { "x-api-key": proxy.placeholder } });
    assert.equal(seen.at(-1)?.headers["x-api-key"], proxy.placeholder);
    socket.destroy();
  });

  test("verifies the certificate of the origin", async () => {
    using proxy = await startProxy();
    const secure = await openTls(proxy.http, "wrong.test");
    const count = seen.length;
    const host = `wrong.test:${apiPort}`;
    const reply = await send(secure, { path: "/echo", headers: { host, "x-api-key": proxy.placeholder } });
    assert.deepEqual([reply.status, seen.length], [502, count]);
    secure.destroy();
  });

  test("offers HTTP/1.1 only", async () => {
    using proxy = await startProxy();
    const secure = await openTls(proxy.http, "api.test", { alpn: ["h2", "http/1.1"] });
    assert.equal(secure.alpnProtocol, "http/1.1");
    secure.destroy();
  });

  test("terminates TLS behind SOCKS5 too", async () => {
    using proxy = await startProxy();
    const socket = connect(proxy.socks, "127.0.0.1");
    socket.write(Uint8Array.of(5, 1, 0));
    await once(socket, "data");
    const name = Buffer.from("api.test");
    socket.write(Buffer.from([5, 1, 0, 3, name.length, ...name, apiPort >> 8, apiPort & 255]));
    const [reply] = await once(socket, "data");
    assert.equal(reply[1], 0);
    const secure = tlsConnect({ socket, servername: "api.test", ca: authority.certificate });
    await once(secure, "secureConnect");
    await send(secure, { path: "/echo", headers: { "x-api-key": proxy.placeholder } });
    assert.equal(seen.at(-1)?.headers["x-api-key"], SECRET);
    secure.destroy();
  });

  test("puts the secret into plain HTTP requests only if the domain has `http://`", async () => {
    for (const [domain, expected] of [
      ["api.test", null],
      ["http://api.test", SECRET],
    ] as const) {
      using proxy = await startProxy("X-Api-Key", domain);
      const url = `http://api.test:${plainPort}/echo`;
      const socket = connect(proxy.http, "127.0.0.1");
      socket.write(
        `GET ${url} HTTP/1.1\r\nHost: api.test:${plainPort}\r\nX-Api-Key: ${proxy.placeholder}\r\nConnection: close\r\n\r\n`,
      );
      let text = "";
      for await (const chunk of socket) text += chunk;
      assert.equal(seen.at(-1)?.headers["x-api-key"], expected ?? proxy.placeholder);
      assert.ok(text.includes(proxy.placeholder) && !text.includes(SECRET), text);
    }
  });

  test("reads a changed file for the next connection, and closes the connection if it is missing", async () => {
    using proxy = await startProxy();
    const fetchKey = async () => {
      const secure = await openTls(proxy.http, "api.test");
      await send(secure, { path: "/echo", headers: { "x-api-key": proxy.placeholder } });
      secure.destroy();
      return seen.at(-1)?.headers["x-api-key"];
    };
    try {
      writeFileSync(secretFile, "rotated-secret");
      assert.equal(await fetchKey(), "rotated-secret");
      rmSync(secretFile);
      await assert.rejects(fetchKey());
    } finally {
      writeFileSync(secretFile, `${SECRET}\n`);
    }
  });
});

describe("sources of credentials", () => {
  const problemOf = (source: string) =>
    new ProcessCredentials([parseCredential(`KEY=api.test:X-Api-Key:${source}`)]).requireSources();

  test("rejects a missing or unusable source with its name, without the value", async () => {
    await assert.rejects(
      problemOf("file:/nowhere/key"),
      /credential `KEY`: source `file:\/nowhere\/key` cannot be read/,
    );
    await assert.rejects(problemOf("file:/dev/zero"), /source `file:\/dev\/zero` is not a regular file/);
    await assert.rejects(problemOf("env:PROCWIRE_NO_SUCH"), /source `env:PROCWIRE_NO_SUCH` is not set/);
    const file = join(scratch, "bad");
    writeFileSync(file, "short");
    await assert.rejects(problemOf(`file:${file}`), /has 5 characters; expected 8 to/);
    writeFileSync(file, "value-with\nline-break");
    await assert.rejects(problemOf(`file:${file}`), ({ message }: Error) => {
      assert.match(message, /contains a line break/);
      return !message.includes("value-with");
    });
  });
});
