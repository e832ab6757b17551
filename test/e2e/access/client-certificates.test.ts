import assert from "node:assert/strict";
import { once } from "node:events";
import { mkdtempSync, readFileSync } from "node:fs";
import { request } from "node:https";
import { join } from "node:path";
import { after, describe, test } from "node:test";
import { parseServeOptions } from "../../../src/cli/options/serve-options.ts";
import { NodeExecServerClient, type WebSocketClientOptions } from "../../../src/client/node/node-client.ts";
import { run } from "../../../src/exec/run/run-program.ts";
import { createLocalHost } from "../../../src/host/local-host.ts";
import { ExecServer } from "../../../src/server/exec-server.ts";
import { listen } from "../../../src/server/listen/listen.ts";
import { secretPath, writeSecret } from "../../support/auth/secret-file.ts";
import { ManualClock } from "../../support/manual-clock.ts";
import { runCli } from "../../support/servers/run-cli.ts";
import { ServeChild, scratchDirectory } from "../../support/servers/serve.ts";
import { type IssuedCertificate, opensslMissing, TestAuthority } from "../../support/system/certificates.ts";
import { skipUnless } from "../../support/system/skip-unless.ts";
import { until } from "../../support/system/until.ts";

const missing = opensslMissing();
const OPTIONS = { timeout: 600_000, skip: skipUnless(missing === null, missing ?? "") };
const TOKEN = "a-token-of-thirty-two-characters-";

const scratch = scratchDirectory();
after(() => scratch[Symbol.dispose]());

/** A server and its authorities, with a function that connects. */
function setUp() {
  const directory = mkdtempSync(join(scratch.path, "tls-"));
  const authority = new TestAuthority(directory);
  const identity = authority.issue("IP:127.0.0.1");
  const tlsCa = readFileSync(authority.caFile, "utf8");
  const optionsFor = (url: string, client?: IssuedCertificate): WebSocketClientOptions => ({
    ...{ url, tlsCa, reconnect: false },
    tlsCert: client && readFileSync(client.cert, "utf8"),
    tlsKey: client && readFileSync(client.key, "utf8"),
  });
  const connect = (url: string, client?: IssuedCertificate, more: Partial<WebSocketClientOptions> = {}) =>
    NodeExecServerClient.connectWebSocket({ ...optionsFor(url, client), ...more });
  const serve = (...args: string[]) => {
    const tls = ["--tls-cert", identity.cert, "--tls-key", identity.key, "--tls-client-ca", authority.caFile];
    return new ServeChild(["--listen", "ws://0.0.0.0:0", ...tls, ...args]).listening();
  };
  const refuses = (url: string, client: IssuedCertificate | undefined, message: RegExp) =>
    assert.rejects(connect(url, client), { name: "ExecServerError", message });
  return { directory, authority, identity, tlsCa, connect, serve, refuses };
}

const local = ({ url }: ServeChild) => url.replace("0.0.0.0", "127.0.0.1");

describe("a server with --tls-client-ca", OPTIONS, () => {
  test("accepts certificates of the authority only, beyond loopback, and the principal is the subject", async () => {
    const { directory, authority, connect, serve, refuses } = setUp();
    const audit = secretPath(directory, "audit.log");
    await using server = await serve("--audit", audit, "--operator-subject", "CN=root");
    const url = local(server);
    const alice = authority.issueClient("/O=Example, Inc/CN=alice");
    await using client = await connect(url, alice);
    assert.equal((await run(client.backend, ["echo", "in"])).stdout, "in\n");
    const foreign = new TestAuthority(mkdtempSync(join(scratch.path, "foreign-"))).issueClient("/CN=alice");
    await refuses(url, undefined, /HTTP 401: client certificate required; pass --tls-cert and --tls-key/);
    await refuses(url, foreign, /HTTP 401: client certificate rejected: its authority is not accepted/);
    await refuses(url, authority.issueClient("/CN=old", -1), /client certificate rejected: it has expired/);
    await refuses(url, { ...alice, key: foreign.key }, /the key does not belong to the client certificate/);
    const root = authority.issueClient("/CN=root");
    const flags = ["--connect", url, "--tls-ca", authority.caFile, "--tls-cert", root.cert, "--tls-key", root.key];
    const list = await runCli(["access", "list", ...flags], { cwd: directory });
    assert.match(list.stdout, /cert:O=Example\\, Inc,CN=alice/);
    assert.match(list.stdout, /cert:CN=root/);
    const lines = () => readFileSync(audit, "utf8");
    await until("the audit lines", () => lines().includes("client certificate required"));
    assert.match(lines(), /"principal":"cert:O=Example\\\\, Inc,CN=alice"/);
    assert.match(lines(), /client certificate rejected: it has expired/);
    const half = await runCli(["ps", ...flags.slice(0, 6)], { cwd: directory });
    assert.match(half.stderr, /--tls-cert and --tls-key require each other/);
  });

  test("answers probes without a certificate, and nothing else", async () => {
    const { tlsCa, serve } = setUp();
    await using server = await serve("--web");
    const status = async (path: string) => {
      const outgoing = request(new URL(path, local(server).replace("wss:", "https:")), { ca: tlsCa }).end();
      const [response] = await once(outgoing, "response");
      response.resume();
      return [response.statusCode, response.headers.connection];
    };
    assert.deepEqual(await status("/healthz"), [200, "close"]);
    assert.deepEqual(await status("/readyz"), [200, "close"]);
    for (const path of ["/", "/metrics", "/assets/x"]) assert.deepEqual(await status(path), [401, "close"]);
  });

  test("accepts either a certificate or a token with --ws-auth", async () => {
    const { directory, authority, connect, serve, refuses } = setUp();
    const token = writeSecret(directory, "token", TOKEN);
    await using server = await serve("--ws-auth", "capability-token", "--ws-token-file", token);
    const url = local(server);
    await using byCertificate = await connect(url, authority.issueClient("/CN=alice"));
    await using byToken = await connect(url, undefined, { authToken: TOKEN });
    for (const client of [byCertificate, byToken]) assert.equal((await run(client.backend, ["echo", "x"])).exitCode, 0);
    await refuses(url, undefined, /HTTP 401: missing websocket bearer token/);
    const wrong = connect(url, authority.issueClient("/CN=bob"), { authToken: "wrong" });
    await assert.rejects(wrong, /invalid websocket bearer token/);
    await refuses(url, authority.issueClient("/CN=old", -1), /client certificate rejected: it has expired/);
  });

  test("reads the list of revoked certificates again, and ends the connection of a revoked one", async () => {
    const { directory, authority, connect, serve, refuses } = setUp();
    const [alice, bob] = [authority.issueClient("/CN=alice"), authority.issueClient("/CN=bob")];
    const list = secretPath(directory, "revoked.pem");
    authority.writeRevoked(list, bob);
    await using server = await serve("--tls-client-crl", list);
    const url = local(server);
    await refuses(url, bob, /client certificate rejected: it was revoked/);
    const carol = authority.issueClient("/CN=carol");
    await using kept = await connect(url, carol, { reconnect: undefined });
    await using revoked = await connect(url, alice);
    const ended = until("the connection of the revoked certificate ends", async () => {
      const outcome = await run(revoked.backend, ["true"]).catch(() => null);
      return outcome === null;
    });
    authority.writeRevoked(list, alice);
    await ended;
    await refuses(url, alice, /client certificate rejected: it was revoked/);
    assert.equal((await run(kept.backend, ["echo", "resumed"])).stdout, "resumed\n");
    assert.match(server.stderr, /read \S+revoked.pem again; clients with certificates connect again/);
  });

  test("ends a connection when its certificate expires", async () => {
    const { authority, identity, connect } = setUp();
    const clock = new ManualClock(Date.now());
    await using server = new ExecServer({ ...createLocalHost(), clock });
    const read = (path: string) => readFileSync(path, "utf8");
    const tls = () => ({ cert: read(identity.cert), key: read(identity.key), ca: read(authority.caFile) });
    const listening = await listen(
      server,
      { type: "websocket", host: "127.0.0.1", port: 0 },
      { tls, clientCertificates: { files: [], operatorSubjects: [] } },
    );
    const states: string[] = [];
    await using client = await connect(listening.url, authority.issueClient("/CN=alice", 1), {
      onConnectionState: (state) => void states.push(JSON.stringify(state)),
    });
    assert.equal((await run(client.backend, ["echo", "in"])).stdout, "in\n");
    clock.setForward(25 * 3_600_000);
    await clock.advance(60_000);
    await until("the end", () => states.some((state) => state.includes("the client certificate has expired")));
    await listening.close();
  });

  test("names the flag of an unusable file", () => {
    const { authority, identity } = setUp();
    const refuses = (message: RegExp, ...args: string[]) =>
      assert.throws(() => parseServeOptions(["--listen", "ws://127.0.0.1:0", ...args]), { message });
    const tls = ["--tls-cert", identity.cert, "--tls-key", identity.key];
    const ca = ["--tls-client-ca", authority.caFile];
    refuses(/--tls-client-ca requires --tls-cert and --tls-key/, ...ca);
    refuses(/--tls-client-crl .* require --tls-client-ca/, ...tls, "--tls-client-crl", "/none");
    refuses(/--tls-client-ca \/none: ENOENT/, ...tls, "--tls-client-ca", "/none");
    refuses(/: contains no certificate/, ...tls, "--tls-client-ca", identity.key);
    refuses(/is not the certificate of an authority/, ...tls, "--tls-client-ca", identity.cert);
    refuses(/--tls-client-crl \S+: /, ...tls, ...ca, "--tls-client-crl", identity.cert);
  });
});
