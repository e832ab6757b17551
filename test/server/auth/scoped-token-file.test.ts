/** Token files in JSON form: scope, limits and expiry of a capability token, over real sockets. */

import assert from "node:assert/strict";
import { mkdtempSync, renameSync, writeFileSync } from "node:fs";
import { join } from "node:path";
import { after, describe, test } from "node:test";
import { parseAuthFlags } from "../../../src/server/auth/auth-config.ts";
import { AUTH_FILE_CHECK_INTERVAL_MS } from "../../../src/server/auth/auth-file-watcher.ts";
import { Authenticator } from "../../../src/server/auth/authenticator.ts";
import { ExecServer } from "../../../src/server/exec-server.ts";
import { serveSigned } from "../../support/auth/signed-server.ts";
import { FakeHost } from "../../support/servers/fake-host.ts";
import { memoryWire, WireClient } from "../../support/servers/raw-connection.ts";
import { runCli } from "../../support/servers/run-cli.ts";
import { scratchDirectory, serve } from "../../support/servers/serve.ts";

const scratch = scratchDirectory();
after(() => scratch[Symbol.dispose]());

const TOKEN = "scoped-token-scoped-token-scoped-token";

function write(content: unknown, path = join(mkdtempSync(join(scratch.path, "file-")), "token")): string {
  writeFileSync(`${path}.new`, typeof content === "string" ? content : JSON.stringify(content), { mode: 0o600 });
  renameSync(`${path}.new`, path);
  return path;
}

const flags = (wsTokenFile: string) => parseAuthFlags({ wsAuth: "capability-token", wsTokenFile });

function serveFile(path: string) {
  const { auth, authFiles } = flags(path);
  return serveSigned({ auth, authFiles });
}

describe("a token file in JSON form", () => {
  test("grants only the methods of its scope", async () => {
    await using server = await serveFile(write({ token: TOKEN, scope: ["process"] }));
    await using client = await server.connect(TOKEN);
    await client.handshake();
    await client.start("p", ["true"]);
    const { message } = await client.refused("fs/readFile", { path: "file:///etc/hostname" });
    assert.match(message, /files:read/);
    assert.match((await client.refused("forward/listen", { listenId: "l" })).message, /forward/);
  });

  test("limits the output and the run time of each process, also if the client requests more", async () => {
    const limits = { outputBytes: 1000, wallTimeMs: 600 };
    await using server = await serveFile(write({ token: TOKEN, scope: ["process"], limits }));
    await using client = await server.connect(TOKEN);
    await client.handshake({ extensions: ["exitDetails"] });
    await client.start("yes", ["yes"], { limits: { outputBytes: 1_000_000 } });
    assert.equal((await client.finished("yes")).output.length, 1000);
    await client.start("cat", ["cat"], { pipeStdin: true, limits: { wallTimeMs: 600_000 } });
    await client.finished("cat");
  });

  test("requires its sandbox for each process", async () => {
    await using server = await serveFile(write({ token: TOKEN, scope: ["process"], sandbox: "read-only" }));
    await using client = await server.connect(TOKEN);
    await client.handshake();
    const params = { processId: "p", argv: ["true"], cwd: "file:///tmp", env: {}, tty: false };
    assert.match((await client.refused("process/start", params)).message, /sandbox/);
  });

  test("without a scope grants everything until it expires, then closes its connections", async () => {
    const path = write({ token: TOKEN });
    await using server = await serveFile(path);
    const expiresAt = new Date(server.clock.now() + 60_000).toISOString();
    write({ token: TOKEN, expiresAt }, path);
    await server.clock.advance(3 * AUTH_FILE_CHECK_INTERVAL_MS);
    await using client = await server.connect(TOKEN);
    await client.handshake();
    await client.call("fs/readDirectory", { path: "file:///" });
    await server.clock.advance(60_000);
    assert.equal(await client.ended(), 1008);
    await server.rejects(TOKEN);
  });

  test("closes its connections when its scope changes, and not when only its layout changes", async () => {
    const path = write({ token: TOKEN, scope: ["process", "files:read"] });
    await using server = await serveFile(path);
    const client = await server.connect(TOKEN);
    await client.handshake();
    write(JSON.stringify({ scope: ["files:read", "process"], token: TOKEN }, null, 2), path);
    await server.clock.advance(3 * AUTH_FILE_CHECK_INTERVAL_MS);
    await client.roundTrip();
    write({ token: TOKEN, scope: ["process"] }, path);
    await server.clock.advance(3 * AUTH_FILE_CHECK_INTERVAL_MS);
    assert.equal(await client.ended(), 1008);
    await using narrow = await server.connect(TOKEN);
    await narrow.handshake();
    await narrow.refused("fs/readDirectory", { path: "file:///" });
    // An invalid content keeps the scope: the token does not become a token without a scope.
    write(`{"token": "${TOKEN}", "scopes": []}`, path);
    await server.clock.advance(3 * AUTH_FILE_CHECK_INTERVAL_MS);
    await narrow.refused("fs/readDirectory", { path: "file:///" });
  });

  test("with a fault is rejected with the field and the remedy", () => {
    const fault = (content: unknown, problem: RegExp) => assert.throws(() => flags(write(content)), problem);
    fault("{", /begins with `{`, but is not a JSON object/);
    fault({}, /needs `token`/);
    fault({ token: "a b" }, /needs `token`/);
    fault({ token: 1 }, /needs `token`/);
    fault({ token: TOKEN, scopes: ["process"] }, /unknown field `scopes`/);
    fault({ token: TOKEN, roots: ["/srv"] }, /needs `scope`/);
    fault({ token: TOKEN, scope: ["all"] }, /unknown scope `all`/);
    fault({ token: TOKEN, scope: ["process"], roots: ["/srv"] }, /add `sandbox: workspace-write`/);
    fault({ token: TOKEN, scope: [], limits: { memory: 1 } }, /unknown limit `memory`/);
    for (const expiresAt of ["tomorrow", 5, "2027-01-31", "2027-13-31T00:00:00Z"])
      fault({ token: TOKEN, expiresAt }, /invalid `expiresAt` .*2027-01-31T12:00:00Z/);
    const operatorTokenFile = write({ token: TOKEN });
    assert.throws(
      () => parseAuthFlags({ wsAuth: "capability-token", wsTokenFile: write("x".repeat(40)), operatorTokenFile }),
      /--operator-token-file .*has no scope; write the token alone/,
    );
  });

  test("that has expired is reported at the start", () => {
    const { warnings } = flags(write({ token: TOKEN, expiresAt: "2020-01-01T00:00:00+01:00" }));
    assert.match(warnings[0] ?? "", /expired at 2019-12-31T23:00:00\.000Z; no client can connect/);
  });

  test("serves the commands of the binary, which read the same file", { timeout: 60_000 }, async () => {
    const path = write({ token: TOKEN, scope: ["process"], limits: { outputBytes: 10 } });
    await using server = await serve("--ws-auth", "capability-token", "--ws-token-file", path);
    const run = (...command: string[]) =>
      runCli(["run", "--connect", server.url, "--token-file", path, "--", ...command], { cwd: scratch.path });
    assert.equal((await run("echo", "hello")).stdout, "hello\n");
    assert.equal((await run("printf", "%020d", "7")).stdout.length, 10);
  });
});

test("all limits of a scope apply to each process, and a client can only lower them", async () => {
  const host = new FakeHost();
  await using server = new ExecServer(host);
  const limits = { processes: 3, memoryBytes: 1_000_000, wallTimeMs: 5000, outputBytes: 99 };
  const { auth } = flags(write({ token: TOKEN, scope: ["process"], limits }));
  const result = await new Authenticator(auth).authorize(`Bearer ${TOKEN}`);
  assert.ok(result.type === "admitted");
  const { principal } = result;
  const client = new WireClient(memoryWire((connection) => server.accept(connection, principal)));
  await client.handshake();
  await client.start("p", ["x"], { limits: { processes: 2, memoryBytes: 2_000_000 } });
  await client.call("command/exec", { argv: ["x"], cwd: "/tmp", env: {}, tty: false });
  assert.deepEqual(host.process("p").params.limits, { ...limits, processes: 2 });
  assert.deepEqual(host.process("session-1").params.limits, limits);
  client.cut();
});
