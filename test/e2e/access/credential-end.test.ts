/** Credentials that end while they are in use: over real sockets, with the server as a user starts it. */

import assert from "node:assert/strict";
import { generateKeyPairSync, sign } from "node:crypto";
import { once } from "node:events";
import { renameSync, rmSync } from "node:fs";
import { after, describe, test } from "node:test";
import { WebSocket } from "ws";
import { writeSecret } from "../../support/auth/secret-file.ts";
import { bearerOf, signToken, TEST_SECRET } from "../../support/auth/signed-server.ts";
import { sh } from "../../support/servers/raw-connection.ts";
import { type ServeChild, scratchDirectory, serve } from "../../support/servers/serve.ts";
import { NO_SUPERVISOR, SupervisedServer } from "../../support/servers/supervised-server.ts";
import { until } from "../../support/system/until.ts";

const scratch = scratchDirectory();
after(() => scratch[Symbol.dispose]());

let files = 0;
const file = (content: string) => writeSecret(scratch.path, `file-${++files}`, content);
const signed = () => ["--ws-auth", "signed-bearer-token", "--ws-shared-secret-file", file(TEST_SECRET)];
const capability = (path: string) => ["--ws-auth", "capability-token", "--ws-token-file", path];
const [OLD, NEW] = ["o".repeat(40), "n".repeat(40)];

/** Opens a WebSocket and collects the reason of its close. */
async function openSocket(url: string, options: { headers?: Record<string, string>; protocols?: string[] }) {
  const socket = new WebSocket(url, options.protocols ?? [], { headers: options.headers ?? {} });
  const closed = once(socket, "close").then(([code, reason]) => [Number(code), String(reason)]);
  // A rejected connection has no close.
  closed.catch(() => undefined);
  await once(socket, "open");
  return { closed };
}

/** The console of a server, as a page uses it. */
function consoleOf(server: ServeChild) {
  const origin = server.url.replace(/^ws/, "http");
  return {
    origin,
    signIn: async (token: string) => {
      const body = JSON.stringify({ token });
      const response = await fetch(`${origin}/api/sign-in`, { method: "POST", headers: { origin }, body });
      const { secret } = (await response.json()) as { secret?: string };
      return { status: response.status, cookies: response.headers.getSetCookie(), secret: String(secret) };
    },
    status: async (headers: Record<string, string>) =>
      (await fetch(`${origin}/api/me`, { headers: { origin, ...headers } })).status,
    protocols: (secret: string) => ["procwire.v1", `procwire.token.${Buffer.from(secret).toString("base64url")}`],
  };
}

describe("a signed token", { timeout: 120_000 }, () => {
  test("ends its connections, console sessions, guests and HTTP access at `exp` plus the clock skew; a new token resumes the session", async () => {
    await using server = await serve(...signed(), "--ws-max-clock-skew-seconds", "1", "--web");
    const exp = Math.ceil(Date.now() / 1000) + 3;
    const token = signToken({ sub: "alice", exp });
    await using client = await server.connect(bearerOf(token));
    await client.handshake({ extensions: ["attach"] });
    const { handle } = await client.start("p", sh("read x; echo got $x"), { pipeStdin: true });
    const share = await client.call("process/share", { handle, role: "viewer", ttlMs: 3600_000 });
    const page = consoleOf(server);
    const { secret, status } = await page.signIn(token);
    assert.deepEqual([status, await page.status(bearerOf(secret))], [200, 200]);
    const sockets = await Promise.all([
      openSocket(server.url, { headers: bearerOf(token) }),
      openSocket(server.url, { headers: { origin: page.origin }, protocols: page.protocols(secret) }),
      openSocket(server.url, { headers: bearerOf(String(share.token)) }),
    ]);
    const [own, ofConsole, ofGuest] = await Promise.all(sockets.map(({ closed }) => closed));
    await client.ended();
    assert.ok(Date.now() / 1000 >= exp + 1, "not before the clock skew has passed");
    assert.deepEqual(own, [1008, "the token has expired"]);
    assert.deepEqual(ofConsole, [1008, "the token has expired"]);
    assert.equal(ofGuest?.[0], 1008);
    assert.equal(await page.status(bearerOf(secret)), 401);
    for (const ended of [token, String(share.token)]) await assert.rejects(server.connect(bearerOf(ended)), /401/);

    await using next = await server.connect(bearerOf(signToken({ sub: "alice", exp: exp + 600 })));
    await next.handshake({ resumeSessionId: client.sessionId });
    assert.equal(await next.write("p", "it\n"), "accepted");
    await next.outputContains("p", "got it");
  });

  test("ends with its key of a key set file, and another key stays valid", async () => {
    const [one, two] = ["one", "two"].map((kid) => ({ kid, ...generateKeyPairSync("ed25519") }));
    assert.ok(one && two);
    const part = (value: object) => Buffer.from(JSON.stringify(value)).toString("base64url");
    const tokenOf = ({ kid, privateKey }: typeof one) => {
      const claims = { sub: "ann", aud: "procwire", exp: Math.floor(Date.now() / 1000) + 600 };
      const body = `${part({ alg: "EdDSA", kid })}.${part(claims)}`;
      return `${body}.${sign(null, Buffer.from(body), privateKey).toString("base64url")}`;
    };
    const keySet = (...keys: (typeof one)[]) =>
      JSON.stringify({ keys: keys.map(({ kid, publicKey }) => ({ ...publicKey.export({ format: "jwk" }), kid })) });
    const path = file(keySet(one, two));
    await using server = await serve(
      ...["--ws-auth", "signed-bearer-token", "--ws-jwks", path, "--ws-audience", "procwire"],
    );
    const first = await openSocket(server.url, { headers: bearerOf(tokenOf(one)) });
    await using second = await server.connect(bearerOf(tokenOf(two)));
    await second.handshake();
    renameSync(file(keySet(two)), path);
    assert.deepEqual(await first.closed, [1008, "the token is no longer valid"]);
    await second.roundTrip();
    await assert.rejects(server.connect(bearerOf(tokenOf(one))), /401/);
  });
});

describe("a token file", { timeout: 120_000 }, () => {
  test("that is deleted ends the connections of its token without a signal", async () => {
    const path = file(OLD);
    await using server = await serve(...capability(path));
    const { closed } = await openSocket(server.url, { headers: bearerOf(OLD) });
    rmSync(path);
    assert.deepEqual(await closed, [1008, "the token is no longer valid"]);
    await assert.rejects(server.connect(bearerOf(OLD)), /401/);
  });

  test("is read by the next server after SIGHUP under the supervisor, which is a hot restart", {
    skip: NO_SUPERVISOR,
  }, async () => {
    const path = file(OLD);
    await using server = await SupervisedServer.start(...capability(path));
    await using client = await server.serve.connect(bearerOf(OLD));
    await client.handshake({ extensions: ["started"] });
    const started = await client.start("kept", sh("read x"), { pipeStdin: true, lifetime: "persistent" });
    const [{ pid } = { pid: 0 }] = (await client.call("process/list", {})).processes as { pid: number }[];
    const { supervisorPid } = server;
    const serverPid = await server.serverPid([pid]);
    renameSync(file(NEW), path);
    process.kill(supervisorPid, "SIGHUP");
    await client.ended();
    await until("the next server", async () => (await server.serverPid([pid])) !== serverPid);
    assert.equal(server.supervisorPid, supervisorPid);
    await assert.rejects(server.serve.connect(bearerOf(OLD)), /401/);
    await using next = await server.serve.connect(bearerOf(NEW));
    await next.handshake();
    const listed = (await next.call("process/list", { allSessions: true })).processes as Record<string, unknown>[];
    assert.deepEqual(
      listed.map((kept) => [kept.handle, kept.pid]),
      [[started.handle, pid]],
    );
  });
});

test("a console session sets no cookie, and its secret as a cookie grants nothing", { timeout: 120_000 }, async () => {
  await using server = await serve(...signed(), "--web");
  const page = consoleOf(server);
  const { cookies, secret } = await page.signIn(signToken({ sub: "a", exp: Math.floor(Date.now() / 1000) + 60 }));
  assert.deepEqual(cookies, []);
  const cookie = ["procwire", `procwire_${new URL(server.url).port}`, "__Host-procwire"]
    .map((name) => `${name}=${secret}`)
    .join("; ");
  assert.deepEqual([await page.status({ cookie }), await page.status(bearerOf(secret))], [401, 200]);
  await assert.rejects(openSocket(server.url, { headers: { origin: page.origin, cookie } }), /401/);
  // The server rejects the secret from a page of another port of the same host too.
  const foreign = { origin: "http://127.0.0.1:1" };
  await assert.rejects(openSocket(server.url, { headers: foreign, protocols: page.protocols(secret) }), /403/);
});
