import assert from "node:assert/strict";
import { spawn } from "node:child_process";
import { existsSync } from "node:fs";
import { describe, test } from "node:test";
import { fileURLToPath } from "node:url";
import { parseMcpHttpOptions } from "../src/cli/options/mcp-http-options.ts";
import { listenHttp } from "../src/tools/mcp/mcp-http.ts";
import { PROCWIRE, ServeChild } from "../test/support/servers/serve.ts";
import { until } from "../test/support/system/until.ts";
import { exampleServers } from "./conformance/example-tools.ts";

/** The official conformance suite over HTTP. Each expected failure is listed with its reason. */

const path = (name: string) => fileURLToPath(new URL(`./conformance/${name}`, import.meta.url));
const SUITE = path("node_modules/@modelcontextprotocol/conformance/dist/index.js");
const missing = existsSync(SUITE)
  ? false
  : "SKIPPED: the conformance suite is not installed; run `npm ci --prefix interop/conformance`";

/** Runs every scenario. Returns the suite's output once all scenarios except the expected failures have passed. */
async function runSuite(url: string, expectedFailures: string): Promise<string> {
  const args = ["server", "--url", url, "--expected-failures", path(expectedFailures)];
  const suite = spawn(process.execPath, [SUITE, ...args], { stdio: ["ignore", "pipe", "pipe"] });
  let printed = "";
  for (const stream of [suite.stdout, suite.stderr])
    stream.setEncoding("utf8").on("data", (text: string) => {
      printed += text;
    });
  const code = await new Promise((resolve) => suite.on("close", resolve));
  assert.equal(code, 0, printed.slice(printed.indexOf("=== SUMMARY")));
  return printed;
}

function assertPassed(printed: string, scenarios: readonly string[]): void {
  for (const scenario of scenarios) assert.match(printed, new RegExp(`✓ ${scenario}: [1-9]\\d* passed, 0 failed`));
}

const COMMON_SCENARIOS = [
  ...["server-initialize", "ping", "tools-list"],
  ...["server-sse-multiple-streams", "dns-rebinding-protection"],
];

describe("the official conformance suite", { skip: missing, timeout: 600_000 }, () => {
  test("passes on `procwire mcp --http` except for the listed failures", async () => {
    await using server = new ServeChild([], {
      command: [PROCWIRE, "mcp", "--http", "127.0.0.1:0", "--ws-auth", "none"],
    });
    server.child.stdout?.setEncoding("utf8").on("data", (text: string) => {
      server.url += text;
    });
    await until("a URL on stdout", () => server.url.includes("\n"), server.exited);
    assertPassed(await runSuite(server.url.trim(), "expected-failures.yml"), COMMON_SCENARIOS);
  });

  test("passes on the same HTTP sessions with the example tools of the suite", async () => {
    const library = await import("@modelcontextprotocol/server");
    const place = parseMcpHttpOptions({ http: "127.0.0.1:0", "ws-auth": "none" });
    const serving = await listenHttp(library, place, () => exampleServers(library));
    try {
      assertPassed(await runSuite(serving.url, "not-offered.yml"), [
        ...COMMON_SCENARIOS,
        ...["logging-set-level", "tools-call-simple-text", "tools-call-error", "tools-call-image"],
        ...["tools-call-audio", "tools-call-embedded-resource", "tools-call-mixed-content"],
        ...["tools-call-with-logging", "tools-call-with-progress", "tools-call-sampling"],
        ...["tools-call-elicitation", "elicitation-sep1034-defaults", "elicitation-sep1330-enums"],
      ]);
    } finally {
      await serving.close();
    }
  });
});
