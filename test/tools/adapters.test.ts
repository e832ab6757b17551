import assert from "node:assert/strict";
import { test } from "node:test";
import { type AgentsToolOptions, agentsTools } from "../../src/adapters/agents.ts";
import { type AiToolOptions, aiTools } from "../../src/adapters/ai.ts";
import { createLocalBackend } from "../../src/host/create-local-backend.ts";
import type { UnifiedExec } from "../../src/tools/unified-exec.ts";
import { createUnifiedExec } from "../../src/tools/unified-exec.ts";

async function withTools(run: (unified: UnifiedExec) => Promise<void>): Promise<void> {
  await using backend = createLocalBackend();
  await using unified = createUnifiedExec({ backend, cwd: "/" });
  await run(unified);
}

test("the tools fit the OpenAI Agents SDK's tool function", () =>
  withTools(async (unified) => {
    const [exec] = agentsTools(unified.tools, (options: AgentsToolOptions) => options);
    assert.ok(exec);
    assert.deepEqual([exec.name, exec.parameters.required], ["exec_command", ["cmd"]]);
    assert.equal(exec.parameters.properties.cmd?.type, "string");
    assert.match(await exec.execute({ cmd: "echo agents", login: false }), /Output:\nagents\n$/);
    assert.match(await exec.execute({ command: "echo" }), /unknown argument `command`/);
  }));

test("the tools fit the AI SDK's tool function", () =>
  withTools(async (unified) => {
    const tools = aiTools(unified.tools, (options: AiToolOptions) => options);
    assert.deepEqual(Object.keys(tools).slice(0, 2), ["exec_command", "write_stdin"]);
    const answered = tools.exec_command?.execute({ cmd: "echo ai", login: false }, {});
    assert.match((await answered) ?? "", /Output:\nai\n$/);
  }));

test("an abort signal passed through an adapter ends the wait", () =>
  withTools(async (unified) => {
    const tools = aiTools(unified.tools, (options: AiToolOptions) => options);
    // The next call returns the output of an aborted call.
    const abortSignal = AbortSignal.abort();
    const input = { cmd: "echo shown; exec sleep 60", login: false, yield_time_ms: 1000 };
    const text = await tools.exec_command?.execute(input, { abortSignal });
    assert.match(text ?? "", /Process running with session ID 1\n.*\nOutput:\n$/);
    const [exec] = agentsTools(unified.tools, (options: AgentsToolOptions) => options);
    const other = await exec?.execute(input, undefined, { signal: abortSignal });
    assert.match(other ?? "", /Process running with session ID 2\n.*\nOutput:\n$/);
  }));
