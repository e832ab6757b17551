import assert from "node:assert/strict";
import { writeFileSync } from "node:fs";
import { join } from "node:path";
import { test } from "node:test";
import type { Client } from "@modelcontextprotocol/client";
import { parseMcpHttpOptions } from "../../../src/cli/options/mcp-http-options.ts";
import { scratchDirectory } from "../../support/servers/serve.ts";
import { connectHttp, startHttp } from "./http-mcp.ts";

/** `procwire mcp --http` with real clients. */

const TOKEN = "t".repeat(40);

async function call(client: Client, name: string, given: Record<string, unknown>): Promise<string> {
  const { content } = await client.callTool({ name, arguments: given });
  assert.ok(content[0]?.type === "text");
  return content[0].text;
}

test("clients with the same token share exec sessions over HTTP, also after one disconnects", {
  timeout: 600_000,
}, async () => {
  using directory = scratchDirectory();
  const file = join(directory.path, "token");
  writeFileSync(file, TOKEN, { mode: 0o600 });
  await using server = await startHttp("--ws-auth", "capability-token", "--ws-token-file", file);
  const first = await connectHttp(server.url, TOKEN);
  assert.equal((await first.listTools()).tools.length, 7);
  const text = await call(first, "exec_command", { cmd: "cat", tty: true, login: false, yield_time_ms: 250 });
  const session_id = Number(/session ID (\d+)/.exec(text)?.[1]);
  await first.close();
  const second = await connectHttp(server.url, TOKEN);
  assert.match(await call(second, "write_stdin", { session_id, chars: "again\n" }), /again/);
  await second.close();
});

test("a request without a token, from another site or for another host name is rejected", {
  timeout: 600_000,
}, async () => {
  await using server = await startHttp();
  const token = /token \(shown once\): (\S+)/.exec(server.stderr)?.[1] ?? "";
  const status = async (headers: Record<string, string>) => {
    const message = { jsonrpc: "2.0", id: 1, method: "ping" };
    const { status } = await fetch(server.url, {
      method: "POST",
      headers: { "content-type": "application/json", ...headers },
      body: JSON.stringify(message),
    });
    return status;
  };
  const authorization = `Bearer ${token}`;
  assert.equal(await status({}), 401);
  assert.equal(await status({ authorization: "Bearer wrong" }), 401);
  assert.equal(await status({ authorization, origin: "https://elsewhere.example" }), 403);
  assert.notEqual(await status({ authorization }), 401);
  await assert.rejects(connectHttp(server.url));
});

test("a client of the newest protocol is served without sessions, and receives progress", {
  timeout: 600_000,
}, async () => {
  await using server = await startHttp("--ws-auth", "none");
  const client = await connectHttp(server.url, undefined, {
    versionNegotiation: { mode: { pin: "2026-07-28" } },
  });
  const messages: string[] = [];
  const { content } = await client.callTool(
    { name: "exec_command", arguments: { cmd: "sleep 1.5; echo done", login: false } },
    { onprogress: ({ message }) => messages.push(message ?? "") },
  );
  assert.ok(content[0]?.type === "text" && content[0].text.endsWith("\ndone\n"));
  assert.match(messages[0] ?? "", /^session \d+: running for/);
  await client.close();
});

test("a server without authentication listens only on loopback", () => {
  const open = (http: string) => parseMcpHttpOptions({ http, "ws-auth": "none" });
  for (const http of ["0.0.0.0:0", "[::]:0", "host.example:0"])
    assert.throws(() => open(http), /--ws-auth none is for 127\.0\.0\.1/);
  for (const http of ["127.0.0.1:0", "[::1]:0", "localhost:0"]) assert.deepEqual(open(http).notices, []);
});
