import assert from "node:assert/strict";
import { createHash, randomBytes } from "node:crypto";
import { once } from "node:events";
import { existsSync, readFileSync, statSync, writeFileSync } from "node:fs";
import { createServer as createHttpServer, request } from "node:http";
import { type AddressInfo, connect, createServer, type Server, type Socket } from "node:net";
import { join } from "node:path";
import { buffer } from "node:stream/consumers";
import { after, before, describe, type TestContext, test } from "node:test";
import { NodeExecServerClient } from "../../src/client/node/node-client.ts";
import { forwardPort, forwardPortBack } from "../../src/client/node/port-forward.ts";
import { createLocalHost } from "../../src/host/local-host.ts";
import { AuditLog } from "../../src/server/audit/audit-log.ts";
import { ExecServer } from "../../src/server/exec-server.ts";
import { listen } from "../../src/server/listen/listen.ts";
import { ServerMetrics } from "../../src/server/observability/server-metrics.ts";
import { DEFAULT_SERVER_CAPS, type ServerConfig } from "../../src/server/server-config.ts";
import { FaultProxy } from "../support/faults/fault-proxy.ts";
import { startCli } from "../support/servers/run-cli.ts";
import { runMain } from "../support/servers/run-main.ts";
import { ServeChild, scratchDirectory } from "../support/servers/serve.ts";
import { freePort } from "../support/system/free-port.ts";
import { until } from "../support/system/until.ts";

const MIB = 1024 * 1024;
const sha256 = (bytes: Uint8Array) => createHash("sha256").update(bytes).digest("hex");

/** Close functions per test, in the order in which the test calls them at its end: clients first. */
const closing = new WeakMap<TestContext, (() => Promise<unknown>)[]>();
function closeAfter(t: TestContext, close: () => Promise<unknown>): void {
  const known = closing.get(t);
  if (known) {
    known.unshift(close);
    return;
  }
  const all = [close];
  closing.set(t, all);
  t.after(async () => {
    for (const one of all) await one();
  });
}

async function startServer(
  t: TestContext,
  config: Partial<ServerConfig> = { allowForward: ["loopback"] },
  audit?: AuditLog,
) {
  const metrics = new ServerMetrics();
  const server = new ExecServer({ ...createLocalHost(), metrics, audit }, config);
  const listening = await listen(server, { type: "websocket", host: "127.0.0.1", port: 0 });
  closeAfter(t, async () => {
    await listening.close();
    await server.close();
  });
  return { metrics, url: listening.url };
}

async function connectTo(t: TestContext, url: string) {
  const client = await NodeExecServerClient.connectWebSocket({ url, reconnect: { firstDelayMs: 5 } });
  closeAfter(t, () => client.close());
  return client;
}

/** Starts a TCP server that passes each connection to `onSocket` and keeps half-open connections. Returns its port. */
async function target(t: TestContext, onSocket: (socket: Socket) => void): Promise<number> {
  const sockets = new Set<Socket>();
  const server: Server = createServer({ allowHalfOpen: true }, (socket) => {
    sockets.add(socket);
    socket.on("error", () => undefined);
    onSocket(socket);
  });
  server.listen(0, "127.0.0.1");
  await once(server, "listening");
  t.after(() => {
    for (const socket of sockets) socket.destroy();
    server.close();
  });
  // `address()` of a listening TCP server is never null or a string.
  return (server.address() as AddressInfo).port;
}

function open(port: number, host = "127.0.0.1"): Socket {
  return connect({ port, host, allowHalfOpen: true }).on("error", () => undefined);
}

/** Reads all bytes until end of file. Iterating over the socket would destroy it together with its unsent bytes. */
function received(socket: Socket): Promise<Buffer> {
  return new Promise((resolve) => {
    const chunks: Buffer[] = [];
    socket.on("data", (chunk) => chunks.push(chunk));
    socket.on("end", () => resolve(Buffer.concat(chunks)));
  });
}

const at = (port: number) => ({ port: 0, target: { host: "localhost", port } });

describe("forwarding", { timeout: 600_000 }, () => {
  test("serves 200 connections to a web server at once, each with its own body", async (t) => {
    const { url, metrics } = await startServer(t);
    const client = await connectTo(t, url);
    let together = 0;
    const all = Promise.withResolvers<void>();
    const web = createHttpServer((incoming, outgoing) => {
      if (++together === 200) all.resolve();
      // The web server responds to no request before all requests have arrived.
      void Promise.all([buffer(incoming), all.promise]).then(([body]) => outgoing.end(body));
    });
    web.listen(0, "127.0.0.1");
    await once(web, "listening");
    t.after(() => web.close());
    await using forwarded = await forwardPort(client, at((web.address() as AddressInfo).port));
    const bodies = await Promise.all(
      Array.from({ length: 200 }, async (_, index) => {
        const sent = randomBytes(20_000 + index);
        const upload = request({ port: forwarded.port, host: "127.0.0.1", method: "POST", agent: false });
        upload.end(sent);
        const [response] = await once(upload, "response");
        return sha256(await buffer(response)) === sha256(sent);
      }),
    );
    assert.equal(bodies.filter((isSame) => isSame).length, 200);
    await until("all streams are closed", () => metrics.forwardStreams === 0);
    assert.ok(metrics.forwardedBytes > 200 * 40_000 * 0.5);
  });

  test("carries large bodies in both directions at once, to the byte", async (t) => {
    const { url } = await startServer(t);
    const client = await connectTo(t, url);
    const [up, down] = [randomBytes(24 * MIB), randomBytes(24 * MIB)];
    const taken = Promise.withResolvers<string>();
    const port = await target(t, (socket) => {
      void received(socket).then((bytes) => taken.resolve(sha256(bytes)));
      socket.end(down);
    });
    await using forwarded = await forwardPort(client, at(port));
    const socket = open(forwarded.port);
    socket.end(up);
    assert.equal(sha256(await received(socket)), sha256(down));
    assert.equal(await taken.promise, sha256(up));
  });

  test("passes on a half-close: the response arrives after the end of the request", async (t) => {
    const { url } = await startServer(t);
    const client = await connectTo(t, url);
    const port = await target(t, (socket) => {
      void received(socket).then((bytes) => socket.end(`got ${bytes.length}`));
    });
    await using forwarded = await forwardPort(client, at(port));
    const socket = open(forwarded.port);
    socket.end("question");
    assert.equal(String(await received(socket)), "got 8");
  });

  test("passes on a reset, from either side", async (t) => {
    const { url, metrics } = await startServer(t);
    const client = await connectTo(t, url);
    const errors: string[] = [];
    const port = await target(t, (socket) => {
      socket.on("error", (error: Error & { code?: string }) => errors.push(error.code ?? ""));
      socket.once("data", (data) => {
        if (String(data) === "reset me") socket.resetAndDestroy();
        else socket.write("hello");
      });
    });
    await using forwarded = await forwardPort(client, at(port));
    const near = connect(forwarded.port, "127.0.0.1");
    near.write("reset me");
    const [error] = await once(near, "error");
    assert.equal(error.code, "ECONNRESET");
    const other = open(forwarded.port);
    other.write("talk to me");
    await once(other, "data");
    other.resetAndDestroy();
    await until("the target sees the reset", () => errors.includes("ECONNRESET"));
    await until("all streams are closed", () => metrics.forwardStreams === 0);
  });

  test("applies backpressure to a target whose reader is slow, and to no other stream", async (t) => {
    const { url, metrics } = await startServer(t);
    const client = await connectTo(t, url);
    let written = 0;
    const flood = await target(t, (socket) => {
      const block = Buffer.alloc(64 * 1024);
      const more = () => {
        while (socket.writable && socket.write(block)) written += block.length;
        written += block.length;
        socket.once("drain", more);
      };
      more();
    });
    const echo = await target(t, (socket) => socket.pipe(socket));
    await using forwarded = await forwardPort(client, at(flood));
    await using echoed = await forwardPort(client, at(echo));
    const slow = open(forwarded.port);
    slow.pause();
    await until("the flood has begun", () => written > MIB);
    // Unread bytes stay with the sender, apart from the socket buffers and one window.
    const hasStopped = async () => {
      const before = written;
      const quick = open(echoed.port);
      quick.write("ping");
      await once(quick, "data");
      quick.destroy();
      const { exitCode } = await (
        await client.start({ processId: `p-${before}`, argv: ["true"], cwd: "/", env: {}, tty: false })
      ).wait();
      assert.equal(exitCode, 0);
      return written === before;
    };
    await until("the bulk output has stopped", hasStopped);
    assert.ok(written < 64 * MIB, `${written} bytes were taken`);
    slow.destroy();
    await until("all streams are closed", () => metrics.forwardStreams === 0);
  });

  test("delivers process output while a forwarded stream carries bulk data", async (t) => {
    const { url } = await startServer(t);
    const client = await connectTo(t, url);
    const total = 32 * MIB;
    const port = await target(t, (socket) => socket.end(Buffer.alloc(total)));
    await using forwarded = await forwardPort(client, at(port));
    const socket = open(forwarded.port);
    let arrived = 0;
    socket.on("data", (data) => {
      arrived += data.length;
    });
    await until("the flood has begun", () => arrived > 0);
    const process = await client.start({
      processId: "beside",
      argv: ["sh", "-c", "head -c 3000000 /dev/zero | base64 -w 0 | head -c 2000000"],
      cwd: "/",
      env: {},
      tty: false,
    });
    let output = 0;
    for await (const event of process.events()) if (event.type === "output") output += event.chunk.length;
    assert.equal(output, 2_000_000);
    await until("all forwarded bytes", () => arrived === total);
  });

  test("closes a connection whose target refuses it, and reports the reason", async (t) => {
    const { url } = await startServer(t);
    const client = await connectTo(t, url);
    const closed = createServer().listen(0, "127.0.0.1");
    await once(closed, "listening");
    const { port } = closed.address() as AddressInfo;
    closed.close();
    await once(closed, "close");
    const refusals: string[] = [];
    await using forwarded = await forwardPort(client, {
      ...at(port),
      onRefused: (message) => refusals.push(message),
    });
    const socket = open(forwarded.port);
    await new Promise((resolve) => socket.once("close", resolve));
    assert.deepEqual(refusals, [`localhost:${port}: Connection refused`]);
  });

  test("resets open streams when the connection is cut and keeps the ports open, in both directions", async (t) => {
    const { url } = await startServer(t);
    await using proxy = await FaultProxy.before(url);
    const client = await connectTo(t, proxy.url);
    const port = await target(t, (socket) => socket.pipe(socket));
    await using forwarded = await forwardPort(client, at(port));
    await using back = await forwardPortBack(client, at(port));
    for (let round = 0; round < 20; round++) {
      const sockets = [forwarded.port, back.port].map((one) => connect(one, "127.0.0.1"));
      const ends = sockets.map((socket) => {
        socket.write("hello");
        return once(socket, "data");
      });
      await Promise.all(ends);
      const errors = sockets.map((socket) => once(socket, "error"));
      proxy.cut(round % 2 === 0 ? {} : { reset: true });
      for (const [error] of await Promise.all(errors)) assert.equal(error.code, "ECONNRESET");
    }
  });

  test("is off unless the server allows it, and reaches only allowed targets", async (t) => {
    const off = await connectTo(t, (await startServer(t, {})).url);
    const message = "forwarding is off at this server; start it with `--allow-forward` to allow it";
    await assert.rejects(off.forwards.open("localhost", 80), { code: "EINVAL", message });
    await assert.rejects(
      off.forwards.listenAddress({ host: "127.0.0.1", port: 0 }, () => undefined),
      { code: "EINVAL", message },
    );
    await assert.rejects(
      off.forwards.watchPorts(() => undefined),
      { code: "EINVAL", message },
    );
    const on = await connectTo(t, (await startServer(t)).url);
    for (const host of ["10.0.0.1", "example.com", "127.0.0.1.example.com", "0.0.0.0", "::", "0"])
      await assert.rejects(on.forwards.open(host, 80), {
        code: "EINVAL",
        message: /is not allowed; start the server with `--allow-forward /,
      });
    await assert.rejects(
      on.forwards.listenAddress({ host: "0.0.0.0", port: 0 }, () => undefined),
      { message: /is not allowed/ },
    );
    const port = await target(t, (socket) => socket.end("named"));
    const named = await connectTo(t, (await startServer(t, { allowForward: [`127.0.0.1:${port}`] })).url);
    await using forwarded = await forwardPort(named, { port: 0, target: { host: "127.0.0.1", port } });
    assert.equal(String(await received(open(forwarded.port))), "named");
    await assert.rejects(named.forwards.open("127.0.0.1", port + 1), { message: /is not allowed/ });
  });

  test("keeps streams to the connection that opened them", async (t) => {
    const { url } = await startServer(t);
    const [one, other] = [await connectTo(t, url), await connectTo(t, url)];
    const port = await target(t, (socket) => socket.pipe(socket));
    await one.call("forward/open", { streamId: "s", host: "127.0.0.1", port });
    await one.call("forward/write", { streamId: "s", chunk: Buffer.from("mine") });
    const write = other.call("forward/write", { streamId: "s", chunk: Buffer.from("x") });
    await assert.rejects(write, { message: "unknown stream s" });
    // Closing an unknown stream succeeds and closes no stream of another client.
    await other.call("forward/close", { streamId: "s" });
    await one.call("forward/write", { streamId: "s", chunk: Buffer.from("still mine") });
    const { port: listened } = await one.call("forward/listen", { listenId: "l", port: 0 });
    await other.call("forward/unlisten", { listenId: "l" });
    const socket = open(listened ?? assert.fail("no port"));
    await once(socket, "connect");
    socket.destroy();
  });

  test("limits the number of streams, and the unacknowledged bytes of each stream", async (t) => {
    const caps = { ...DEFAULT_SERVER_CAPS, forwardStreams: { perOwner: 2, total: 3 }, forwardListeners: 1 };
    const { url, metrics } = await startServer(t, { allowForward: ["loopback"], caps });
    const client = await connectTo(t, url);
    const port = await target(t, (socket) => socket.pause());
    const stream = (streamId: string, from = client) =>
      from.call("forward/open", { streamId, host: "127.0.0.1", port });
    await stream("a");
    await stream("b");
    await assert.rejects(stream("b"), { message: "stream b already exists" });
    await assert.rejects(stream("c"), {
      message: "too many forwarded streams: this connection may have 2 at once; close one first",
    });
    const second = await connectTo(t, url);
    await stream("a", second);
    await assert.rejects(stream("b", second), {
      message: /^too many forwarded streams: this server may have 3/,
    });
    await client.call("forward/listen", { listenId: "l", port: 0 });
    await assert.rejects(client.call("forward/listen", { listenId: "m", port: 0 }), {
      message: /^too many forwarding listeners: this server may have 1/,
    });
    await client.call("forward/unlisten", { listenId: "l" });
    await client.call("forward/listen", { listenId: "m", port: 0 });
    const chunk = Buffer.alloc(64 * 1024);
    const refusals: string[] = [];
    for (let count = 0; count < 400; count++)
      client.call("forward/write", { streamId: "a", chunk }).catch((error: Error) => refusals.push(error.message));
    await until("some are refused", () => refusals.length > 0);
    assert.match(
      refusals[0] ?? "",
      /^stream a has \d+ pending bytes, the limit is \d+; await the responses to earlier writes first/,
    );
    await client.close();
    await second.close();
    await until("all streams are closed", () => metrics.forwardStreams === 0);
  });

  test("logs principal and target of each accepted and rejected forward", async (t) => {
    using scratch = scratchDirectory();
    const file = `${scratch.path}/audit`;
    const { url } = await startServer(t, { allowForward: ["loopback"] }, new AuditLog(file));
    const client = await connectTo(t, url);
    const port = await target(t, (socket) => socket.end());
    await client.forwards.open("localhost", port);
    await assert.rejects(client.forwards.open("10.0.0.1", 80));
    const { port: listened } = await client.forwards.listenAddress({ host: "127.0.0.1", port: 0 }, () => undefined);
    const events = readFileSync(file, "utf8")
      .trim()
      .split("\n")
      .map((line) => JSON.parse(line))
      .filter(({ event }) => event.startsWith("forward"));
    assert.deepEqual(
      events.map(({ event, outcome, target: to, port: bound, principal }) => [event, outcome, to, bound, principal]),
      [
        ["forward/open", "allowed", `localhost:${port}`, undefined, "local"],
        ["forward/open", "refused", "10.0.0.1:80", undefined, "local"],
        ["forward/listen", "allowed", "127.0.0.1:0", listened, "local"],
      ],
    );
  });
});

describe("procwire forward", { timeout: 600_000 }, () => {
  let server: ServeChild;
  before(async () => {
    server = await new ServeChild(["--listen", "ws://127.0.0.1:0", "--allow-forward"]).listening();
  });
  after(() => server.stop());
  const forward = (...args: string[]) =>
    startCli(["forward", "--connect", server.url, ...args], { cwd: import.meta.dirname });

  test("forwards a local port to a remote port, and a remote port to a local port", async (t) => {
    const port = await target(t, (socket) => socket.pipe(socket));
    for (const args of [[], ["-R"]]) {
      const running = forward(...args, `0:localhost:${port}`);
      await until("it listens", () => running.stderr.includes("forwards to"), running.ended);
      const [, listened] = /127\.0\.0\.1:(\d+)/.exec(running.stderr) ?? [];
      const socket = open(Number(listened));
      socket.end("hello");
      assert.equal(String(await received(socket)), "hello");
      running.child.kill("SIGINT");
      const { code, stderr } = await running.ended;
      const line =
        args.length === 0
          ? `127.0.0.1:${listened} forwards to localhost:${port} on the server`
          : `127.0.0.1:${listened} on the server forwards to localhost:${port}`;
      assert.deepEqual({ code, stderr }, { code: 0, stderr: `procwire forward: ${line}\n` });
    }
  });

  test("back continues on the same port in a new session, without another call of the program", async (t) => {
    using scratch = scratchDirectory();
    const port = await target(t, (socket) => socket.pipe(socket));
    const args = ["--listen", `unix://${scratch.path}/socket`, "--allow-forward"];
    let running = await new ServeChild(args).listening();
    t.after(() => running.stop());
    const states: string[] = [];
    await using client = await NodeExecServerClient.connectUnix({
      path: `${scratch.path}/socket`,
      onConnectionState: ({ type }) => states.push(type),
    });
    const back = await forwardPortBack(client, { port: 0, target: { host: "localhost", port } });
    const echoes = (listening: number) =>
      new Promise<boolean>((resolve) => {
        let text = "";
        const socket = open(listening);
        socket.on("data", (chunk) => {
          text += chunk;
        });
        socket.on("close", () => resolve(text === "hello"));
        socket.end("hello");
      });
    assert.ok(await echoes(back.port));
    for (let restarts = 1; restarts <= 2; restarts++) {
      process.kill(running.serverPid(), "SIGKILL");
      await running.exited;
      running = await new ServeChild(args).listening();
      await until("a new session", () => states.filter((type) => type === "sessionLost").length === restarts);
      await until("the forward listens again", () => echoes(back.port));
    }
    await back.close();
  });

  test("continues in a new session after a restart of the server, and exits if that server rejects it", async (t) => {
    using scratch = scratchDirectory();
    const port = await target(t, (socket) => socket.pipe(socket));
    const listenAt = ["--listen", `unix://${scratch.path}/socket`, "--allow-forward"];
    let restarting = await new ServeChild(listenAt).listening();
    t.after(() => restarting.stop());
    const restart = async (...args: string[]) => {
      process.kill(restarting.serverPid(), "SIGKILL");
      await restarting.exited;
      restarting = await new ServeChild([...listenAt, ...args]).listening();
    };
    const remote = await freePort();
    const running = startCli(
      ["forward", "--connect", restarting.url, `0:localhost:${port}`, "-R", `${remote}:localhost:${port}`],
      { cwd: scratch.path },
    );
    const listens = () => running.stderr.split("on the server forwards to").length - 1;
    await until("it listens", () => listens() === 1, running.ended);
    const [, local] = /127\.0\.0\.1:(\d+)/.exec(running.stderr) ?? [];
    await restart();
    await until("it listens again", () => listens() === 2, running.ended);
    for (const socket of [open(Number(local)), open(remote)]) {
      socket.end("again");
      assert.equal(String(await received(socket)), "again");
    }
    assert.match(running.stderr, /session lost: .*unknown session id/);
    const tokenFile = join(scratch.path, "token");
    writeFileSync(tokenFile, "a-token-that-the-client-lacks");
    await restart("--ws-auth", "capability-token", "--ws-token-file", tokenFile);
    const { code, stderr } = await running.ended;
    assert.equal(code, 1, stderr);
    assert.match(stderr, /procwire forward: .*HTTP 401/);
  });

  test("forwards Unix sockets in both directions, and the names of a SOCKS5 proxy to the server", async (t) => {
    using scratch = scratchDirectory();
    const path = (name: string) => join(scratch.path, name);
    const port = await target(t, (socket) => socket.pipe(socket));
    const service = createServer((socket) => socket.end("from the socket")).listen(path("service"));
    await once(service, "listening");
    t.after(() => service.close());
    await using any = await new ServeChild(["--listen", "ws://127.0.0.1:0", "--allow-forward", "any"]).listening();
    const running = startCli(
      [
        ...["forward", "--connect", any.url, "-L", `${path("local")}:localhost:${port}`, "-L", `0:${path("service")}`],
        ...["-R", `${path("remote")}:${path("service")}`, "-R", `0:localhost:${port}`, "-D", "0"],
      ],
      { cwd: scratch.path },
    );
    await until("it listens", () => running.stderr.includes("SOCKS5"), running.ended);
    const [localLine = "", toSocket = "", remoteLine = "", reverse = "", socks = ""] = running.stderr.split("\n");
    assert.equal(localLine, `procwire forward: ${path("local")} forwards to localhost:${port} on the server`);
    assert.equal(remoteLine, `procwire forward: ${path("remote")} on the server forwards to ${path("service")}`);
    const portOf = (line: string) => Number(/127\.0\.0\.1:(\d+)/.exec(line)?.[1]);
    for (const name of ["local", "remote"]) assert.equal(statSync(path(name)).mode & 0o777, 0o600);

    const echo = connect({ path: path("local"), allowHalfOpen: true });
    echo.end("through a local socket");
    assert.equal(String(await received(echo)), "through a local socket");
    assert.equal(String(await received(open(portOf(toSocket)))), "from the socket");
    assert.equal(String(await received(connect(path("remote")))), "from the socket");
    const back = open(portOf(reverse));
    back.end("and back");
    assert.equal(String(await received(back)), "and back");

    const client = open(portOf(socks));
    client.write(Uint8Array.of(5, 1, 0, 5, 1, 0, 3, 9, ...Buffer.from("localhost"), port >> 8, port & 255));
    client.end("by name");
    const answer = await received(client);
    assert.deepEqual([[...answer.subarray(0, 4)], String(answer.subarray(12))], [[5, 0, 5, 0], "by name"]);
    const unused = await freePort();
    const refused = open(portOf(socks));
    refused.write(Uint8Array.of(5, 1, 0, 5, 1, 0, 3, 9, ...Buffer.from("localhost"), unused >> 8, unused & 255));
    const CONNECTION_REFUSED = 5;
    assert.deepEqual([...(await received(refused)).subarray(0, 4)], [5, 0, 5, CONNECTION_REFUSED]);
    running.child.kill("SIGINT");
    assert.equal((await running.ended).code, 0);
    await until("both sockets are removed", () => !existsSync(path("local")) && !existsSync(path("remote")));
  });

  test("reports a refusal of the server before the first port listens", async () => {
    await using off = await new ServeChild(["--listen", "ws://127.0.0.1:0"]).listening();
    const refused = "forwarding is off at this server; start it with `--allow-forward` to allow it";
    const isOff = [["8080"], ["-R", "0:localhost:80"], ["-D", "0"], ["-L", "0:/run/x.sock"]];
    const notAllowed = [
      [["0:localhost:80", "-L", "0:db.internal:5432"], "db.internal:5432"],
      [["-L", "0:/run/x.sock"], "/run/x.sock"],
      [["-R", "*:0:localhost:80"], "0.0.0.0:0"],
    ] as const;
    const outcomes = await runMain(
      [
        ...isOff.map((args) => ["forward", "--connect", off.url, ...args]),
        ...notAllowed.map(([args]) => ["forward", "--connect", server.url, ...args]),
      ],
      { cwd: "/" },
    );
    const messages = [
      ...isOff.map(() => refused),
      ...notAllowed.map(
        ([, wanted]) =>
          `forwarding to \`${wanted}\` is not allowed; start the server with \`--allow-forward ${wanted}\` to allow it`,
      ),
    ];
    assert.deepEqual(
      outcomes.map(({ code, stderr }) => ({ code, stderr })),
      messages.map((message) => ({ code: 1, stderr: `procwire forward: ${message}\n` })),
    );
  });

  test("opens a local port of the same number for each port that a process of the session listens on", async () => {
    const program = `
      const server = require("node:http").createServer((_, answer) => answer.end("from inside"));
      server.listen(0, "127.0.0.2", () => console.log("port " + server.address().port));`;
    const running = startCli(
      ["run", "--connect", server.url, "--forward", "auto", "--", process.execPath, "-e", program],
      { cwd: import.meta.dirname },
    );
    await until("the port is offered", () => running.stderr.includes("is offered at"), running.ended);
    const [, port] = /port (\d+) is offered at 127\.0\.0\.1:\1\n/.exec(running.stderr) ?? [];
    assert.ok(port !== undefined, running.stderr);
    const response = await fetch(`http://127.0.0.1:${port}/`);
    assert.equal(await response.text(), "from inside");
    running.child.kill("SIGTERM");
    await running.ended;
  });

  test("reports invalid arguments", async () => {
    for (const [args, message] of [
      [[], "nothing to forward; give a SPEC such as 8080 or 8080:localhost:80, -L, -R or -D"],
      [
        ["http"],
        "invalid SPEC `http`; expected [BIND:]PORT[:HOST:PORT], with the path of a socket instead of either side",
      ],
      [["-D", "x"], "invalid -D `x`; expected [BIND:]PORT"],
      [["--forward", "all"], "unsupported --forward `all`; expected auto"],
    ] as const) {
      const { code, stderr } = await forward(...args).ended;
      assert.deepEqual(
        { code, stderr },
        { code: 2, stderr: `procwire forward: ${message}; see \`procwire forward --help\`\n` },
      );
    }
  });
});
