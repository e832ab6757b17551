import type { AskCaller } from "./policy/approval.ts";

/** A JSON Schema object; opaque, because no code here reads its members. */
export type JsonSchema = Readonly<Record<string, unknown>>;

/** A tool as a model sees it: usable as a Responses API function tool, or by any other harness. */
export interface ToolDefinition {
  readonly name: string;
  readonly description: string;
  readonly parameters: JsonSchema;
  /** The parameters are such that a model's server can be made to keep to them exactly. */
  readonly strict?: boolean | undefined;
}

export interface ToolCallContext {
  /** Ends the wait, not the process behind it. */
  signal?: AbortSignal;
  /** Told while a call waits: a short human line. */
  onProgress?: (message: string) => void;
  /** Puts a question to the user of the caller; absent when the caller has no way to ask. */
  askCaller?: AskCaller;
}

export interface ToolOutput {
  /** What the model reads. */
  text: string;
  /** False when the call was refused or failed; the text says why. */
  ok: boolean;
  /** The same facts as an object, for programs. */
  structured?: Record<string, unknown>;
}

/** One callable tool. `call` never rejects for what a model did wrong: that is an output with `ok: false`. */
export interface Tool {
  readonly definition: ToolDefinition;
  /** What `structured` of an answer is that is `ok`; a JSON Schema of an object. */
  readonly outputSchema?: (JsonSchema & { readonly type: "object" }) | undefined;
  /** The tool emits events about what it starts, so a call of it is not reported as an item of its own. */
  readonly tellsItself?: boolean;
  call(args: unknown, context?: ToolCallContext): Promise<ToolOutput>;
}
