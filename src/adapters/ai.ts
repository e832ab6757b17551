/**
 * `procwire/ai`: the tools for the AI SDK (`ai`), whose `tool` and `jsonSchema` are handed in.
 *
 * @packageDocumentation
 */

import type { Tool } from "../tools/tool.ts";

/** What the SDK's `tool` is given, with the schema still to be wrapped by its `jsonSchema`. */
export interface AiToolOptions {
  description: string;
  inputSchema: Readonly<Record<string, unknown>>;
  execute: (
    input: Record<string, unknown>,
    options: { abortSignal?: AbortSignal | undefined },
  ) => Promise<string>;
}

/**
 * The tools by their names, as `generateText` and `streamText` take them. A call that the SDK aborts ends its wait; the
 * process goes on in its session.
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
  return Object.fromEntries(
    tools.map((one) => [
      one.definition.name,
      tool({
        description: one.definition.description,
        inputSchema: one.definition.parameters,
        execute: async (input, { abortSignal }) =>
          (await one.call(input, abortSignal ? { signal: abortSignal } : {})).text,
      }),
    ]),
  );
}

export type * from "./tool-types.ts";
