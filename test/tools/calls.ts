import assert from "node:assert/strict";
import type { UnifiedExecEvent } from "../../src/tools/sessions/exec-events.ts";
import type { ToolCallContext, ToolOutput } from "../../src/tools/tool.ts";
import type { UnifiedExec } from "../../src/tools/unified-exec.ts";

/** Calls a tool by its name. */
export function call(
  unified: UnifiedExec,
  name: string,
  args: Record<string, unknown> = {},
  context?: ToolCallContext,
): Promise<ToolOutput> {
  const tool = unified.tools.find(({ definition }) => definition.name === name);
  assert.ok(tool, `no tool ${name}`);
  return tool.call(args, context);
}

/** Returns a member of the structured result. */
export function fact(output: ToolOutput, name: string): unknown {
  return output.structured?.[name];
}

export function textOf(output: ToolOutput): string {
  const text = fact(output, "output");
  assert.equal(typeof text, "string", output.text);
  return String(text);
}

export function sessionOf(output: ToolOutput): number {
  const sessionId = fact(output, "session_id");
  assert.equal(typeof sessionId, "number", output.text);
  return Number(sessionId);
}

/** Collects events until `close`. */
export function collectEvents(unified: UnifiedExec): UnifiedExecEvent[] {
  const seen: UnifiedExecEvent[] = [];
  void (async () => {
    for await (const event of unified.events()) seen.push(event);
  })();
  return seen;
}

export function typesOf(events: readonly UnifiedExecEvent[]): string[] {
  return events.map((event) => event.type);
}

/** Reports whether a promise is settled after all pending reactions ran. */
export async function isSettled(promise: Promise<unknown>): Promise<boolean> {
  let settled = false;
  const note = () => {
    settled = true;
  };
  promise.then(note, note);
  await new Promise((resolve) => setImmediate(resolve));
  return settled;
}
