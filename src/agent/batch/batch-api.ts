import type { JsonObject } from "../../base/json-fields.ts";
import type { ModelRequest } from "../api/model-api.ts";
import type { ModelAnswer } from "../api/model-caller.ts";
import type { ModelError } from "../api/model-error.ts";
import type { BatchHttpOptions } from "./batch-http.ts";

/**
 * A provider's batch API: many requests, answered within a day at a lower price. No method retries. A caller that died
 * between two steps finds its file by name and its batch by tag.
 */
export interface BatchApi {
  /** Encodes one request as a line of the file. Its result has the same `id`. */
  encodeRequest(id: string, request: ModelRequest): string;
  /** Returns the file that was uploaded under this name at or after a time, or null if there is none. */
  findFile(query: BatchFileQuery, signal: AbortSignal): Promise<FoundFile | null>;
  /** Uploads a file of lines and returns its id. */
  upload(name: string, path: string, signal: AbortSignal): Promise<string>;
  /** Returns the batch that was created with this tag at or after a time, or null if there is none. */
  find(tag: string, sinceMs: number, signal: AbortSignal): Promise<BatchState | null>;
  create(fileId: string, tag: string, signal: AbortSignal): Promise<BatchState>;
  get(batchId: string, signal: AbortSignal): Promise<BatchState>;
  cancel(batchId: string, signal: AbortSignal): Promise<void>;
  /** Yields the results, in any order. Requests without a result are missing. */
  readResults(batch: BatchState, request: ModelRequest, signal: AbortSignal): AsyncIterable<BatchResult>;
}

/** A file that a process may have uploaded before it died, without recording the upload. */
export interface BatchFileQuery {
  name: string;
  sinceMs: number;
  /** Maximum number of requests in the file. */
  rows: number;
  /** Whether no process has tried to upload the file yet. */
  isNew: boolean;
  /** Ids of files that belong to other batch groups. */
  usedIds: ReadonlySet<string>;
}

export interface FoundFile {
  id: string;
  /** Whether the file may belong to another client: only its size and time match. */
  isAssumed: boolean;
}

/** Dependencies of both kinds of batch APIs. */
export interface BatchesOptions extends BatchHttpOptions {
  /** Endpoint in the lines of a file, for example `/v1/responses`. */
  endpoint: string;
  /** Returns the body of the same request as a single call. */
  body(request: ModelRequest): JsonObject;
  /** Decodes an answer like that of a single call. */
  parseAnswer(request: ModelRequest, body: JsonObject): ModelAnswer | ModelError;
}

export interface BatchState {
  id: string;
  /** `waiting`: in progress. All other values are final; the batch may have results. */
  status: "waiting" | "completed" | "failed" | "expired" | "cancelled";
  /** Number of processed requests, successful or not. */
  done: number;
  /** Ids of the result files, in reading order. */
  fileIds: readonly string[];
  /** Error of the whole batch; null if there is none. */
  error: { code: string; message: string } | null;
}

export interface BatchResult {
  id: string;
  /** Identifies the file if the provider stores no files. */
  tag?: string | undefined;
  answer: ModelAnswer | ModelError;
}
