import assert from "node:assert/strict";
import { test } from "node:test";
import type { Client } from "@modelcontextprotocol/client";
import ajv from "ajv";
import { connectHttp, startHttp } from "./http-mcp.ts";
import { startMcp } from "./start-mcp.ts";

/** Structured results for programs that use the official client. */

const EVERY_TOOL = [
  "exec_command",
  "write_stdin",
  "wait_for",
  "kill_session",
  "list_sessions",
  "read_output",
  "read_screen",
];

/** Calls each tool, validates its result against the listed schema, and returns the structured results. */
async function callEveryTool(client: Client): Promise<void> {
  const { tools } = await client.listTools();
  assert.deepEqual(
    tools.map(({ name }) => name),
    EVERY_TOOL,
  );
  const validator = new ajv.Ajv({ strict: true, allErrors: true });
  const schemas = new Map(
    tools.map(({ name, outputSchema }) => [name, validator.compile(JSON.parse(JSON.stringify(outputSchema)))]),
  );
  for (const { name, outputSchema } of tools) assert.equal(outputSchema?.type, "object", name);
  const call = async (name: string, given: Record<string, unknown>) => {
    const { structuredContent, isError, content } = await client.callTool({ name, arguments: given });
    const [text] = content;
    assert.ok(!isError && structuredContent && text?.type === "text", JSON.stringify(content));
    const isValid = schemas.get(name);
    assert.ok(isValid?.(structuredContent), JSON.stringify([isValid?.errors, structuredContent]));
    return new Map(Object.entries(structuredContent));
  };
  const ended = await call("exec_command", { cmd: "seq 1 9999; exit 3", max_output_tokens: 5 });
  assert.equal(ended.get("exit_code"), 3);
  const cmd = "stty -echo; printf 'Password: '; read -r word; echo \"<$word>\"; sleep 600";
  const begun = await call("exec_command", { cmd, tty: true, yield_time_ms: 250 });
  const session_id = begun.get("session_id");
  const asks = await call("wait_for", { session_id, until: "pattern", pattern: "Password" });
  assert.match(String(asks.get("wait")), /^matched/);
  await call("write_stdin", { session_id, chars: "word\n" });
  await call("wait_for", { session_id, until: "pattern", pattern: "<word>" });
  const { lines } = Object.fromEntries(await call("read_screen", { session_id }));
  assert.match(JSON.stringify(lines), /<word>/);
  assert.match(String((await call("read_output", { session_id })).get("output")), /Password: .*<word>/s);
  assert.match(JSON.stringify((await call("list_sessions", {})).get("sessions")), /"state":"running"/);
  const killed = await call("kill_session", { session_id, force: true });
  assert.equal(killed.get("signal"), "SIGKILL");
  // The second listing finds an ended session that was not reported yet.
  await call("exec_command", { cmd: "sleep 0.3; exit 4", yield_time_ms: 250 });
  await call("list_sessions", {});
}

test("every tool returns a structured result that matches its schema, over stdio", {
  timeout: 600_000,
}, async () => {
  await using mcp = await startMcp();
  await callEveryTool(mcp.client);
});

for (const pin of ["2025-11-25", "2026-07-28"])
  test(`every tool returns a structured result that matches its schema, over HTTP with ${pin}`, {
    timeout: 600_000,
  }, async () => {
    await using server = await startHttp("--ws-auth", "none");
    const options = pin.startsWith("2026") ? { versionNegotiation: { mode: { pin } } } : {};
    const client = await connectHttp(server.url, undefined, options);
    await callEveryTool(client);
    await client.close();
  });

test("a rejected call has no structured result, and its text has the reason", {
  timeout: 600_000,
}, async () => {
  await using mcp = await startMcp();
  await mcp.client.listTools();
  const result = await mcp.client.callTool({ name: "write_stdin", arguments: { session_id: 9 } });
  assert.deepEqual(
    [result.isError, result.structuredContent, result.content],
    [true, undefined, [{ type: "text", text: "write_stdin failed: Unknown process id 9" }]],
  );
});
