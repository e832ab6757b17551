/**
 * `procwire/agents`: the tools for the OpenAI Agents SDK (`@openai/agents`). The caller passes the SDK's `tool`.
 *
 * @packageDocumentation
 */

import type { Tool } from "../tools/tool.ts";
import { checkConversion } from "../tools/unified-exec-options.ts";

/** Argument of the SDK's `tool`. */
export interface AgentsToolOptions {
  name: string;
  description: string;
  parameters: {
    type: "object";
    properties: Record<string, { type: string; description?: string }>;
    required: string[];
    additionalProperties: true;
  };
  /** Strict mode would make every argument required. */
  strict: false;
  execute: (input: unknown, context?: unknown, details?: { signal?: AbortSignal }) => Promise<string>;
}

/**
 * Converts the tools for an Agent. If the SDK aborts a call, the call returns and the process continues in its session.
 *
 * @example
 * await using backend = createLocalBackend();
 * await using unified = createUnifiedExec({ backend, cwd: process.cwd() });
 * const agent = new Agent({ name: "Builder", tools: agentsTools(unified.tools, (options) => tool(options)) });
 */
export function agentsTools<T>(tools: readonly Tool[], tool: (options: AgentsToolOptions) => T): T[] {
  checkConversion("agentsTools", tools, tool);
  return tools.map((source) =>
    tool({
      name: source.definition.name,
      description: source.definition.description,
      // Without strict mode, the SDK requires an open schema. The tool still rejects unknown arguments.
      parameters: { ...schemaOf(source.definition.parameters), additionalProperties: true },
      strict: false,
      execute: async (input, _context, details) =>
        (await source.call(input, details?.signal ? { signal: details.signal } : {})).text,
    }),
  );
}

function schemaOf(parameters: Tool["definition"]["parameters"]) {
  // Every definition has these members. The type is opaque, because most SDKs pass the schema on unchanged.
  return parameters as Omit<AgentsToolOptions["parameters"], "additionalProperties">;
}

export type * from "./tool-types.ts";
