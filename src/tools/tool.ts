import type { PromptCaller } from "./policy/approval.ts";

/** A JSON Schema object; opaque, because no code here reads its members. */
export type JsonSchema = Readonly<Record<string, unknown>>;

/** A tool as a model sees it. Suitable for the Responses API and for other model APIs. */
export interface ToolDefinition {
  readonly name: string;
  readonly description: string;
  readonly parameters: JsonSchema;
  /** Whether the schema permits the API's strict mode, which enforces it exactly. */
  readonly strict?: boolean | undefined;
}

export interface ToolCallContext {
  /** Ends the call, but not its process. */
  signal?: AbortSignal;
  /** Called with a short readable line while a call waits. */
  onProgress?: (message: string) => void;
  /** Identifies the caller. Remembered approvals apply only to later calls of the same caller. */
  caller?: object;
  /** Asks the user of the caller. Absent if the caller cannot ask. */
  askCaller?: PromptCaller;
}

export interface ToolOutput {
  /** Result for the model. */
  text: string;
  /** False if the call was rejected or failed; `text` has the reason. */
  ok: boolean;
  /** The same result as an object, for programs. */
  structured?: Record<string, unknown>;
}

/** A callable tool. Mistakes of a model do not reject `call`; they return an output with `ok: false`. */
export interface Tool {
  readonly definition: ToolDefinition;
  /** JSON Schema of `structured` in a successful output. */
  readonly outputSchema?: (JsonSchema & { readonly type: "object" }) | undefined;
  /** Whether the tool emits events for its processes. Its calls are then not reported as separate items. */
  readonly emitsOwnItems?: boolean;
  call(args: unknown, context?: ToolCallContext): Promise<ToolOutput>;
}
