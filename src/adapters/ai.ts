/**
 * `procwire/ai`: the tools for the AI SDK (`ai`). The caller passes the SDK's `tool` and `jsonSchema`.
 *
 * @packageDocumentation
 */

import type { Tool } from "../tools/tool.ts";
import { checkConversion } from "../tools/unified-exec-options.ts";

/** Argument of the SDK's `tool`. The caller wraps `inputSchema` with `jsonSchema`. */
export interface AiToolOptions {
  description: string;
  inputSchema: Readonly<Record<string, unknown>>;
  execute: (input: Record<string, unknown>, options: { abortSignal?: AbortSignal | undefined }) => Promise<string>;
}

/**
 * Returns the tools by name for `generateText` and `streamText`. If the SDK aborts a call, the call returns and the process
 * continues in its session.
 *
 * @example
 * await using backend = createLocalBackend();
 * await using unified = createUnifiedExec({ backend, cwd: process.cwd() });
 * const tools = aiTools(unified.tools, (options) =>
 *   tool({ ...options, inputSchema: jsonSchema<Record<string, unknown>>(options.inputSchema) }),
 * );
 * const { text } = await generateText({ model, tools, prompt: "Run the tests." });
 */
export function aiTools<T>(tools: readonly Tool[], tool: (options: AiToolOptions) => T): Record<string, T> {
  checkConversion("aiTools", tools, tool);
  return Object.fromEntries(
    tools.map((source) => [
      source.definition.name,
      tool({
        description: source.definition.description,
        inputSchema: source.definition.parameters,
        execute: async (input, { abortSignal }) =>
          (await source.call(input, abortSignal ? { signal: abortSignal } : {})).text,
      }),
    ]),
  );
}

export type * from "./tool-types.ts";
