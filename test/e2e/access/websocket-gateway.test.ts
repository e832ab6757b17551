/** Checks before a connection is accepted: the host name of the request, and tokens. */

import assert from "node:assert/strict";
import { createHmac } from "node:crypto";
import { connect } from "node:net";
import { join } from "node:path";
import { after, describe, test } from "node:test";
import { writeSecret } from "../../support/auth/secret-file.ts";
import { startCli } from "../../support/servers/run-cli.ts";
import { ServeChild, scratchDirectory, serve } from "../../support/servers/serve.ts";
import { until } from "../../support/system/until.ts";

const scratch = scratchDirectory();
after(() => scratch[Symbol.dispose]());

function file(name: string, content: string | Buffer): string {
  return writeSecret(scratch.path, name, content);
}

const UPGRADE =
  "connection: upgrade\r\nupgrade: websocket\r\nsec-websocket-version: 13\r\nsec-websocket-key: AAAAAAAAAAAAAAAAAAAAAA==\r\n";

/** Sends a request with the header lines `head`. Returns the whole HTTP response. */
function ask(url: string, head: string, path = "/healthz"): Promise<string> {
  const { hostname, port } = new URL(url);
  const socket = url.startsWith("unix://")
    ? connect(url.slice("unix://".length))
    : connect(Number(port), hostname.replace(/^\[|\]$/g, ""));
  let text = "";
  socket.on("data", (chunk: Buffer) => {
    text += chunk.toString("latin1");
    if (text.startsWith("HTTP/1.1 101")) socket.destroy();
  });
  socket.write(Buffer.from(`GET ${path} HTTP/1.1\r\n${head}\r\n`, "latin1"));
  return new Promise((resolve, reject) => {
    socket.on("close", () => resolve(text));
    socket.on("error", reject);
  });
}

/** The addon's sockets, and Node's sockets for a server without the addon. */
const SOCKETS = {
  "by the addon": {},
  "without the addon": { PROCWIRE_NATIVE_SPAWNER: "/nonexistent.node" },
};

const statusOf = (answer: string) => Number(answer.split(" ")[1]);

describe("the Host header of a request", () => {
  test("must be an address, localhost or a configured name; others are rejected with a remedy", async () => {
    await using server = await serve("--allow-host", "box.example", "--allow-host", "Other.Example");
    for (const host of [
      "rebound.example",
      "rebound.example:7070",
      "localhost.rebound.example",
      "127.0.0.1.rebound.example",
      "127.1",
      "0x7f000001",
      "[::1].rebound.example",
      "user@127.0.0.1",
      "",
    ]) {
      for (const [path, more] of [
        ["/healthz", ""],
        ["/readyz", ""],
        ["/nothing", ""],
        ["/", UPGRADE],
      ] as const) {
        const answer = await ask(server.url, `host: ${host}\r\n${more}`, path);
        assert.equal(statusOf(answer), 403, `${host} ${path}: ${answer}`);
        assert.match(answer, /`--allow-host NAME`$/);
      }
    }
    assert.equal(statusOf(await ask(server.url, "")), 403);
    for (const host of ["127.0.0.1", "10.0.0.1:9", "[::1]:80", "localhost", "LOCALHOST:1", "localhost."]) {
      assert.equal(statusOf(await ask(server.url, `host: ${host}\r\n`)), 200, host);
    }
    for (const host of ["box.example", "BOX.example:443", "other.example"]) {
      assert.equal(statusOf(await ask(server.url, `host: ${host}\r\n`)), 200, host);
      assert.equal(statusOf(await ask(server.url, `host: ${host}\r\n${UPGRADE}`, "/")), 101, host);
      const own = `host: ${host}\r\norigin: http://${host}\r\n`;
      assert.equal(statusOf(await ask(server.url, own)), 200, `a page of ${host} itself`);
    }
  });

  test("is not checked on a unix socket", async () => {
    await using server = await new ServeChild(["--listen", `unix://${join(scratch.path, "s")}`]).listening();
    assert.equal(statusOf(await ask(server.url, "host: rebound.example\r\n")), 200);
    assert.equal(statusOf(await ask(server.url, "")), 200);
  });
});

describe("a token", () => {
  test("of arbitrary bytes is read from a file by server and client alike", async () => {
    const token = file("bytes", Buffer.from([...Array.from({ length: 40 }, (_, i) => 0xff - i), 0x0a]));
    await using server = await serve("--ws-auth", "capability-token", "--ws-token-file", token);
    assert.equal(server.stderr.split("\n").length, 2, server.stderr);
    const args = ["run", "--connect", server.url, "--token-file", token, "--", "echo", "in"];
    const { code, stdout, stderr } = await startCli(args, { cwd: scratch.path }).ended;
    assert.deepEqual([code, stdout, stderr], [0, "in\n", ""]);
  });

  test("made by `--ws-auth auto` is shown once on stderr, and nowhere else", async () => {
    await using server = await serve("--ws-auth", "auto", "--log-level", "debug");
    await until("the hint", () => /shown this once: .*\n.*\n/.test(server.stderr));
    const token = /^its token, shown this once: ([\w-]{43})$/m.exec(server.stderr)?.[1] ?? "";
    assert.ok(token, server.stderr);
    const hint = server.stderr;
    assert.match(hint, new RegExp(`PROCWIRE_TOKEN=${token} procwire run --connect ${server.url} `));
    assert.equal(server.stdout, `${server.url}\n`);
    await using client = await server.connect({ authorization: `Bearer ${token}` });
    await client.handshake();
    await assert.rejects(server.connect({ authorization: "Bearer wrong" }), /401/);
    await assert.rejects(server.connect(), /401/);
    await client.close();
    await server.stop();
    assert.ok(!server.stderr.slice(hint.length).includes(token), server.stderr);
  });

  test("that is correct is not delayed while the server rejects many wrong tokens", async () => {
    const token = "r".repeat(40);
    await using server = await serve("--ws-auth", "capability-token", "--ws-token-file", file("right", token));
    const head = (word: string) => `host: localhost\r\nauthorization: Bearer ${word}\r\n${UPGRADE}`;
    const answered: number[] = [];
    const wrong = Array.from({ length: 20 }, async () => {
      answered.push(statusOf(await ask(server.url, head("wrong"), "/")));
    });
    answered.push(statusOf(await ask(server.url, head(token), "/")));
    await Promise.all(wrong);
    assert.deepEqual(answered, [101, ...Array.from({ length: 20 }, () => 401)]);
  });

  for (const [how, env] of Object.entries(SOCKETS)) {
    test(`signed, is verified while the socket waits, and frames sent with it are not lost, ${how}`, async () => {
      const secret = Buffer.alloc(40, 0xe9);
      const flags = ["--ws-auth", "signed-bearer-token", "--ws-shared-secret-file", file("signing", secret)];
      await using server = await new ServeChild(["--listen", "ws://127.0.0.1:0", ...flags], {
        env,
      }).listening();
      const part = (value: object) => Buffer.from(JSON.stringify(value)).toString("base64url");
      const body = `${part({ alg: "HS256" })}.${part({ exp: Date.now() / 1000 + 60 })}`;
      const jwt = `${body}.${createHmac("sha256", secret).update(body).digest("base64url")}`;
      const { hostname, port } = new URL(server.url);
      for (const split of [false, true]) {
        const socket = connect(Number(port), hostname);
        socket.setNoDelay(true);
        let text = "";
        socket.on("data", (chunk: Buffer) => {
          text += chunk.toString("latin1");
        });
        const request = '{"id":1,"method":"initialize","params":{"clientName":"x"}}';
        const frame = Buffer.concat([Buffer.from([0x81, 0x80 | request.length, 0, 0, 0, 0]), Buffer.from(request)]);
        const head = Buffer.from(
          `GET / HTTP/1.1\r\nhost: ${hostname}\r\nauthorization: Bearer ${jwt}\r\n${UPGRADE}\r\n`,
        );
        if (split) {
          socket.write(head);
          socket.write(frame.subarray(0, 10));
          setImmediate(() => socket.write(frame.subarray(10)));
        } else socket.write(Buffer.concat([head, frame]));
        await until("the answer to initialize", () => text.includes('"sessionId"'));
        assert.match(text, /^HTTP\/1\.1 101 /);
        socket.destroy();
      }
      // A peer that disconnects before authentication leaves nothing open.
      const gone = connect({ port: Number(port), host: hostname, allowHalfOpen: true });
      let isClosed = false;
      gone.on("end", () => {
        isClosed = true;
      });
      gone.resume();
      gone.end(`GET / HTTP/1.1\r\nhost: ${hostname}\r\nauthorization: Bearer ${jwt}\r\n${UPGRADE}\r\n`);
      await until("the server closes its side", () => isClosed);
      const refused = await ask(server.url, `host: ${hostname}\r\nauthorization: Bearer a.b.c\r\n${UPGRADE}`, "/");
      assert.match(refused, /^HTTP\/1\.1 401 .*\r\n\r\ninvalid websocket jwt$/s);
    });
  }

  test("that is too short causes a warning once the server listens", async () => {
    const path = file("short", "hunter2");
    await using server = await serve("--ws-auth", "capability-token", "--ws-token-file", path);
    await until("the warning", () => server.stderr.includes("short enough to guess"));
    assert.match(server.stderr, /^procwire exec-server listening on /);
    assert.ok(!server.stderr.includes("hunter2"));
  });
});
