import assert from "node:assert/strict";
import { spawn } from "node:child_process";
import { existsSync } from "node:fs";
import { test } from "node:test";
import { fileURLToPath } from "node:url";
import { PROCWIRE, ServeChild } from "../test/support/serve.ts";
import { until } from "../test/support/until.ts";

/** The official conformance suite against `procwire mcp --http`; expected failures have their reason beside them. */

const path = (name: string) => fileURLToPath(new URL(`./conformance/${name}`, import.meta.url));
const SUITE = path("node_modules/@modelcontextprotocol/conformance/dist/index.js");
const missing = existsSync(SUITE)
  ? false
  : "SKIPPED: the conformance suite is not installed; run `npm ci --prefix interop/conformance`";

test("the official conformance suite passes but for what is listed with its reason", {
  skip: missing,
  timeout: 120_000,
}, async () => {
  await using server = new ServeChild([], {
    command: [PROCWIRE, "mcp", "--http", "127.0.0.1:0", "--ws-auth", "none"],
  });
  server.child.stdout?.setEncoding("utf8").on("data", (text: string) => {
    server.url += text;
  });
  await until("a URL on stdout", () => server.url.includes("\n"), server.exited);
  const args = ["server", "--url", server.url.trim(), "--expected-failures", path("expected-failures.yml")];
  const suite = spawn(process.execPath, [SUITE, ...args], { stdio: ["ignore", "pipe", "pipe"] });
  let said = "";
  for (const stream of [suite.stdout, suite.stderr])
    stream.setEncoding("utf8").on("data", (text: string) => {
      said += text;
    });
  const code = await new Promise((resolve) => suite.on("close", resolve));
  assert.equal(code, 0, said.slice(said.indexOf("=== SUMMARY")));
  for (const scenario of ["server-initialize", "ping", "tools-list", "server-sse-multiple-streams"])
    assert.match(said, new RegExp(`✓ ${scenario}: [1-9]\\d* passed, 0 failed`));
  assert.match(said, /✓ dns-rebinding-protection: [1-9]\d* passed, 0 failed/);
});
