import type { JsonObject } from "../../base/json-fields.ts";
import type { ModelRequest } from "../api/model-api.ts";
import type { ModelAnswer } from "../api/model-caller.ts";
import type { ModelError } from "../api/model-error.ts";
import type { BatchHttpOptions } from "./batch-http.ts";

/**
 * Many requests handed in at once and answered within a day, for less. No step is repeated here: a caller that dies between
 * two steps finds what it has made by the name of the file and by the batch's tag.
 */
export interface BatchApi {
  /** One request as a line of the file; `id` comes back with its answer. */
  line(id: string, request: ModelRequest): string;
  /** The id of a file that was uploaded under this name at that time or later; null: there is none. */
  findFile(sought: SoughtFile, signal: AbortSignal): Promise<string | null>;
  /** Uploads a file of lines; gives its id. */
  upload(name: string, path: string, signal: AbortSignal): Promise<string>;
  /** The batch that was made with this tag at that time or later; null: there is none. */
  find(tag: string, sinceMs: number, signal: AbortSignal): Promise<BatchState | null>;
  create(fileId: string, tag: string, signal: AbortSignal): Promise<BatchState>;
  get(batchId: string, signal: AbortSignal): Promise<BatchState>;
  cancel(batchId: string, signal: AbortSignal): Promise<void>;
  /** What has been answered, in any order. A request without an answer of its own is not among them. */
  answers(batch: BatchState, request: ModelRequest, signal: AbortSignal): AsyncIterable<BatchAnswer>;
}

/** A file that may have been uploaded by a process that died before it could write that down. */
export interface SoughtFile {
  name: string;
  sinceMs: number;
  /** Requests in it at most. */
  rows: number;
  /** Nobody has tried to upload it yet. */
  isNew: boolean;
}

/** What batches of either kind need to know of the API they belong to. */
export interface BatchesOptions extends BatchHttpOptions {
  /** As the provider names it in a line: `/v1/responses`. */
  endpoint: string;
  /** What a single call would send. */
  body(request: ModelRequest): JsonObject;
  /** What a single call would make of this answer. */
  answer(request: ModelRequest, body: JsonObject): ModelAnswer | ModelError;
}

export interface BatchState {
  id: string;
  /** `waiting`: not ended yet. All others are final, and may have answers. */
  status: "waiting" | "completed" | "failed" | "expired" | "cancelled";
  /** Requests that are done with, well or not. */
  done: number;
  /** Files of answers, in the order they are to be read. */
  fileIds: readonly string[];
  /** Why it failed as a whole. */
  error: { code: string; message: string } | null;
}

export interface BatchAnswer {
  id: string;
  /** Tells the file it was in, where the provider keeps no files. */
  mark?: string | undefined;
  answer: ModelAnswer | ModelError;
}
