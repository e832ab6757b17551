/**
 * `procwire/agents`: the tools for agents of the OpenAI Agents SDK (`@openai/agents`), whose `tool` is handed in.
 *
 * @packageDocumentation
 */

import type { Tool } from "../tools/tool.ts";

/** What the SDK's `tool` is given. */
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
 * The tools as an Agent takes them. A call that the SDK aborts ends its wait; the process goes on in its session.
 *
 * @example
 * await using backend = createLocalBackend();
 * await using unified = createUnifiedExec({ backend, cwd: process.cwd() });
 * const agent = new Agent({ name: "Builder", tools: agentsTools(unified.tools, (options) => tool(options)) });
 */
export function agentsTools<T>(tools: readonly Tool[], tool: (options: AgentsToolOptions) => T): T[] {
  return tools.map((one) =>
    tool({
      name: one.definition.name,
      description: one.definition.description,
      // The SDK wants it open without strict mode; the tool itself still refuses arguments it does not know.
      parameters: { ...schemaOf(one.definition.parameters), additionalProperties: true },
      strict: false,
      execute: async (input, _context, details) =>
        (await one.call(input, details?.signal ? { signal: details.signal } : {})).text,
    }),
  );
}

function schemaOf(parameters: Tool["definition"]["parameters"]) {
  // Every definition has these three; the type is opaque because most harnesses pass it on as it is.
  return parameters as Omit<AgentsToolOptions["parameters"], "additionalProperties">;
}

export type * from "./tool-types.ts";
