import assert from "node:assert/strict";
import { spawnSync } from "node:child_process";
import { createHash, createHmac } from "node:crypto";
import { existsSync, statSync, writeFileSync } from "node:fs";
import { connect } from "node:net";
import { networkInterfaces } from "node:os";
import { join } from "node:path";
import { describe, test } from "node:test";
import { WebSocket } from "ws";
import { rawTcp, sh, startParams, WireClient, webSocketWire } from "../support/servers/raw-connection.ts";
import { isAlive, ServeChild, scratchDirectory, serve } from "../support/servers/serve.ts";
import { until } from "../support/system/until.ts";

/** Runs `procwire serve` with arguments that it rejects, until it exits. */
async function runToEnd(...args: string[]): Promise<{ code: number | null; stdout: string; stderr: string }> {
  const child = new ServeChild(args);
  let stdout = "";
  child.child.stdout?.setEncoding("utf8").on("data", (text: string) => {
    stdout += text;
  });
  const { code } = await child.exited;
  return { code, stdout, stderr: child.stderr };
}

async function httpStatus(url: string, path: string, init: RequestInit = {}): Promise<Response> {
  return fetch(`${url.replace(/^ws/, "http")}${path}`, init);
}

/** Returns status and body of a rejected WebSocket upgrade. */
function upgradeRefusal(url: string, headers: Record<string, string> = {}): Promise<{ status: number; body: string }> {
  return new Promise((resolve, reject) => {
    const socket = new WebSocket(url, { headers });
    socket.on("open", () => {
      socket.close();
      reject(new Error("it was let in"));
    });
    socket.on("error", () => undefined);
    socket.on("unexpected-response", (_, response) => {
      let body = "";
      response.setEncoding("utf8");
      response.on("data", (text: string) => {
        body += text;
      });
      response.on("end", () => resolve({ status: response.statusCode ?? 0, body }));
    });
  });
}

describe("starting", () => {
  test("prints the URL alone on stdout, and the same URL as a word of the first line on stderr", async () => {
    await using server = await serve();
    assert.match(server.stdout, /^ws:\/\/127\.0\.0\.1:\d+\n$/);
    const [first] = server.stderr.split("\n");
    assert.ok(first?.split(" ").includes(server.url), server.stderr);
    await using client = await server.connect();
    await client.handshake();
    await server.stop();
    assert.equal(server.stdout, `${server.url}\n`);
  });

  const hasIpv6 = Object.values(networkInterfaces()).some((all) => all?.some(({ address }) => address === "::1"));
  test("listens on IPv6 loopback", { skip: !hasIpv6 && "this machine has no ::1" }, async () => {
    await using server = await new ServeChild(["--listen", "ws://[::1]:0"]).listening();
    assert.match(server.url, /^ws:\/\/\[::1\]:\d+$/);
    await using client = await server.connect();
    await client.handshake();
  });

  test("a unix socket is accessible to its owner only, and is removed at exit", async () => {
    using scratch = scratchDirectory();
    const path = join(scratch.path, "s");
    await using server = await new ServeChild(["--listen", `unix://${path}`]).listening();
    assert.equal(server.url, `unix://${path}`);
    assert.ok(server.stderr.split("\n")[0]?.split(" ").includes(server.url));
    assert.equal(statSync(path).mode & 0o777, 0o600);
    await using client = await server.connect();
    await client.handshake();
    const second = await runToEnd("--listen", `unix://${path}`);
    assert.equal(second.code, 1);
    assert.match(second.stderr, /another server is listening there/);
    await server.stop();
    assert.ok(!existsSync(path));
  });

  test("a socket file of a dead server is replaced, any other file is not", async () => {
    using scratch = scratchDirectory();
    const stale = join(scratch.path, "stale");
    const leaves = `require("node:net").createServer().listen(${JSON.stringify(stale)}, () => process.kill(process.pid, "SIGKILL"))`;
    spawnSync(process.execPath, ["-e", leaves]);
    assert.ok(existsSync(stale));
    await using server = await new ServeChild(["--listen", `unix://${stale}`]).listening();
    assert.equal(server.url, `unix://${stale}`);
    const file = join(scratch.path, "file");
    writeFileSync(file, "mine");
    const refused = await runToEnd("--listen", `unix://${file}`);
    assert.equal(refused.code, 2);
    assert.ok(existsSync(file));
  });

  for (const [url, message] of [
    ["http://127.0.0.1:1", "unsupported --listen URL `http://127.0.0.1:1`; expected "],
    ["ws://localhost:1", "invalid websocket --listen URL `ws://localhost:1`; expected `ws://IP:PORT`"],
  ] as const) {
    test(`refuses --listen ${url} in one line, exit code 1`, async () => {
      const { code, stdout, stderr } = await runToEnd("--listen", url);
      assert.equal(code, 1);
      assert.equal(stdout, "");
      assert.ok(stderr.startsWith(message), stderr);
      assert.equal(stderr.trim().split("\n").length, 1, stderr);
    });
  }

  test("rejects an address that is in use", async () => {
    await using server = await serve();
    const { code, stderr } = await runToEnd("--listen", server.url);
    assert.equal(code, 1);
    assert.match(stderr, /EADDRINUSE|in use/);
    assert.equal(stderr.trim().split("\n").length, 1, stderr);
  });

  test("rejects a listen address beyond loopback without authentication", async () => {
    for (const url of ["ws://0.0.0.0:0", "ws://[::]:0"]) {
      const { code, stdout, stderr } = await runToEnd("--listen", url);
      assert.equal(code, 1);
      assert.equal(stdout, "");
      assert.match(stderr, /refusing to listen on .* without authentication/);
    }
  });

  test("rejects unknown and unusable flags with exit code 2", async () => {
    for (const args of [
      ["--nonsense"],
      ["--max-processes", "many"],
      ["--detached-session-ttl=-1"],
      ["--on-detach", "x"],
      ["--max-message-bytes", "536870889"],
    ]) {
      const { code, stderr } = await runToEnd(...args);
      assert.equal(code, 2, stderr);
      assert.equal(stderr.trim().split("\n").length, 1, stderr);
    }
  });

  test("--help lists every flag and the unit of durations", async () => {
    const child = new ServeChild(["--help"]);
    let text = "";
    child.child.stdout?.setEncoding("utf8").on("data", (part: string) => {
      text += part;
    });
    assert.equal((await child.exited).code, 0);
    for (const flag of [
      "--listen",
      "--max-processes",
      "--max-connections",
      "--max-message-bytes",
      "--retained-output-bytes",
      "--detached-session-ttl SECONDS",
      "--shutdown-grace SECONDS",
      "--on-detach",
      "--allow-direct-exec",
      "--allow-prepared-exec",
      "--ws-auth",
      "--ws-token-file",
      "--ws-token-sha256",
      "--ws-shared-secret-file",
      "--ws-issuer",
      "--ws-audience",
      "--ws-max-clock-skew-seconds",
      "--config",
    ]) {
      assert.ok(text.includes(flag), `the help lacks ${flag}`);
    }
  });

  test("a JSON file can set the same options; flags override it", async () => {
    using scratch = scratchDirectory();
    const path = join(scratch.path, "config.json");
    writeFileSync(path, JSON.stringify({ listen: "ws://127.0.0.1:0", maxProcesses: 1, allowDirectExec: false }));
    await using server = await new ServeChild(["--config", path, "--allow-direct-exec"]).listening();
    await using client = await server.connect();
    await client.handshake();
    await client.start("one", sh("sleep 100"));
    assert.match(
      (await client.refused("process/start", startParams("two", ["true"]))).message,
      /^too many processes: /,
    );
    writeFileSync(path, JSON.stringify({ maxProceses: 1 }));
    const wrong = await runToEnd("--config", path);
    assert.equal(wrong.code, 2);
    assert.match(wrong.stderr, /unknown option `maxProceses`/);
    writeFileSync(path, "{");
    assert.equal((await runToEnd("--config", path)).code, 2);
  });
});

describe("stopping", () => {
  for (const signal of ["SIGTERM", "SIGINT"] as const) {
    test(`${signal} ends every process, reports each exit, and exits 0`, async () => {
      await using server = await serve("--shutdown-grace", "0.3");
      await using client = await server.connect();
      await client.handshake();
      const immune = "trap '' TERM HUP INT; echo $$; setsid sleep 1000 & echo $!; while :; do sleep 0.05; done";
      await client.start("immune", sh(immune));
      await client.start("terminal", sh("echo $$; sleep 1000"), { tty: true });
      await client.start("polite", sh("trap 'echo bye; exit 0' TERM; echo $$; while :; do sleep 0.05; done"));
      await client.until(
        "four pids",
        () =>
          client.output("immune").split("\n").length === 3 &&
          ["terminal", "polite"].every((id) => client.output(id).includes("\n")),
      );
      const pids = ["immune", "terminal", "polite"].flatMap((id) => client.output(id).trim().split("\n").map(Number));
      assert.equal(pids.length, 4);
      const exit = await server.stop(signal);
      assert.deepEqual(exit, { code: 0, signal: null });
      assert.deepEqual(pids.filter(isAlive), []);
      await client.ended();
      assert.ok(client.output("polite").includes("bye"));
      const exits = client.messages.filter(({ method }) => method === "process/exited");
      assert.deepEqual(
        exits.map(({ params }) => params?.reason),
        ["terminated", "terminated", "terminated"],
      );
    });
  }

  test("does not wait for an HTTP request that never ends, nor for a client that does not close", async () => {
    await using server = await serve("--shutdown-grace", "0");
    const { socket, closed } = await rawTcp(server.url.replace("ws", "http"));
    socket.write("GET /readyz HTTP/1.1\r\nhost: localhost\r\nx-never:");
    const silent = await rawTcp(server.url.replace("ws", "http"));
    silent.socket.write(
      "GET / HTTP/1.1\r\nhost: localhost\r\nconnection: upgrade\r\nupgrade: websocket\r\nsec-websocket-version: 13\r\nsec-websocket-key: AAAAAAAAAAAAAAAAAAAAAA==\r\n\r\n",
    );
    await until("the upgrade", () => silent.received().includes("101"));
    const exit = await server.stop();
    assert.deepEqual(exit, { code: 0, signal: null });
    await closed;
    await silent.closed;
  });

  test("a second signal ends the grace period", async () => {
    await using server = await serve("--shutdown-grace", "1000");
    await using client = await server.connect();
    await client.handshake();
    await client.start("immune", sh("trap '' TERM; echo $$; while :; do sleep 0.05; done"));
    await client.outputContains("immune", "\n");
    const pid = Number(client.output("immune"));
    server.child.kill("SIGTERM");
    await until("the server to stop accepting", async () => {
      const probe = connect(Number(new URL(server.url).port), "127.0.0.1");
      return new Promise((resolve) => {
        probe.on("connect", () => {
          probe.destroy();
          resolve(false);
        });
        probe.on("error", () => resolve(true));
      });
    });
    // The server ignores a second signal right after the first, so the test repeats the signal.
    const again = setInterval(() => server.child.kill("SIGTERM"), 50);
    const { code } = await server.exited;
    clearInterval(again);
    assert.equal(code, 0);
    await until("the process is gone", () => !isAlive(pid));
  });

  test("the end of stdin on stdio ends the children and exits 0", async () => {
    await using server = new ServeChild(["--shutdown-grace", "0.2"], { stdin: "pipe" });
    const client = server.overStdio();
    await client.handshake();
    await client.start("p", sh("trap '' TERM; echo $$; while :; do sleep 0.05; done"));
    await client.start("t", sh("echo $$; sleep 1000"), { tty: true });
    await client.until("two pids", () => ["p", "t"].every((id) => client.output(id).includes("\n")));
    const pids = ["p", "t"].map((id) => Number(client.output(id)));
    server.child.stdin?.end();
    assert.deepEqual(await server.exited, { code: 0, signal: null });
    assert.deepEqual(pids.filter(isAlive), []);
    assert.ok(
      client.texts.every((text) => text.startsWith("{")),
      "something else than messages on stdout",
    );
  });

  test("a protocol error on stdio ends the server too, with exit code 0", async () => {
    await using server = new ServeChild([], { stdin: "pipe" });
    const client = server.overStdio();
    client.notify("initialized");
    assert.equal(await client.ended(), 0);
    assert.deepEqual(client.texts, []);
  });

  test("on stdio a last line without a newline still gets a response", async () => {
    await using server = new ServeChild([], { stdin: "pipe" });
    const client = server.overStdio();
    server.child.stdin?.end('{"id":1,"method":"initialize","params":{"clientName":"x"}}');
    const answer = await client.waitFor("the answer", ({ id }) => id === 1);
    assert.equal(answer.result?.protocolVersion, "exec-server.v0");
    assert.equal(await client.ended(), 0);
  });
});

describe("HTTP on the WebSocket port", () => {
  test("serves the health endpoints, and nothing else", async () => {
    await using server = await serve();
    const ready = await httpStatus(server.url, "/readyz");
    assert.deepEqual([ready.status, await ready.text()], [200, ""]);
    assert.equal((await httpStatus(server.url, "/readyz", { method: "HEAD" })).status, 200);
    const post = await httpStatus(server.url, "/readyz", { method: "POST" });
    assert.deepEqual([post.status, post.headers.get("allow")], [405, "GET,HEAD"]);
    const health = await httpStatus(server.url, "/healthz");
    assert.equal(health.status, 200);
    const report = (await health.json()) as { status: string; degraded: string[] };
    assert.equal(report.status, report.degraded.length === 0 ? "ok" : "degraded");
    assert.equal((await httpStatus(server.url, "/health")).status, 404);
    assert.equal((await httpStatus(server.url, "/../etc/passwd")).status, 404);
    const root = await httpStatus(server.url, "/");
    assert.deepEqual([root.status, await root.text()], [400, "Connection header did not include 'upgrade'"]);
    const postRoot = await httpStatus(server.url, "/", { method: "POST" });
    assert.deepEqual([postRoot.status, await postRoot.text()], [405, "Request method must be `GET`"]);
    assert.deepEqual(await upgradeRefusal(`${server.url}/other`), { status: 404, body: "" });
    await using client = new WireClient(await webSocketWire(`${server.url}/?query=1`));
    await client.handshake();
  });

  test("rejects an upgrade of another version or protocol", async () => {
    await using server = await serve();
    const ask = async (headers: string) => {
      const { socket, received, closed } = await rawTcp(server.url.replace("ws", "http"));
      socket.write(`GET / HTTP/1.1\r\nhost: localhost\r\nconnection: upgrade\r\n${headers}\r\n`);
      await closed;
      return received();
    };
    const key = "sec-websocket-key: AAAAAAAAAAAAAAAAAAAAAA==\r\n";
    const version = await ask(`upgrade: websocket\r\nsec-websocket-version: 12\r\n${key}`);
    assert.match(version, /^HTTP\/1\.1 400 .*`Sec-WebSocket-Version` header did not include '13'$/s);
    assert.match(await ask(`upgrade: h2c\r\n`), /^HTTP\/1\.1 400 /);
    assert.match(await ask(`upgrade: websocket\r\nsec-websocket-version: 13\r\n`), /^HTTP\/1\.1 400 /);
  });

  test("a request with a foreign Origin is rejected on every path, before any other check", async () => {
    using scratch = scratchDirectory();
    const token = join(scratch.path, "token");
    writeFileSync(token, "secret");
    await using server = await serve("--ws-auth", "capability-token", "--ws-token-file", token);
    for (const origin of ["http://evil.example", "null", "https://127.0.0.1", "http://127.0.0.1:1"]) {
      for (const path of ["/", "/readyz", "/healthz", "/nothing"]) {
        assert.equal((await httpStatus(server.url, path, { headers: { origin } })).status, 403);
      }
      assert.deepEqual(await upgradeRefusal(server.url, { origin, authorization: "Bearer secret" }), {
        status: 403,
        body: "",
      });
    }
  });

  test("a foreign DNS name that resolves to this machine does not make a page same-origin", async () => {
    await using server = await serve();
    const port = new URL(server.url).port;
    const ask = async (host: string) => {
      const { socket, received, closed } = await rawTcp(server.url.replace("ws", "http"));
      socket.write(
        `GET /readyz HTTP/1.1\r\nhost: ${host}:${port}\r\norigin: http://${host}:${port}\r\nconnection: close\r\n\r\n`,
      );
      await closed;
      return received().split("\r\n")[0];
    };
    assert.equal(await ask("rebound.example"), "HTTP/1.1 403 Forbidden");
    assert.equal(await ask("127.0.0.1"), "HTTP/1.1 200 OK");
  });

  test("responds to a request that arrives byte by byte, has a body, or comes from a half-closed socket", async () => {
    await using server = await serve();
    const url = server.url.replace("ws", "http");
    const bytes = await rawTcp(url);
    for (const byte of "GET /readyz HTTP/1.1\r\nhost: localhost\r\n\r\n") {
      bytes.socket.write(byte);
      await new Promise((resolve) => setImmediate(resolve));
    }
    await bytes.closed;
    assert.match(bytes.received(), /^HTTP\/1\.1 200 OK\r\n/);

    const body = await rawTcp(url);
    body.socket.write("POST / HTTP/1.1\r\nhost: localhost\r\ncontent-length: 10000000\r\n\r\n");
    body.socket.write(Buffer.alloc(10_000_000));
    await body.closed;
    assert.match(body.received(), /^HTTP\/1\.1 405 .*\r\n\r\nRequest method must be `GET`$/s);

    const done = await rawTcp(url);
    done.socket.end("GET /nothing HTTP/1.1\r\nhost: localhost\r\n\r\nGET /readyz HTTP/1.1\r\n\r\n");
    await done.closed;
    assert.match(done.received(), /^HTTP\/1\.1 404 Not Found\r\n(?:(?!HTTP).)*$/s);
  });

  test("rejects bytes that are not HTTP and keeps serving", async () => {
    await using server = await serve();
    const url = server.url.replace("ws", "http");
    for (const [text, status] of [
      ["\x16\x03\x01\x02\x00\x01\r\n\r\n", 400],
      ["GET / HTTP/1.1\r\nhost: a\r\nhost: b\r\n\r\n", 400],
      ["x".repeat(20_000), 431],
      ["GET / HTTP/3.0\r\n\r\n", 505],
    ] as const) {
      const { socket, received, closed } = await rawTcp(url);
      socket.write(text, "latin1");
      await closed;
      assert.match(received(), new RegExp(`^HTTP/1\\.1 ${status} `));
    }
    await using client = await server.connect();
    await client.handshake();
  });
});

describe("authentication", () => {
  test("accepts a capability token and rejects others", async () => {
    const sha256 = createHash("sha256").update("open sesame").digest("hex");
    await using server = await serve("--ws-auth", "capability-token", "--ws-token-sha256", sha256);
    assert.equal((await httpStatus(server.url, "/readyz")).status, 200);
    assert.deepEqual(await upgradeRefusal(server.url), {
      status: 401,
      body: "missing websocket bearer token",
    });
    assert.deepEqual(await upgradeRefusal(server.url, { authorization: "Basic x" }), {
      status: 401,
      body: "invalid authorization header",
    });
    assert.deepEqual(await upgradeRefusal(server.url, { authorization: "Bearer x" }), {
      status: 401,
      body: "invalid websocket bearer token",
    });
    // The scheme is case-insensitive. A token with a space cannot be sent unchanged.
    const token = createHash("sha256").update("word").digest("hex");
    await using other = await serve("--ws-auth", "capability-token", "--ws-token-sha256", token);
    await using client = await other.connect({ authorization: "bEaReR word" });
    await client.handshake();
  });

  test("accepts a valid signed token and rejects others", async () => {
    using scratch = scratchDirectory();
    const secret = "a secret of at least 32 bytes....";
    const path = join(scratch.path, "secret");
    writeFileSync(path, `${secret}\n`);
    const args = ["--ws-auth", "signed-bearer-token", "--ws-shared-secret-file", path, "--ws-issuer", "me"];
    await using server = await serve(...args);
    const jwt = (claims: object) => {
      const part = (value: object) => Buffer.from(JSON.stringify(value)).toString("base64url");
      const body = `${part({ alg: "HS256" })}.${part(claims)}`;
      return {
        authorization: `Bearer ${body}.${createHmac("sha256", secret).update(body).digest("base64url")}`,
      };
    };
    const soon = Math.floor(Date.now() / 1000) + 60;
    await using client = await server.connect(jwt({ exp: soon, iss: "me" }));
    await client.handshake();
    assert.deepEqual(await upgradeRefusal(server.url, jwt({ exp: 1, iss: "me" })), {
      status: 401,
      body: "expired websocket jwt",
    });
    assert.deepEqual(await upgradeRefusal(server.url, jwt({ exp: soon, iss: "you" })), {
      status: 401,
      body: "websocket jwt issuer mismatch",
    });
  });

  test("allows a server to listen beyond loopback", async () => {
    using scratch = scratchDirectory();
    const path = join(scratch.path, "token");
    writeFileSync(path, "secret");
    const args = ["--listen", "ws://0.0.0.0:0", "--ws-auth", "capability-token", "--ws-token-file", path];
    await using server = await new ServeChild(args).listening();
    assert.match(server.url, /^ws:\/\/0\.0\.0\.0:\d+$/);
  });

  test("prints login URLs that browsers can open if it listens on all network interfaces", async () => {
    using scratch = scratchDirectory();
    const path = join(scratch.path, "token");
    writeFileSync(path, "secret");
    const auth = ["--ws-auth", "capability-token", "--ws-token-file", path];
    const args = ["--listen", "ws://0.0.0.0:0", "--web", "--allow-host", "build.example", ...auth];
    await using server = await new ServeChild(args).listening();
    const { port } = new URL(server.url);
    const urls = Array.from(server.stderr.matchAll(/^web console.*: (\S+)#token=(\S+)$/gm), ([, url, token]) => ({
      url,
      token,
    }));
    assert.deepEqual(
      urls.map(({ url }) => url),
      [`http://127.0.0.1:${port}/`, `http://build.example:${port}/`],
    );
    assert.notEqual(urls[0]?.token, urls[1]?.token);
    const page = await fetch(urls[0]?.url ?? "");
    assert.match(await page.text(), /<html/);
  });

  test("incomplete authentication flags are rejected at start", async () => {
    const { code, stderr } = await runToEnd("--listen", "ws://127.0.0.1:0", "--ws-auth", "capability-token");
    assert.equal(code, 1);
    assert.match(stderr, /`--ws-token-file` or `--ws-token-sha256` is required/);
  });
});

describe("limits", () => {
  test("a start above the process cap is rejected; exited processes do not count", async () => {
    await using server = await serve("--max-processes", "2");
    await using client = await server.connect();
    await client.handshake();
    await client.start("ended", ["true"]);
    await client.finished("ended");
    await client.start("a", sh("sleep 100"));
    await client.start("b", sh("sleep 100"));
    assert.deepEqual(await client.refused("process/start", startParams("c", ["true"])), {
      code: -32600,
      message:
        "too many processes: this session may have 2 live processes at once; end one first, or raise --max-processes",
    });
    await client.call("process/terminate", { processId: "a" });
    await client.finished("a");
    await client.start("c", ["true"]);
    await using other = await server.connect();
    await other.handshake();
    await other.start("a", ["true"]);
    const exec = { argv: sh("sleep 100"), cwd: "/", env: {}, tty: false };
    await other.call("command/exec", exec);
    await other.call("command/exec", exec);
    assert.match((await other.refused("command/exec", exec)).message, /^too many processes: .* 2 /);
  });

  test("a connection above the cap receives 503, and a closed connection frees its slot", async () => {
    await using server = await serve("--max-connections", "1");
    const first = await server.connect();
    await first.handshake();
    const refused = await upgradeRefusal(server.url);
    assert.equal(refused.status, 503);
    assert.match(refused.body, /^too many connections: this server accepts at most 1/);
    await first.close();
    await until("a free place", async () => {
      const health = (await (await httpStatus(server.url, "/healthz")).json()) as { connections: number };
      return health.connections === 0;
    });
    await using second = await server.connect();
    await second.handshake();
  });

  test("a message that is too large closes the connection with 1009, and its session stays resumable", async () => {
    await using server = await serve("--max-message-bytes", "10000");
    const client = await server.connect();
    await client.handshake();
    await client.start("p", sh("read x; echo $x"), { pipeStdin: true });
    client.raw(JSON.stringify({ id: 1, method: "environment/status", more: "x".repeat(10_000) }));
    assert.equal(await client.ended(), 1009);
    await using again = await server.connect();
    await again.handshake({ resumeSessionId: client.sessionId });
    await again.write("p", "alive\n");
    assert.equal((await again.finished("p")).output, "alive\n");
  });

  test("disallowed start modes are rejected", async () => {
    await using server = await serve("--no-allow-direct-exec");
    await using client = await server.connect();
    await client.handshake();
    assert.deepEqual(await client.refused("process/start", startParams("p", ["true"])), {
      code: -32600,
      message: "direct exec is not allowed on this server",
    });
    const exec = { argv: ["true"], cwd: "/", env: {}, tty: false };
    assert.equal((await client.refused("command/exec", exec)).message, "direct exec is not allowed on this server");
    await client.start("p", ["true"], { mode: "prepared" });
    await using other = await serve("--no-allow-prepared-exec");
    await using second = await other.connect();
    await second.handshake();
    assert.equal(
      (await second.refused("process/start", startParams("p", ["true"], { mode: "prepared" }))).message,
      "prepared exec is not allowed on this server",
    );
    await second.start("p", ["true"]);
  });

  test("a retention given in bytes is applied", async () => {
    await using server = await serve("--retained-output-bytes", "100000");
    await using client = await server.connect();
    await client.handshake();
    await client.start("p", sh("head -c 1000000 /dev/zero"));
    await client.finished("p");
    const { chunks } = (await client.call("process/read", { processId: "p" })) as {
      chunks: { chunk: string }[];
    };
    const bytes = chunks.reduce((sum, { chunk }) => sum + Buffer.from(chunk, "base64").length, 0);
    assert.ok(bytes <= 100_000 && bytes > 0);
  });

  test("a detached session lives for the configured time", async () => {
    await using server = await serve("--detached-session-ttl", "0");
    const client = await server.connect();
    await client.handshake();
    await client.start("p", sh("echo $$; sleep 1000"));
    await client.outputContains("p", "\n");
    const pid = Number(client.output("p"));
    client.cut();
    await until("the process is gone", () => !isAlive(pid));
    await using again = await server.connect();
    const error = await again.refused("initialize", { clientName: "x", resumeSessionId: client.sessionId });
    assert.equal(error.message, `unknown session id ${client.sessionId}`);
  });
});
