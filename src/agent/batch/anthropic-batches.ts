/**
 * Anthropic's Message Batches: all requests are in one body, without a file or a tag. `upload` therefore creates the
 * batch. After a crash, the ids of the requests identify the batch.
 */

import { createReadStream } from "node:fs";
import { createInterface } from "node:readline";
import { asArray, asCount, asObject, asString, type JsonObject } from "../../base/json-fields.ts";
import type { ModelRequest } from "../api/model-api.ts";
import type { ModelAnswer } from "../api/model-caller.ts";
import { errorFromEvent, ModelError } from "../api/model-error.ts";
import type { BatchApi, BatchFileQuery, BatchResult, BatchState, FoundFile } from "./batch-api.ts";
import { readObject } from "./batch-http.ts";
import { HttpBatches } from "./http-batches.ts";

const PATH = "/messages/batches";
const PAGE_BATCHES = 100;
/** Tolerance for creation times: the list gives them in seconds, and a request takes time to arrive. */
const CLOCK_SKEW_MS = 5_000;
/** Ids have at most 64 characters. This many characters of the file name identify the file. */
const TAG_CHARS = 32;

export class AnthropicBatches extends HttpBatches implements BatchApi {
  protected override readonly path = PATH;

  encodeRequest(id: string, request: ModelRequest): string {
    const { stream: _stream, ...params } = this.options.body(request);
    return JSON.stringify({ custom_id: id, params });
  }

  /**
   * Finds a batch by its creation time. The results of an ended batch prove whether it belongs to the file. A batch
   * without results is returned if its size fits: the caller checks its results before they count. The file may lack
   * rows, so the largest batch that fits is the most likely one; of equal batches, the oldest.
   */
  async findFile(query: BatchFileQuery, signal: AbortSignal): Promise<FoundFile | null> {
    const { name, sinceMs, rows, isNew, usedIds } = query;
    if (isNew) return null;
    let likelyId: string | null = null;
    let likelyCount = 1;
    for await (const batch of this.#list(sinceMs, signal)) {
      const id = asString(batch.id);
      if (usedIds.has(id)) continue;
      if (batch.processing_status !== "ended") {
        const count = countRequests(batch);
        if (count >= likelyCount && count <= rows) [likelyId, likelyCount] = [id, count];
        continue;
      }
      for await (const line of this.http.lines(this.resultsPath(id), signal)) {
        if (asString(line.custom_id).startsWith(`${batchTag(name)}_`)) return { id, isAssumed: false };
        break;
      }
    }
    return likelyId === null ? null : { id: likelyId, isAssumed: true };
  }

  /** Creates the batch. */
  async upload(name: string, path: string, signal: AbortSignal): Promise<string> {
    let bytes = 0;
    for await (const part of requestBodyStream(name, path)) bytes += part.length;
    const incoming = await this.http.request("POST", PATH, signal, {
      headers: { "content-type": "application/json", "content-length": bytes },
      parts: () => requestBodyStream(name, path),
    });
    return asString((await readObject(incoming)).id);
  }

  async find(): Promise<null> {
    return null;
  }

  /** Returns the batch that `upload` created. */
  create(fileId: string, _tag: string, signal: AbortSignal): Promise<BatchState> {
    return this.get(fileId, signal);
  }

  protected override parseState(batch: JsonObject): BatchState {
    const counts = asObject(batch.request_counts);
    const id = asString(batch.id);
    const isEnded = batch.processing_status === "ended";
    return {
      id,
      status: isEnded ? endStatus(batch, counts) : "waiting",
      done: countRequests(batch) - asCount(counts.processing),
      fileIds: isEnded ? [id] : [],
      error: null,
    };
  }

  protected override resultsPath(batchId: string): string {
    return `${this.pathOf(batchId)}/results`;
  }

  protected override parseResult(line: JsonObject, request: ModelRequest): BatchResult {
    const [tag = "", id = ""] = asString(line.custom_id).split("_");
    return { id, tag, answer: this.#answerIn(asObject(line.result), request) };
  }

  #answerIn(result: JsonObject, request: ModelRequest): ModelAnswer | ModelError {
    if (result.type === "succeeded") return this.options.parseAnswer(request, asObject(result.message));
    const error = asObject(asObject(result.error).error ?? result.error);
    if (result.type === "errored") return errorFromEvent(asString(error.type) || undefined, asString(error.message));
    const code = asString(result.type) || "no_answer";
    return new ModelError("server", `the request was not worked on: ${code}`, { code });
  }

  /** Lists batches, newest first, back to the given time of the provider's clock. */
  async *#list(sinceMs: number, signal: AbortSignal): AsyncGenerator<JsonObject, void, undefined> {
    for (let after: string | null = null; ; ) {
      const from: string = after === null ? "" : `&after_id=${encodeURIComponent(after)}`;
      const incoming = await this.http.request("GET", `${PATH}?limit=${PAGE_BATCHES}${from}`, signal);
      const providerNowMs = Date.parse(incoming.headers.date ?? "");
      const aheadMs = Number.isNaN(providerNowMs) ? 0 : providerNowMs - Date.now();
      const page = await readObject(incoming);
      for (const batch of asArray(page.data).map(asObject)) {
        if (Date.parse(asString(batch.created_at)) < sinceMs + aheadMs - CLOCK_SKEW_MS) return;
        yield batch;
      }
      after = asString(page.last_id) || null;
      if (page.has_more !== true || after === null) return;
    }
  }
}

/** Streams the lines of the file as one body. Each id gets a prefix that identifies the file. */
async function* requestBodyStream(name: string, path: string): AsyncGenerator<Buffer, void, undefined> {
  let before = '{"requests":[';
  for await (const text of createInterface({ input: createReadStream(path) })) {
    const { custom_id: id, params } = asObject(JSON.parse(text));
    const line = JSON.stringify({ custom_id: `${batchTag(name)}_${asString(id)}`, params });
    yield Buffer.from(`${before}${line}`);
    before = ",";
  }
  yield Buffer.from("]}");
}

/** Returns the prefix of the request ids: the file name without characters that are invalid in ids. */
export function batchTag(name: string): string {
  return name.replace(/^procwire-|\.jsonl$|[^a-zA-Z0-9]/g, "").slice(0, TAG_CHARS);
}

function countRequests(batch: JsonObject): number {
  const counts = asObject(batch.request_counts);
  return Object.values(counts).reduce<number>((sum, count) => sum + asCount(count), 0);
}

function endStatus(batch: JsonObject, counts: JsonObject): BatchState["status"] {
  if (typeof batch.cancel_initiated_at === "string" && asCount(counts.canceled) > 0) return "cancelled";
  return asCount(counts.expired) > 0 ? "expired" : "completed";
}
