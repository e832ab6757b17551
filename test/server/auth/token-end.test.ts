/** Connections, console sessions and share links end with their token: a real server on a manual clock. */

import assert from "node:assert/strict";
import { once } from "node:events";
import { mkdirSync, writeFileSync } from "node:fs";
import { request as httpRequest, type IncomingMessage } from "node:http";
import { join } from "node:path";
import { after, describe, test } from "node:test";
import { WebSocket } from "ws";
import { NodeExecServerClient } from "../../../src/client/node/node-client.ts";
import { collectOutput } from "../../../src/exec/run/collect-output.ts";
import { MAX_SHARES_PER_PRINCIPAL } from "../../../src/server/auth/share-tokens.ts";
import { bearerOf, CLOCK_SKEW_SECONDS, serveSigned } from "../../support/auth/signed-server.ts";
import { sh } from "../../support/servers/raw-connection.ts";
import { scratchDirectory } from "../../support/servers/serve.ts";
import { until } from "../../support/system/until.ts";

const scratch = scratchDirectory();
after(() => scratch[Symbol.dispose]());
const page = join(scratch.path, "page");
mkdirSync(page);
writeFileSync(join(page, "index.html"), "<!doctype html>");

/** Opens a WebSocket and collects the reason of its close. */
async function openSocket(url: string, options: { headers?: Record<string, string>; protocols?: string[] }) {
  const socket = new WebSocket(url, options.protocols ?? [], { headers: options.headers ?? {} });
  const closed = once(socket, "close").then(([code, reason]) => ({ code: Number(code), reason: String(reason) }));
  await once(socket, "open");
  return { socket, closed };
}

const skewMs = CLOCK_SKEW_SECONDS * 1000;

describe("the expiry of a token", () => {
  test("closes its connections after the clock skew; the session detaches and resumes with a new token", async () => {
    await using server = await serveSigned();
    const { clock } = server;
    await using client = await server.connect(server.token(60));
    await client.handshake();
    await client.start("p", sh("read x; echo got $x"), { pipeStdin: true });
    const { closed } = await openSocket(server.url, { headers: bearerOf(server.token(60)) });
    await using unlimited = await server.connect(server.token(3600));
    await unlimited.handshake();

    await clock.advance(60_000 + skewMs - 1);
    await client.roundTrip();
    await clock.advance(1);
    await client.ended();
    assert.deepEqual(await closed, { code: 1008, reason: "the token has expired" });
    await unlimited.roundTrip();

    await server.rejects(server.token(-CLOCK_SKEW_SECONDS));
    await using next = await server.connect(server.token(60));
    await next.handshake({ resumeSessionId: client.sessionId });
    assert.equal(await next.write("p", "it\n"), "accepted");
    await next.outputContains("p", "got it");
  });

  test("counts by the wall clock, which may be set forward", async () => {
    await using server = await serveSigned();
    await using client = await server.connect(server.token(3600));
    await client.handshake();
    server.clock.setForward(3600_000 + skewMs);
    await server.clock.advance(60_000);
    await client.ended();
  });

  test("closes share links that the token created, and their guests", async () => {
    await using server = await serveSigned();
    await using owner = await server.connect(server.token(60));
    await owner.handshake({ extensions: ["attach"] });
    const { handle } = await owner.start("p", sh("read x"), { pipeStdin: true });
    const { token, expiresAtMs } = await owner.call("process/share", { handle, role: "viewer", ttlMs: 3600_000 });
    assert.equal(expiresAtMs, server.clock.now() + 60_000 + skewMs);
    const guest = await openSocket(server.url, { headers: bearerOf(String(token)) });
    await server.clock.advance(60_000 + skewMs);
    await guest.closed;
    await server.rejects(String(token));
  });

  test("ends console sessions, their WebSockets, and HTTP responses in progress", async () => {
    const begun = Promise.withResolvers<void>();
    const jobs = async () => {
      begun.resolve();
      return new Promise<never>(() => undefined);
    };
    await using server = await serveSigned({ web: { directory: page, jobs } });
    const { clock, port } = server;
    const origin = `http://127.0.0.1:${port}`;
    const send = (path: string, headers: Record<string, string>, body?: string) => {
      const method = body === undefined ? "GET" : "POST";
      const request = httpRequest(`${origin}${path}`, { method, headers: { origin, ...headers }, agent: false });
      request.end(body);
      return request;
    };
    const statusOf = async (secret: string) => {
      const [response] = (await once(send("/api/me", bearerOf(secret)), "response")) as [IncomingMessage];
      response.resume();
      return response.statusCode;
    };
    const signIn = async (token: string) => {
      const [response] = (await once(send("/api/sign-in", {}, JSON.stringify({ token })), "response")) as [
        IncomingMessage,
      ];
      let text = "";
      for await (const chunk of response) text += String(chunk);
      return String(JSON.parse(text).secret);
    };
    const operator = { role: "operator" };
    // One session by token, and one by the login URL that a connection of the token creates.
    const secret = await signIn(server.token(60, operator));
    await using connection = await server.connect(server.token(60, operator));
    await connection.handshake();
    const { fragment } = await connection.call("console/login", {});
    const second = await signIn(String(fragment).replace("#token=", ""));
    const sockets = await Promise.all(
      [secret, second].map((one) =>
        openSocket(server.url, {
          headers: { origin },
          protocols: ["procwire.v1", `procwire.token.${Buffer.from(one).toString("base64url")}`],
        }),
      ),
    );
    const download = send("/api/jobs", bearerOf(secret));
    const failed = once(download, "error");
    await begun.promise;
    assert.deepEqual([await statusOf(secret), await statusOf(second)], [200, 200]);

    await clock.advance(60_000 + skewMs);
    for (const { closed } of sockets) assert.equal((await closed).reason, "the token has expired");
    await failed;
    assert.deepEqual([await statusOf(secret), await statusOf(second)], [401, 401]);
  });
});

test("a client with a token provider resumes its session after the expiry of its token", async () => {
  await using server = await serveSigned();
  let asked = 0;
  await using client = await NodeExecServerClient.connectWebSocket({
    url: server.url,
    authToken: () => {
      asked++;
      return server.token(60);
    },
  });
  const process = await client.start({
    processId: "p",
    argv: sh("read x; echo got $x"),
    cwd: "/tmp",
    env: {},
    tty: false,
    pipeStdin: true,
  });
  await server.clock.advance(60_000 + skewMs);
  await until("the client has asked for another token", () => asked > 1);
  await process.write(Buffer.from("it\n"));
  const { stdout } = await collectOutput(process);
  assert.equal(Buffer.from(stdout).toString(), "got it\n");
  assert.equal(server.server.sessionCount, 1);
});

test("a principal with many share links leaves room for the links of others", async () => {
  await using server = await serveSigned();
  const open = async (sub: string) => {
    const client = await server.connect(server.token(600, { sub }));
    await client.handshake({ extensions: ["attach"] });
    const { handle } = await client.start("p", sh("read x"), { pipeStdin: true });
    return { client, share: () => client.request("process/share", { handle, role: "viewer", ttlMs: 60_000 }) };
  };
  const [alice, bob] = [await open("alice"), await open("bob")];
  for (let count = 0; count < MAX_SHARES_PER_PRINCIPAL; count++) assert.ok((await alice.share()).result);
  assert.match(String((await alice.share()).error?.message), /^too many shares: jwt:alice has 250 at once; revoke one/);
  assert.ok((await bob.share()).result);
  for (const { client } of [alice, bob]) await client.close();
});

describe("token/revoke", () => {
  const operator = { sub: "root", role: "operator" };

  test("ends the connections of the token at once, and the server rejects the token, also after a restart", async () => {
    const revokedTokensFile = join(scratch.path, "restart.revoked");
    const claims = { jti: "t1" };
    {
      await using server = await serveSigned({ revokedTokensFile });
      const { closed } = await openSocket(server.url, { headers: bearerOf(server.token(60, claims)) });
      await using other = await server.connect(server.token(60, { jti: "t2" }));
      await other.handshake();
      await using admin = await server.connect(server.token(60, operator));
      await admin.handshake();
      assert.deepEqual(await admin.call("token/revoke", { tokenId: "t1" }), { ended: 1 });
      assert.deepEqual(await closed, { code: 1008, reason: "the token was revoked" });
      await server.rejects(server.token(60, claims));
      await other.roundTrip();
    }
    await using next = await serveSigned({ revokedTokensFile });
    await next.rejects(next.token(60, claims));
  });

  test("lets a principal revoke only its own tokens in use", async () => {
    await using server = await serveSigned({ revokedTokensFile: join(scratch.path, "own.revoked") });
    await using bob = await server.connect(server.token(60, { sub: "bob", jti: "b" }));
    await bob.handshake();
    await using alice = await server.connect(server.token(60, { jti: "a" }));
    await alice.handshake();
    for (const tokenId of ["b", "unknown"])
      assert.match((await alice.refused("token/revoke", { tokenId })).message, /not in use by jwt:alice/);
    alice.raw(JSON.stringify({ id: 99, method: "token/revoke", params: { tokenId: "a" } }));
    await alice.ended();
    await bob.roundTrip();
  });

  test("is rejected if the file of revoked tokens cannot be written; the server serves", async () => {
    const revokedTokensFile = join(scratch.path, "missing", "file.revoked");
    await using server = await serveSigned({ revokedTokensFile });
    await using admin = await server.connect(server.token(60, operator));
    await admin.handshake();
    const { message } = await admin.refused("token/revoke", { tokenId: "x" });
    assert.match(message, /^cannot revoke: .*ENOENT.*; set `serve --revoked-tokens-file PATH`$/);
  });

  test("is rejected by a server without a file of revoked tokens", async () => {
    await using server = await serveSigned();
    await using admin = await server.connect(server.token(60, operator));
    await admin.handshake();
    assert.match((await admin.refused("token/revoke", { tokenId: "x" })).message, /--revoked-tokens-file/);
  });
});

test("process/listShares without a handle lists the links of the principal; an operator sees all", async () => {
  await using server = await serveSigned();
  const connect = async (claims: object) => {
    const client = await server.connect(server.token(600, claims));
    await client.handshake({ extensions: ["attach"] });
    return client;
  };
  await using alice = await connect({});
  await using bob = await connect({ sub: "bob" });
  await using operator = await connect({ sub: "eve", role: "operator" });
  const handles = [];
  for (const client of [alice, bob]) {
    const { handle } = await client.start("p", sh("read x"), { pipeStdin: true });
    await client.call("process/share", { handle, role: "viewer", ttlMs: 60_000 });
    handles.push(handle);
  }
  const linksOf = async (client: typeof alice) => {
    const { shares } = (await client.call("process/listShares", {})) as { shares: { handle: string }[] };
    return shares.map(({ handle }) => handle);
  };
  assert.deepEqual([await linksOf(alice), await linksOf(bob)], [[handles[0]], [handles[1]]]);
  assert.deepEqual(await linksOf(operator), handles);
});

describe("access/list and access/revoke", () => {
  test("show and end the connections of the principal; an operator sees all", async () => {
    await using server = await serveSigned();
    const { clock } = server;
    await using alice = await server.connect(server.token(600, { jti: "a" }));
    await alice.handshake();
    await clock.advance(1_000);
    await using bob = await server.connect(server.token(60, { sub: "bob" }));
    await bob.handshake();
    await clock.advance(500);
    const { accesses } = await bob.call("access/list", {});
    const [own, ...others] = accesses as Record<string, unknown>[];
    assert.deepEqual(others, []);
    assert.match(String(own?.peer), /^127\.0\.0\.1:\d+$/);
    assert.deepEqual(own, {
      ...{ accessId: "connection:2", kind: "connection", principal: "jwt:bob", peer: own?.peer, device: "" },
      ...{ sinceMs: clock.now() - 500, lastUsedAtMs: clock.now(), expiresAtMs: clock.now() - 1500 + 61_000 + skewMs },
      isCurrent: true,
    });
    assert.deepEqual(await bob.call("access/revoke", { accessId: "connection:1" }), { revoked: false });

    await using admin = await server.connect(server.token(60, { sub: "root", role: "operator" }));
    await admin.handshake();
    const all = (await admin.call("access/list", {})).accesses as Record<string, unknown>[];
    assert.deepEqual(
      all.map(({ principal, tokenId, isCurrent }) => [principal, tokenId, isCurrent]),
      [
        ["jwt:alice", "a", false],
        ["jwt:bob", undefined, false],
        ["jwt:root", undefined, true],
      ],
    );
    assert.deepEqual(await admin.call("access/revoke", { accessId: "connection:1" }), { revoked: true });
    await alice.ended();
    await bob.roundTrip();
  });
});
