import assert from "node:assert/strict";
import { randomBytes } from "node:crypto";
import { once } from "node:events";
import { copyFileSync, readFileSync, writeFileSync } from "node:fs";
import { connect as connectTcp, type Socket } from "node:net";
import { join } from "node:path";
import { describe, test } from "node:test";
import { connect as connectTls } from "node:tls";
import { NodeExecServerClient } from "../../../src/client/node/node-client.ts";
import { run } from "../../../src/exec/run/run-program.ts";
import { runCli } from "../../support/servers/run-cli.ts";
import { ServeChild, scratchDirectory } from "../../support/servers/serve.ts";
import { opensslMissing, TestAuthority } from "../../support/system/certificates.ts";
import { skipUnless } from "../../support/system/skip-unless.ts";
import { until } from "../../support/system/until.ts";

const missing = opensslMissing();
const OPTIONS = { timeout: 600_000, skip: skipUnless(missing === null, missing ?? "") };

function serveTls(files: { cert: string; key: string }, ...args: string[]): Promise<ServeChild> {
  const tls = ["--tls-cert", files.cert, "--tls-key", files.key];
  return new ServeChild(["--listen", "ws://127.0.0.1:0", ...tls, ...args]).listening();
}

describe("a server behind TLS", OPTIONS, () => {
  test("runs a command byte for byte for a client that trusts its authority", async () => {
    using scratch = scratchDirectory();
    const authority = new TestAuthority(scratch.path);
    await using server = await serveTls(authority.issue("IP:127.0.0.1"));
    assert.match(server.url, /^wss:\/\/127\.0\.0\.1:\d+$/);
    const tlsCa = readFileSync(authority.caFile, "utf8");
    await using client = await NodeExecServerClient.connectWebSocket({ url: server.url, tlsCa });
    const data = randomBytes(3_000_000);
    const { stdout } = await run(client.backend, ["cat"], { input: data, encoding: "buffer" });
    assert.ok(Buffer.from(stdout).equals(data));
    const cli = await runCli(["run", "--connect", server.url, "--tls-ca", authority.caFile, "--", "echo", "by name"], {
      cwd: scratch.path,
    });
    assert.deepEqual([cli.code, cli.stdout], [0, "by name\n"]);
  });

  test("is rejected with a remedy for an untrusted, foreign or expired certificate and for the wrong URL scheme", async () => {
    using scratch = scratchDirectory();
    const authority = new TestAuthority(scratch.path);
    const tlsCa = readFileSync(authority.caFile, "utf8");
    const refused = async (url: string, ca: string | undefined, message: RegExp) =>
      assert.rejects(NodeExecServerClient.connectWebSocket({ url, tlsCa: ca }), {
        name: "ExecServerError",
        message,
      });
    await using good = await serveTls(authority.issue("IP:127.0.0.1"));
    await refused(good.url, undefined, /^wss:.* is not trusted .* with `--tls-ca FILE`/);
    await refused(good.url.replace("wss:", "ws:"), undefined, /if the server speaks TLS, use wss:\/\/$/);
    await using other = await serveTls(authority.issue("DNS:other.example"));
    await refused(other.url, tlsCa, /certificate is for another name \(.*127\.0\.0\.1.*\)/);
    await using old = await serveTls(authority.issue("IP:127.0.0.1", -1));
    await refused(old.url, tlsCa, /has expired; replace it and send SIGHUP to the server$/);
    await using plain = await new ServeChild(["--listen", "ws://127.0.0.1:0"]).listening();
    await refused(
      plain.url.replace("ws:", "wss:"),
      tlsCa,
      /TLS failed: wrong version number; if the server does not speak TLS, use ws:\/\//,
    );
  });

  test("takes a new certificate on SIGHUP, keeps the old one when the new one is invalid, and drops no connection", async () => {
    using scratch = scratchDirectory();
    const authority = new TestAuthority(scratch.path);
    const ca = readFileSync(authority.caFile, "utf8");
    const files = authority.issue("IP:127.0.0.1");
    const next = authority.issue("IP:127.0.0.1");
    await using server = await serveTls(files, "--log-level", "info");
    const port = Number(new URL(server.url).port);
    await using client = await NodeExecServerClient.connectWebSocket({
      url: server.url,
      tlsCa: ca,
      reconnect: false,
    });
    assert.equal(await subjectAt(port, ca), "server 1");
    writeFileSync(files.cert, "-----BEGIN nothing");
    server.child.kill("SIGHUP");
    await until("the error in the log", () => server.stderr.includes("the previous one stays in use"));
    assert.equal(await subjectAt(port, ca), "server 1");
    copyFileSync(next.cert, files.cert);
    copyFileSync(next.key, files.key);
    server.child.kill("SIGHUP");
    await until("the reload in the log", () => server.stderr.includes("reloaded certificate and key"));
    assert.equal(await subjectAt(port, ca), "server 2");
    const { stdout } = await run(client.backend, ["echo", "still here"]);
    assert.equal(stdout, "still here\n");
  });

  test("reports which certificate or key file is unusable", async () => {
    using scratch = scratchDirectory();
    const authority = new TestAuthority(scratch.path);
    const [one, two] = [authority.issue("IP:127.0.0.1"), authority.issue("IP:127.0.0.1")];
    const refusal = async (...args: string[]) => {
      const { code, stderr } = await runCli(["serve", "--listen", "ws://127.0.0.1:0", ...args], {
        cwd: scratch.path,
      });
      assert.notEqual(code, 0);
      return stderr;
    };
    assert.match(
      await refusal("--tls-cert", one.cert, "--tls-key", two.key),
      /--tls-cert \S+ with --tls-key \S+: .*mismatch/,
    );
    assert.match(await refusal("--tls-cert", one.cert), /--tls-cert and --tls-key require each other/);
    assert.match(await refusal("--tls-cert", one.cert, "--tls-key", "/none"), /--tls-key \/none: ENOENT/);
    assert.match(await refusal("--tls-cert", one.key, "--tls-key", one.key), /--tls-cert \S+ with --tls-key/);
    const unix = await runCli(
      ["serve", "--listen", `unix://${scratch.path}/s`, "--tls-cert", one.cert, "--tls-key", one.key],
      { cwd: scratch.path },
    );
    assert.match(unix.stderr, /require --listen ws:\/\/IP:PORT/);
  });

  test("serves others while many connections never finish their handshake", async () => {
    using scratch = scratchDirectory();
    const authority = new TestAuthority(scratch.path);
    await using server = await serveTls(authority.issue("IP:127.0.0.1"));
    const port = Number(new URL(server.url).port);
    const silent: Socket[] = [];
    for (let count = 0; count < 300; count++) {
      const socket = connectTcp(port, "127.0.0.1");
      socket.on("error", () => undefined);
      silent.push(socket);
    }
    await until("the oldest sockets to be closed", () => silent.filter((socket) => socket.closed).length >= 300 - 256);
    const tlsCa = readFileSync(authority.caFile, "utf8");
    await using client = await NodeExecServerClient.connectWebSocket({ url: server.url, tlsCa });
    assert.equal((await run(client.backend, ["echo", "in"])).stdout, "in\n");
    for (const socket of silent) socket.destroy();
  });
});

async function subjectAt(port: number, ca: string): Promise<string> {
  const socket = connectTls({ port, host: "127.0.0.1", ca });
  await once(socket, "secureConnect");
  const { CN } = socket.getPeerCertificate().subject;
  socket.destroy();
  return String(CN);
}

describe("a token over plain ws://", { timeout: 600_000 }, () => {
  test("is sent to loopback only, unless a flag allows other hosts", async () => {
    const refused = {
      message: /^cannot send a token to 192\.0\.2\.1:7070 over plain ws:\/\/: .*; use wss:/,
    };
    const url = "ws://192.0.2.1:7070";
    for (const plain of [url, "WS://192.0.2.1:7070"])
      await assert.rejects(NodeExecServerClient.connectWebSocket({ url: plain, authToken: "secret" }), refused);
    for (const host of ["127.0.0.1", "localhost", "[::1]"])
      await assert.rejects(NodeExecServerClient.connectWebSocket({ url: `ws://${host}:1`, authToken: "secret" }), {
        code: "ECONNREFUSED",
      });
    const { code, stderr } = await runCli(["run", "--connect", url, "--", "true"], {
      cwd: "/",
      env: { PROCWIRE_TOKEN: "secret" },
    });
    assert.equal(code, 125);
    assert.match(stderr, /^procwire run: cannot send a token .*`--insecure-plain-token`/);
  });

  test("reaches a server that was configured to accept it, which warns", async () => {
    using scratch = scratchDirectory();
    const token = join(scratch.path, "token");
    writeFileSync(token, "a-token-of-thirty-two-characters-");
    const auth = ["--ws-auth", "capability-token", "--ws-token-file", token];
    // This address does not look like loopback, but a connection to it stays on this machine.
    await using server = await new ServeChild(["--listen", "ws://0.0.0.0:0", ...auth]).listening();
    await until("the warning", () => server.stderr.includes("tokens are sent in plain text"));
    const words = ["--connect", server.url, "--token-file", token, "--", "echo", "in"];
    const refused = await runCli(["run", ...words], { cwd: scratch.path });
    assert.match(refused.stderr, /cannot send a token to 0\.0\.0\.0/);
    const cli = await runCli(["run", "--insecure-plain-token", ...words], { cwd: scratch.path });
    assert.deepEqual([cli.code, cli.stdout, cli.stderr], [0, "in\n", ""]);
  });
});
