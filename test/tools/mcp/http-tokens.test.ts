/** Tokens of `procwire mcp --http` that change while it runs. */

import assert from "node:assert/strict";
import { readFileSync, renameSync, writeFileSync } from "node:fs";
import { join } from "node:path";
import { after, describe, test } from "node:test";
import { bearerOf, signToken, TEST_SECRET } from "../../support/auth/signed-server.ts";
import { scratchDirectory } from "../../support/servers/serve.ts";
import { startHttp } from "./http-mcp.ts";

const scratch = scratchDirectory();
after(() => scratch[Symbol.dispose]());

const OLD = "o".repeat(40);
const NEW = "n".repeat(40);

/** Replaces a file as editors and secret managers do. */
function replace(path: string, content: string): void {
  writeFileSync(`${path}.new`, content, { mode: 0o600 });
  renameSync(`${path}.new`, path);
}

function post(url: string, token: string, message: object, session?: string): Promise<Response> {
  const headers = {
    ...bearerOf(token),
    "content-type": "application/json",
    accept: "application/json, text/event-stream",
  };
  const ofSession = session === undefined ? headers : { ...headers, "mcp-session-id": session };
  return fetch(url, { method: "POST", headers: ofSession, body: JSON.stringify({ jsonrpc: "2.0", ...message }) });
}

/** Opens an MCP session and its stream of server messages. Returns its id and the end of the stream. */
async function openSession(url: string, token: string): Promise<{ session: string; ended: Promise<unknown>[] }> {
  const params = { protocolVersion: "2025-06-18", capabilities: {}, clientInfo: { name: "test", version: "1" } };
  const response = await post(url, token, { id: 1, method: "initialize", params });
  assert.equal(response.status, 200);
  await response.text();
  const session = response.headers.get("mcp-session-id") ?? "";
  await post(url, token, { method: "notifications/initialized" }, session);
  return { session, ended: await openStream(url, token, session) };
}

/** Opens the stream of server messages. Resolves to a promise of its end. */
async function openStream(url: string, token: string, session: string): Promise<Promise<unknown>[]> {
  const stream = await fetch(url, {
    headers: { ...bearerOf(token), accept: "text/event-stream", "mcp-session-id": session },
  });
  assert.equal(stream.status, 200);
  return [stream.text().catch((error: unknown) => error)];
}

const ping = async (url: string, token: string, session: string) => {
  const response = await post(url, token, { id: 2, method: "ping" }, session);
  await response.text();
  return response.status;
};

describe("procwire mcp --http", { timeout: 120_000 }, () => {
  test("reads a replaced token file on SIGHUP, and ends the MCP sessions of the former token", async () => {
    const file = join(scratch.path, "token");
    replace(file, OLD);
    await using server = await startHttp("--ws-auth", "capability-token", "--ws-token-file", file);
    const { session, ended } = await openSession(server.url, OLD);
    assert.equal(await ping(server.url, OLD, session), 200);
    replace(file, NEW);
    server.child.kill("SIGHUP");
    await Promise.all(ended);
    assert.equal(await ping(server.url, OLD, session), 401);
    assert.equal(await ping(server.url, NEW, session), 404);
    const next = await openSession(server.url, NEW);
    assert.equal(await ping(server.url, NEW, next.session), 200);
  });

  test("reads a replaced token file without a signal", async () => {
    const file = join(scratch.path, "watched");
    replace(file, OLD);
    await using server = await startHttp("--ws-auth", "capability-token", "--ws-token-file", file);
    const { session, ended } = await openSession(server.url, OLD);
    replace(file, NEW);
    await Promise.all(ended);
    assert.equal(await ping(server.url, NEW, session), 404);
  });

  test("ends the MCP session of a revoked token; a session continues with a new token of its subject", async () => {
    const file = join(scratch.path, "secret");
    replace(file, TEST_SECRET);
    await using server = await startHttp("--ws-auth", "signed-bearer-token", "--ws-shared-secret-file", file);
    const token = (jti: string, claims: object = {}) =>
      signToken({ sub: "alice", jti, exp: Math.floor(Date.now() / 1000) + 600, ...claims });
    const { session, ended } = await openSession(server.url, token("first"));
    assert.equal(await ping(server.url, token("second"), session), 200);
    writeFileSync(`${file}.revoked`, '{"tokenId":"first"}\n');
    server.child.kill("SIGHUP");
    await Promise.all(ended);
    assert.equal(await ping(server.url, token("first"), session), 401);
    assert.equal(await ping(server.url, token("second"), session), 200);
    const next = await openStream(server.url, token("second"), session);
    writeFileSync(`${file}.revoked`, '{"tokenId":"first"}\n{"tokenId":"second"}\n');
    server.child.kill("SIGHUP");
    await Promise.all(next);
    assert.equal(await ping(server.url, token("third"), session), 404);
  });

  test("--audit records the principal of each decision", async () => {
    const file = join(scratch.path, "audited");
    const audit = join(scratch.path, "audit.jsonl");
    replace(file, TEST_SECRET);
    const auth = ["--ws-auth", "signed-bearer-token", "--ws-shared-secret-file", file];
    await using server = await startHttp(...auth, "--audit", audit);
    for (const sub of ["alice", "bob"]) {
      const token = signToken({ sub, exp: Math.floor(Date.now() / 1000) + 600 });
      const { session } = await openSession(server.url, token);
      const params = { name: "exec_command", arguments: { cmd: `echo ${sub}`, login: false } };
      await (await post(server.url, token, { id: 2, method: "tools/call", params }, session)).text();
    }
    const lines = readFileSync(audit, "utf8").trimEnd().split("\n").slice(1);
    assert.deepEqual(
      lines.map((line) => JSON.parse(line)).map(({ event, principal, argv }) => [event, principal, argv.at(-1)]),
      [
        ["approval", "jwt:alice", "echo alice"],
        ["approval", "jwt:bob", "echo bob"],
      ],
    );
  });

  test("rejects a token with a scope, because tools have no scope", async () => {
    const file = join(scratch.path, "scoped");
    replace(file, TEST_SECRET);
    await using server = await startHttp("--ws-auth", "signed-bearer-token", "--ws-shared-secret-file", file);
    const exp = Math.floor(Date.now() / 1000) + 600;
    const scoped = signToken({ sub: "alice", exp, procwire: { scope: ["files:read"] } });
    const response = await post(server.url, scoped, { id: 1, method: "ping" });
    assert.equal(response.status, 403);
    assert.match(await response.text(), /a token with a scope cannot use MCP/);
  });
});
