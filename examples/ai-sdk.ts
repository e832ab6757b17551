/**
 * The tools with the AI SDK. procwire does not depend on it: its `tool` and `jsonSchema` functions are handed in.
 *
 *     import { generateText, jsonSchema, stepCountIs, tool } from "ai";
 *
 *     await using backend = createLocalBackend();
 *     await using unified = createUnifiedExec({ backend, cwd: process.cwd() });
 *     const tools = aiTools(unified.tools, (options) =>
 *       tool({ ...options, inputSchema: jsonSchema<Record<string, unknown>>(options.inputSchema) }),
 *     );
 *     const { text } = await generateText({ model, tools, stopWhen: stepCountIs(20), prompt: "Run the tests." });
 */
import type { Tool } from "../src/tools/tool.ts";

/** What the SDK's `tool` is given, with the schema still to be wrapped by its `jsonSchema`. */
export interface AiToolOptions {
  description: string;
  inputSchema: Readonly<Record<string, unknown>>;
  execute: (input: Record<string, unknown>, options: { abortSignal?: AbortSignal }) => Promise<string>;
}

/** A set of tools by their names, as `generateText` and `streamText` take it. */
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
