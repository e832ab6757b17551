/** `procwire token`, `procwire access` and `procwire share`, with the server as a user starts it. */

import assert from "node:assert/strict";
import { readFileSync, realpathSync, renameSync } from "node:fs";
import { after, describe, test } from "node:test";
import { writeSecret } from "../../support/auth/secret-file.ts";
import { bearerOf, TEST_SECRET } from "../../support/auth/signed-server.ts";
import { sh } from "../../support/servers/raw-connection.ts";
import { runCli } from "../../support/servers/run-cli.ts";
import { scratchDirectory, serve } from "../../support/servers/serve.ts";

const scratch = scratchDirectory();
after(() => scratch[Symbol.dispose]());

function file(name: string, content: string): string {
  return writeSecret(scratch.path, name, content);
}

const secret = file("secret", `${TEST_SECRET}\n`);
const serveWithSecret = (...more: string[]) =>
  serve("--ws-auth", "signed-bearer-token", "--ws-shared-secret-file", secret, ...more);

async function cli(args: string[], env: Record<string, string> = {}): Promise<string> {
  const { code, stdout, stderr } = await runCli(args, { cwd: scratch.path, env });
  assert.equal(code, 0, stderr);
  return stdout;
}

const createToken = async (subject: string) =>
  (await cli(["token", "create", "--secret-file", secret, "--subject", subject, "--expires", "10m"])).trim();

async function idOf(token: string): Promise<string> {
  const { claims } = JSON.parse(await cli(["token", "inspect", "--secret-file", secret, token]));
  return claims.jti;
}

describe("procwire token", { timeout: 600_000 }, () => {
  test("creates and inspects a token, and reports a wrong signature", async () => {
    const token = await createToken("ci");
    const { claims, signature, expired } = JSON.parse(await cli(["token", "inspect", "--secret-file", secret, token]));
    assert.deepEqual([claims.sub, signature, expired], ["ci", "valid", false]);
    assert.equal(claims.exp - claims.iat, 600);
    const other = file("other", [...TEST_SECRET].reverse().join(""));
    for (const garbage of ["garbage", "a.b.c", "{}"]) {
      const { code, stderr } = await runCli(["token", "inspect", garbage], { cwd: scratch.path });
      assert.deepEqual(
        [code, /^procwire token: TOKEN is not a signed token; copy the output/.test(stderr)],
        [1, true],
        stderr,
      );
    }
    const wrong = await runCli(["token", "inspect", "--secret-file", other, token], { cwd: scratch.path });
    assert.equal(wrong.code, 1);
    assert.match(wrong.stderr, /signature verification failed/);
  });

  test("creates a token whose scope, root and sandbox the server enforces", async () => {
    await using server = await serveWithSecret();
    const create = (...more: string[]) => ["token", "create", "--secret-file", secret, "--subject", "agent", ...more];
    const scope = ["--scope", "process", "--scope", "files:read", "--root", scratch.path, "--limit-wall-time", "600"];
    const token = (await cli(create(...scope, "--sandbox", "read-only"))).trim();
    const { claims } = JSON.parse(await cli(["token", "inspect", "--secret-file", secret, token]));
    assert.deepEqual(claims.procwire, {
      scope: ["process", "files:read"],
      roots: [realpathSync(scratch.path)],
      sandbox: "read-only",
      limits: { wallTimeMs: 600_000 },
    });
    const tokenFile = file("agent", token);
    const connected = ["--connect", server.url, "--token-file", tokenFile];
    const run = (args: string[]) => runCli(args, { cwd: scratch.path });
    assert.equal((await run(["ps", ...connected])).code, 0);
    const unconfined = await run(["run", ...connected, "--", "true"]);
    assert.notEqual(unconfined.code, 0);
    assert.match(unconfined.stderr, /a sandbox of at least read-only within `.*` is required/);
    const access = await run(["access", "list", ...connected]);
    assert.match(access.stderr, /lacks the scope `access`/);
    for (const [flags, problem] of [
      [scope, /--root|sandbox/],
      [["--root", scratch.path], /--scope/],
      [["--scope", "everything"], /everything/],
      [["--scope", "process", "--sandbox", "none"], /sandbox/],
    ] as const) {
      const { code, stderr } = await run(create(...flags));
      assert.notEqual(code, 0);
      assert.match(stderr, problem);
    }
  });

  test("revokes a token on the server, and in the file of a server", async () => {
    const operatorToken = "operator-operator-operator-operator";
    await using server = await serveWithSecret("--operator-token-file", file("operator", operatorToken));
    const [one, two] = [await createToken("alice"), await createToken("bob")];
    await using alice = await server.connect(bearerOf(one));
    await alice.handshake();
    await using bob = await server.connect(bearerOf(two));
    await bob.handshake();
    const env = { PROCWIRE_TOKEN: operatorToken };
    const printed = await cli(["token", "revoke", "--connect", server.url, await idOf(one)], env);
    assert.match(printed, /^revoked \S+; 1 connections/);
    await alice.ended();
    await assert.rejects(server.connect(bearerOf(one)), /401/);
    await bob.roundTrip();
    assert.match(readFileSync(`${secret}.revoked`, "utf8"), new RegExp(`${await idOf(one)}.*"by":"operator"`));
    await cli(["token", "revoke", "--revoked-tokens-file", `${secret}.revoked`, await idOf(two)]);
    await bob.ended();
    await assert.rejects(server.connect(bearerOf(two)), /401/);
  });
});

test("procwire access lists connections, and revokes one", { timeout: 600_000 }, async () => {
  await using server = await serve();
  await using client = await server.connect();
  await client.handshake();
  const connect = ["--connect", server.url];
  const listed = await cli(["access", "list", ...connect]);
  assert.match(listed, /^ID +PRINCIPAL +FROM +AGE +IDLE +EXPIRES +TOKEN\n/);
  assert.match(listed, /\nconnection:1 +local +127\.0\.0\.1:\d+ /);
  assert.match(listed, /\nconnection:2\* +local /);
  const [first] = (await cli(["access", "list", "--json", ...connect])).split("\n");
  assert.equal(JSON.parse(first ?? "").accessId, "connection:1");
  await cli(["access", "revoke", ...connect, "connection:1"]);
  await client.ended();
  const again = await runCli(["access", "revoke", ...connect, "connection:1"], { cwd: scratch.path });
  assert.match(again.stderr, /unknown access connection:1/);
});

test("procwire share list and revoke cover all processes", { timeout: 600_000 }, async () => {
  await using server = await serve();
  await using owner = await server.connect();
  await owner.handshake({ extensions: ["attach"] });
  const { handle } = await owner.start("p", sh("read x"), { pipeStdin: true });
  await owner.call("process/share", { handle, role: "viewer", ttlMs: 60_000 });
  const connect = ["--connect", server.url];
  const listed = await cli(["share", "list", ...connect]);
  assert.match(listed, new RegExp(`^share:1\tviewer\t[^\t]+\t0 guests\tlocal\t${String(handle)}\n$`));
  await cli(["share", "revoke", ...connect, "share:1"]);
  assert.equal(await cli(["share", "list", ...connect]), "");
});

test("SIGHUP reads the token file again, and ends the connections of a replaced token", {
  timeout: 600_000,
}, async () => {
  const token = "a".repeat(40);
  const path = file("hangup-token", token);
  await using server = await serve("--ws-auth", "capability-token", "--ws-token-file", path);
  await using client = await server.connect(bearerOf(token));
  await client.handshake();
  renameSync(file("next-token", "b".repeat(40)), path);
  process.kill(server.serverPid(), "SIGHUP");
  await client.ended();
  await using next = await server.connect(bearerOf("b".repeat(40)));
  await next.handshake({ resumeSessionId: client.sessionId });
});
