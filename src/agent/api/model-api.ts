import type { ToolDefinition } from "../../tools/tool.ts";
import type { BatchApi } from "../batch/batch-api.ts";
import type { JsonObject, ResponseEvent } from "./response-events.ts";

/** What a model is asked, whichever wire it goes over. History is kept as items of the Responses API. */
export interface ModelRequest {
  model: string;
  /** The part of the prompt that all calls with one `cacheKey` share. */
  instructions: string;
  input: readonly JsonObject[];
  tools: readonly ToolDefinition[];
  parallelToolCalls: boolean;
  /** The tool that has to be called; default: the model chooses. */
  forcedTool?: string | undefined;
  reasoningEffort?: string | undefined;
  /** A JSON Schema that the answer has to follow. */
  outputSchema?: JsonObject | undefined;
  options?: RequestOptions | undefined;
  /** Lets the server reuse what it has computed for the common beginning. */
  cacheKey: string;
  headers?: Readonly<Record<string, string>> | undefined;
}

/** What a person asked for by a flag. It is sent as it is or refused, never left out. */
export interface RequestOptions {
  temperature?: number | undefined;
  maxOutputTokens?: number | undefined;
  serviceTier?: string | undefined;
  /** Fields of the body, over those that are there. */
  extraBody?: JsonObject | undefined;
}

export type ResponseHeaders = Readonly<Record<string, string | string[] | undefined>>;

export interface ResponseListener {
  /** The API has said yes; what it says follows. */
  onAccepted?(headers: ResponseHeaders): void;
  onEvent(event: ResponseEvent): void;
}

export interface ModelApi {
  /** Null, or none: no batches can be handed in here. */
  readonly batches?: BatchApi | null | undefined;
  /** Resolves after the terminal event; rejects with a ModelError when there is none, or with the signal's reason. */
  send(request: ModelRequest, signal: AbortSignal, listener: ResponseListener): Promise<void>;
  /** Ends every connection. */
  close(): void;
}

/** How requests and answers look on one kind of API. All of them are one POST whose answer is a stream of events. */
export interface Wire {
  /** Appended to the base URL. */
  readonly path: string;
  headers(apiKey: string | undefined): Readonly<Record<string, string>>;
  /** What this program adds by itself and can do without. */
  readonly spareable: readonly SpareableParameter[];
  body(request: ModelRequest, spared: ReadonlySet<string>): JsonObject;
  decoder(request: ModelRequest, spared: ReadonlySet<string>): AnswerDecoder;
  /** A whole answer, as a batch has it, as the data of one event. */
  wholeAnswer(body: JsonObject): string;
  /** How batches are handed in: files and a batch object as with OpenAI, or as Anthropic takes them. */
  readonly batches: "files" | "messages";
  /** The headers of an answer, with what they say about limits under the names `x-ratelimit-…`. */
  limitHeaders?(headers: ResponseHeaders): ResponseHeaders;
}

export interface SpareableParameter {
  readonly name: string;
  /** Found in what the API says when it is this parameter that it does not take. */
  readonly refusal: RegExp;
  /** Whether this request has it and can do without; default: its body has a field of that name. */
  canSpare?(request: ModelRequest): boolean;
}

/** Whether a request holds a server to the parameters of a tool. */
export function isStrict({ tools }: ModelRequest): boolean {
  return tools.some((tool) => tool.strict === true);
}

/** Reads the events of one answer. */
export interface AnswerDecoder {
  take(data: string): readonly ResponseEvent[];
  /** The stream is over; what was still open is told now. */
  end(): readonly ResponseEvent[];
}
