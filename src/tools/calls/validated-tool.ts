import type { Tool, ToolCallContext, ToolDefinition, ToolOutput } from "../tool.ts";
import { type ArgumentsOf, type ArgumentsSchema, parseArguments } from "./tool-schema.ts";
import { refusal } from "./yield-call.ts";

/** A tool whose arguments are checked before it is called; one that does not fit is named in the answer. */
export function checkedTool<S extends ArgumentsSchema>(
  definition: ToolDefinition,
  schema: S,
  call: (args: ArgumentsOf<S>, context: ToolCallContext) => Promise<ToolOutput>,
): Tool {
  return {
    definition,
    async call(args, context = {}) {
      const parsed = parseArguments(schema, args);
      if (parsed.type === "invalid") return refusal(`${definition.name}: ${parsed.message}`);
      return call(parsed.value, context);
    },
  };
}
