import assert from "node:assert/strict";
import { writeFileSync } from "node:fs";
import { join } from "node:path";
import { test } from "node:test";
import type { Client, Task } from "@modelcontextprotocol/client";
import { specTypeSchemas } from "@modelcontextprotocol/client";
import { until } from "../../support/system/until.ts";
import { connectHttp, startHttp } from "./http-mcp.ts";
import { startMcp } from "./start-mcp.ts";

/** Long calls as tasks of MCP 2025-11-25, with the official client. */

const begin = async (client: Client, name: string, given: Record<string, unknown>, ttl = 60_000): Promise<Task> => {
  const params = { name, arguments: given, task: { ttl } };
  const { task } = await client.request({ method: "tools/call", params }, specTypeSchemas.CreateTaskResult);
  return task;
};
const about = <T>(client: Client, method: string, taskId: string, schema: Parameters<Client["request"]>[1] & T) =>
  client.request({ method, params: { taskId } }, schema);
const status = async (client: Client, taskId: string) =>
  (await about(client, "tasks/get", taskId, specTypeSchemas.GetTaskResult)).status;
const result = (client: Client, taskId: string) =>
  about(client, "tasks/result", taskId, specTypeSchemas.CallToolResult);

async function followTask(client: Client, directory: string): Promise<void> {
  const capabilities = client.getServerCapabilities()?.tasks;
  assert.deepEqual(capabilities, { list: {}, cancel: {}, requests: { tools: { call: {} } } });
  const { tools } = await client.listTools();
  assert.equal(tools.find(({ name }) => name === "exec_command")?.execution?.taskSupport, "optional");
  const cmd = `until [ -e ${directory}/go ]; do sleep 0.02; done; echo done`;
  const { taskId, status: first } = await begin(client, "exec_command", { cmd, yield_time_ms: 30_000 });
  assert.deepEqual([first, await status(client, taskId)], ["working", "working"]);
  writeFileSync(join(directory, "go"), "");
  const { content, structuredContent, _meta } = await result(client, taskId);
  assert.ok(content[0]?.type === "text" && content[0].text.endsWith("\ndone\n"), JSON.stringify(content));
  assert.equal(new Map(Object.entries(structuredContent ?? {})).get("exit_code"), 0);
  assert.deepEqual(_meta?.["io.modelcontextprotocol/related-task"], { taskId });
  assert.equal(await status(client, taskId), "completed");
  const { tasks } = await client.request({ method: "tasks/list" }, specTypeSchemas.ListTasksResult);
  assert.deepEqual(
    tasks.map((task) => task.taskId),
    [taskId],
  );
}

test("a long call is a task that the client polls, over stdio", {
  timeout: 600_000,
}, async () => {
  await using mcp = await startMcp();
  await followTask(mcp.client, mcp.directory);
});

test("a long call is a task that the client polls, over HTTP", {
  timeout: 600_000,
}, async () => {
  await using mcp = await startMcp();
  await using server = await startHttp("--ws-auth", "none");
  const client = await connectHttp(server.url);
  await followTask(client, mcp.directory);
  await client.close();
});

test("canceling a task ends the wait, and the command keeps running", {
  timeout: 600_000,
}, async () => {
  await using mcp = await startMcp();
  const { client, call } = mcp;
  const args = { cmd: "echo kept; exec sleep 600", yield_time_ms: 30_000 };
  const { taskId } = await begin(client, "exec_command", args);
  await until("the command runs", async () => /running/.test((await call("list_sessions")).text));
  const cancelled = await about(client, "tasks/cancel", taskId, specTypeSchemas.CancelTaskResult);
  assert.equal(cancelled.status, "cancelled");
  const session_id = Number(/^(\d+): running/.exec((await call("list_sessions")).text)?.[1]);
  assert.match((await call("kill_session", { session_id })).text, /\nkept\n$/);
  await assert.rejects(about(client, "tasks/cancel", taskId, specTypeSchemas.CancelTaskResult), /has ended: cancelled/);
});

test("a rejected call is a failed task; an unknown task, or a tool without tasks, is an error", {
  timeout: 600_000,
}, async () => {
  await using mcp = await startMcp();
  const { client } = mcp;
  const { taskId } = await begin(client, "write_stdin", { session_id: 9 });
  assert.equal((await result(client, taskId)).isError, true);
  assert.equal(await status(client, taskId), "failed");
  await assert.rejects(status(client, "nope"), /unknown task `nope`/);
  await assert.rejects(begin(client, "list_sessions", {}), /tool `list_sessions` does not support tasks/);
  const { taskId: brief } = await begin(client, "exec_command", { cmd: "true" }, 0);
  await assert.rejects(status(client, brief), /unknown task/, "its time is over at once");
});

test("the task has the status input_required during a prompt, and the answer decides the command", {
  timeout: 600_000,
}, async () => {
  const answered = Promise.withResolvers<void>();
  await using mcp = await startMcp(["--ask"], { capabilities: { elicitation: { form: {} } } }, async (form) => {
    assert.match(form.message, /\$ echo allowed/);
    await answered.promise;
    return { action: "accept", content: { decision: "allow once" } };
  });
  const { taskId } = await begin(mcp.client, "exec_command", { cmd: "echo allowed" });
  await until("the user gets the prompt", async () => (await status(mcp.client, taskId)) === "input_required");
  answered.resolve();
  const { content } = await result(mcp.client, taskId);
  assert.ok(content[0]?.type === "text" && content[0].text.endsWith("\nallowed\n"));
});
