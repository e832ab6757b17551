import type { Readable, Writable } from "node:stream";
import type { McpRequestContext, Server } from "@modelcontextprotocol/server";
import { toError } from "../../base/error-message.ts";
import { callback, checkOptions, optionsOf, required, text } from "../../exec/options/option-schema.ts";
import { readableKind, writableKind } from "../../exec/options/process-options.ts";
import { TOOL_HINTS } from "../calls/tool-hints.ts";
import type { Tool } from "../tool.ts";
import { toolsKind } from "../unified-exec-options.ts";
import { McpCalls } from "./mcp-calls.ts";
import { serveTasks, TASK_CAPABILITIES, TASK_TOOLS } from "./mcp-task-methods.ts";

export interface McpOptions {
  tools: readonly Tool[];
  /** Name that the server reports to clients. */
  name: string;
  version: string;
  /** Default: stdin and stdout of this process. */
  input?: Readable;
  output?: Writable;
  onError?: (error: Error) => void;
}

const mcpOptions = optionsOf<McpOptions>(() => ({
  tools: required(toolsKind),
  name: required(text),
  version: required(text),
  input: readableKind,
  output: writableKind,
  onError: callback,
}));

export interface McpServerHandle {
  /** Resolves when the client disconnects. */
  closed: Promise<void>;
  close(): Promise<void>;
}

/**
 * Serves tools to an MCP client over a pair of streams. Sends progress while a call waits. Canceling a call does not end
 * its process. Approval prompts go to the client's user. Loads the MCP library on demand.
 */
export async function serveMcp(options: McpOptions): Promise<McpServerHandle> {
  checkOptions("serveMcp", options, mcpOptions);
  const { input = process.stdin, output = process.stdout } = options;
  const [library, { serveStdio, StdioServerTransport }] = await Promise.all([
    import("@modelcontextprotocol/server"),
    import("@modelcontextprotocol/server/stdio"),
  ]);
  const calls = new McpCalls(library, (error) => options.onError?.(toError(error)));
  const newServer = serverFactory(library, options, calls);
  const closed = new Promise<void>((resolve) => {
    for (const event of ["end", "close", "error"]) input.once(event, () => resolve());
  });
  const handle = serveStdio(newServer, {
    transport: new StdioServerTransport(input, output),
    onerror: (error) => options.onError?.(error),
  });
  return {
    closed,
    close: () => {
      calls.close();
      return handle.close();
    },
  };
}

/** Returns a function that creates the servers of one client. They share tools, tasks and pending prompts. */
export function serverFactory(
  library: typeof import("@modelcontextprotocol/server"),
  { tools, name, version }: Pick<McpOptions, "tools" | "name" | "version">,
  calls: McpCalls,
): (context: Pick<McpRequestContext, "era">) => Server {
  const { ProtocolError, ProtocolErrorCode, Server } = library;
  return ({ era }) => {
    // The newer protocol has tasks only as an extension with different messages, which the library does not support yet.
    const hasTasks = era === "legacy";
    const capabilities = hasTasks ? { tools: {}, tasks: TASK_CAPABILITIES } : { tools: {} };
    const server = new Server({ name, version }, { capabilities, instructions: INSTRUCTIONS });
    if (hasTasks) serveTasks(library, server, calls);
    server.setRequestHandler("tools/list", () => ({
      tools: tools.map((tool) => describeTool(tool, hasTasks)),
    }));
    server.setRequestHandler("tools/call", async ({ params }, context) => {
      const tool = tools.find(({ definition }) => definition.name === params.name);
      if (!tool) throw new ProtocolError(ProtocolErrorCode.InvalidParams, `unknown tool \`${params.name}\``);
      const { task } = params;
      if (!hasTasks || task === undefined) return calls.run(tool, params.arguments, context, { server, era });
      if (!TASK_TOOLS.has(params.name))
        throw new ProtocolError(
          ProtocolErrorCode.MethodNotFound,
          `tool \`${params.name}\` does not support tasks: it returns immediately`,
        );
      // The library requires content in every response to a call.
      const started = calls.startTask(tool, params.arguments, { server, context, ttlMs: task.ttl });
      return { content: [], task: started };
    });
    return server;
  };
}

function describeTool({ definition, outputSchema }: Tool, hasTasks: boolean) {
  const { name, description, parameters } = definition;
  const listed = {
    name,
    description,
    ...TOOL_HINTS[name],
    inputSchema: { ...parameters, type: "object" as const },
    outputSchema,
  };
  return hasTasks && TASK_TOOLS.has(name) ? { ...listed, execution: { taskSupport: "optional" as const } } : listed;
}

const INSTRUCTIONS =
  "Shell commands in sessions that continue between calls. exec_command starts a command; if it runs longer than its yield window, use the returned session_id: write_stdin to type, wait_for to wait, read_screen to read a full-screen program.";
