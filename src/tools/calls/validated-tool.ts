import type { ExecContext } from "../sessions/exec-context.ts";
import type { ExecSession } from "../sessions/exec-session.ts";
import type { Tool, ToolCallContext, ToolDefinition, ToolOutput } from "../tool.ts";
import { type ArgumentsOf, type ArgumentsSchema, parseArguments } from "./tool-schema.ts";
import { errorAnswer } from "./yield-call.ts";

/** Creates a tool that validates its arguments before each call. An invalid argument returns an error output. */
export function validatedTool<S extends ArgumentsSchema>(
  definition: ToolDefinition & { parameters: S },
  call: (args: ArgumentsOf<S>, context: ToolCallContext) => Promise<ToolOutput>,
): Tool {
  return {
    definition,
    async call(args, context = {}) {
      const parsed = parseArguments(definition.parameters, args);
      if (parsed.type === "invalid") return errorAnswer(`${definition.name}: ${parsed.message}`);
      return call(parsed.value, context);
    },
  };
}

/** Creates a tool for the exec session that its argument `session_id` names. An unknown id returns an error output. */
export function sessionTool<S extends ArgumentsSchema>(
  context: ExecContext,
  definition: ToolDefinition & { parameters: S },
  call: (session: ExecSession, args: ArgumentsOf<S>, call: ToolCallContext) => Promise<ToolOutput>,
): Tool {
  return validatedTool(definition, async (args, callContext) => {
    // Ids start at 1.
    const sessionId = "session_id" in args ? Number(args.session_id) : 0;
    const session = context.sessions.get(sessionId);
    return session ? call(session, args, callContext) : unknownSession(definition.name, sessionId);
  });
}

/** Uses the text of Codex, although the argument is named session_id. */
export function unknownSession(tool: string, sessionId: number): ToolOutput {
  return errorAnswer(`${tool} failed: Unknown process id ${sessionId}`);
}
