import type { ToolDefinition } from "../../tools/tool.ts";
import type { BatchApi } from "../batch/batch-api.ts";
import type { JsonObject, ResponseEvent } from "./response-events.ts";

/** A request to a model, independent of the dialect. The history consists of items of the Responses API. */
export interface ModelRequest {
  model: string;
  /** The part of the prompt that all requests with the same `cacheKey` share. */
  instructions: string;
  input: readonly JsonObject[];
  tools: readonly ToolDefinition[];
  parallelToolCalls: boolean;
  /** The tool that the model must call. Default: the model chooses. */
  forcedTool?: string | undefined;
  reasoningEffort?: string | undefined;
  /** JSON Schema of the answer. */
  outputSchema?: JsonObject | undefined;
  options?: RequestOptions | undefined;
  /** Lets the server reuse its cached computation of the shared prefix. */
  cacheKey: string;
  headers?: Readonly<Record<string, string>> | undefined;
}

/** Request options that the user set by flags. They are sent unchanged and never dropped. */
export interface RequestOptions {
  temperature?: number | undefined;
  maxOutputTokens?: number | undefined;
  serviceTier?: string | undefined;
  /** Additional body fields. They override the generated ones. */
  extraBody?: JsonObject | undefined;
}

export type ResponseHeaders = Readonly<Record<string, string | string[] | undefined>>;

export interface ResponseListener {
  /** Called when the API accepts the request, before the answer. */
  onAccepted?(headers: ResponseHeaders): void;
  onEvent(event: ResponseEvent): void;
}

export interface ModelApi {
  /** The batch API; null or absent if the provider has none. */
  readonly batches?: BatchApi | null | undefined;
  /** Resolves after the terminal event. Rejects with a `ModelError` if there is none, or with the signal's reason. */
  send(request: ModelRequest, signal: AbortSignal, listener: ResponseListener): Promise<void>;
  /** Closes all connections. */
  close(): void;
}

/**
 * The request and response format of one API dialect. Every dialect uses one POST whose response is an event stream.
 */
export interface ModelDialect {
  /** Path of the endpoint; appended to the base URL. */
  readonly path: string;
  headers(apiKey: string | undefined): Readonly<Record<string, string>>;
  /** Parameters that procwire adds and that a request can omit. */
  readonly droppable: readonly DroppableParameter[];
  body(request: ModelRequest, dropped: ReadonlySet<string>): JsonObject;
  decoder(request: ModelRequest, dropped: ReadonlySet<string>): ResponseDecoder;
  /** Converts a complete answer, as a batch contains it, to the data of one event. */
  decodeWhole(body: JsonObject): string;
  /** Kind of batch API: files and a batch object (OpenAI), or requests in one body (Anthropic). */
  readonly batches: "files" | "messages";
  /** Returns the headers with all rate limits under the names `x-ratelimit-…`. */
  limitHeaders?(headers: ResponseHeaders): ResponseHeaders;
}

export interface DroppableParameter {
  readonly name: string;
  /** Matches the error message of an API that rejects this parameter. */
  readonly rejectionPattern: RegExp;
  /** Reports whether the request contains the parameter and can omit it. Default: its body has a field of that name. */
  canDrop?(request: ModelRequest): boolean;
}

/** Reports whether a request makes the server enforce the parameters of a tool. */
export function isStrict({ tools }: ModelRequest): boolean {
  return tools.some((tool) => tool.strict === true);
}

/** Decodes the events of one answer. */
export interface ResponseDecoder {
  push(data: string): readonly ResponseEvent[];
  /** Called at the end of the stream. Returns the events of incomplete items. */
  end(): readonly ResponseEvent[];
}
