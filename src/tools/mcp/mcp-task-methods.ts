import type { Result, Server, ServerContext, StandardSchemaV1 } from "@modelcontextprotocol/server";
import type { ToolOutput } from "../tool.ts";
import { type McpCalls, resultOf } from "./mcp-calls.ts";

/** Task capabilities of the server, as defined by MCP 2025-11-25. */
export const TASK_CAPABILITIES = { list: {}, cancel: {}, requests: { tools: { call: {} } } };

/** Tools whose calls may take long. The others return immediately and do not need tasks. */
export const TASK_TOOLS: ReadonlySet<string> = new Set(["exec_command", "write_stdin", "wait_for", "kill_session"]);

/** Registers the `tasks/*` methods. */
export function serveTasks(
  { ProtocolError, ProtocolErrorCode, RELATED_TASK_META_KEY }: typeof import("@modelcontextprotocol/server"),
  server: Server,
  calls: McpCalls,
): void {
  const { tasks } = calls;
  const unknown = (taskId: string) =>
    new ProtocolError(ProtocolErrorCode.InvalidParams, `unknown task \`${taskId}\`; it may have expired`);
  const handle = (
    method: string,
    respond: (taskId: string, context: ServerContext) => Promise<Result | null> | Result | null,
  ) =>
    server.setRequestHandler(method, { params: TASK_PARAMS }, async ({ taskId }, context) => {
      const response = await respond(taskId, context);
      if (!response) throw unknown(taskId);
      return response;
    });
  handle("tasks/get", (taskId) => tasks.get(taskId));
  handle("tasks/result", async (taskId, context) => {
    const output: ToolOutput | null = await tasks.result(taskId, calls.elicitation.forCall(server, context));
    return output && { ...resultOf(output), _meta: { [RELATED_TASK_META_KEY]: { taskId } } };
  });
  handle("tasks/cancel", (taskId) => {
    const cancelled = tasks.cancel(taskId);
    const known = tasks.get(taskId);
    if (!cancelled && known)
      throw new ProtocolError(ProtocolErrorCode.InvalidParams, `task \`${taskId}\` has ended: ${known.status}`);
    return cancelled;
  });
  server.setRequestHandler("tasks/list", { params: ANY_PARAMS }, () => ({ tasks: tasks.list() }));
}

const TASK_PARAMS = createSchema((value): { taskId: string } | null =>
  typeof value === "object" && value !== null && "taskId" in value && typeof value.taskId === "string"
    ? { taskId: value.taskId }
    : null,
);

const ANY_PARAMS = createSchema(() => ({}));

function createSchema<T>(parse: (value: unknown) => T | null): StandardSchemaV1<unknown, T> {
  const validate = (value: unknown) => {
    const parsed = parse(value);
    return parsed === null ? { issues: [{ message: "`taskId` must be a string" }] } : { value: parsed };
  };
  return { "~standard": { version: 1, vendor: "procwire", validate } };
}
