import assert from "node:assert/strict";
import { test } from "node:test";
import { type AgentsToolOptions, agentsTools } from "../../src/adapters/agents.ts";
import { type AiToolOptions, aiTools } from "../../src/adapters/ai.ts";
import { createLocalBackend } from "../../src/host/this-machine.ts";
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
    const abortSignal = AbortSignal.abort();
    const text = await tools.exec_command?.execute({ cmd: "sleep 60", login: false }, { abortSignal });
    assert.match(text ?? "", /Process running with session ID 1/);
    const [exec] = agentsTools(unified.tools, (options: AgentsToolOptions) => options);
    const details = { signal: abortSignal };
    const other = await exec?.execute({ cmd: "sleep 60", login: false }, undefined, details);
    assert.match(other ?? "", /Process running with session ID 2/);
  }));
