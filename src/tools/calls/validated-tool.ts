import type { Tool, ToolCallContext, ToolDefinition, ToolOutput } from "../tool.ts";
import { type ArgumentsOf, type ArgumentsSchema, parseArguments } from "./tool-schema.ts";
import { errorAnswer } from "./yield-call.ts";

/** Creates a tool that validates its arguments before each call. An invalid argument returns an error output. */
export function validatedTool<S extends ArgumentsSchema>(
  definition: ToolDefinition,
  schema: S,
  call: (args: ArgumentsOf<S>, context: ToolCallContext) => Promise<ToolOutput>,
): Tool {
  return {
    definition,
    async call(args, context = {}) {
      const parsed = parseArguments(schema, args);
      if (parsed.type === "invalid") return errorAnswer(`${definition.name}: ${parsed.message}`);
      return call(parsed.value, context);
    },
  };
}
