/**
 * Batches as Anthropic has them: all requests in one body, no file and no tag. So what this program calls uploading a file is
 * making the batch, and a batch that was made by a process that died is known by the ids of its requests.
 */

import { createReadStream } from "node:fs";
import { createInterface } from "node:readline";
import { asArray, asCount, asObject, asString, type JsonObject } from "../../base/json-fields.ts";
import type { ModelRequest } from "../api/model-api.ts";
import type { ModelAnswer } from "../api/model-caller.ts";
import { errorFromEvent, ModelError } from "../api/model-error.ts";
import type { BatchAnswer, BatchApi, BatchesOptions, BatchState, SoughtFile } from "./batch-api.ts";
import { readObject } from "./batch-http.ts";
import { HttpBatches } from "./http-batches.ts";

const PATH = "/messages/batches";
const PAGE_BATCHES = 100;
/** A list tells when a batch was made to the second; a request may be on its way a little longer. */
const CLOCK_SKEW_MS = 5_000;
/** Ids are at most 64 characters; so many of the file's name tell it from all others. */
const MARK_CHARS = 32;

export class AnthropicBatches extends HttpBatches implements BatchApi {
  constructor(options: BatchesOptions) {
    super(options, PATH);
  }

  line(id: string, request: ModelRequest): string {
    const { stream: _stream, ...params } = this.options.body(request);
    return JSON.stringify({ custom_id: id, params });
  }

  /**
   * Only the answers of a batch tell whose it is. One that has none yet is taken for the sought one when it was made in time
   * and is of the right size: its answers are looked at before they count.
   */
  async findFile({ name, sinceMs, rows, isNew }: SoughtFile, signal: AbortSignal): Promise<string | null> {
    if (isNew) return null;
    let likely: string | null = null;
    for await (const batch of this.#list(sinceMs, signal)) {
      const id = asString(batch.id);
      if (batch.processing_status !== "ended") {
        if (requestsIn(batch) === rows) likely = id;
        continue;
      }
      for await (const line of this.http.lines(`${this.pathOf(id)}/results`, signal)) {
        if (asString(line.custom_id).startsWith(`${markOf(name)}_`)) return id;
        break;
      }
    }
    return likely;
  }

  /** Makes the batch. */
  async upload(name: string, path: string, signal: AbortSignal): Promise<string> {
    let bytes = 0;
    for await (const part of bodyParts(name, path)) bytes += part.length;
    const incoming = await this.http.request("POST", PATH, signal, {
      headers: { "content-type": "application/json", "content-length": bytes },
      parts: () => bodyParts(name, path),
    });
    return asString((await readObject(incoming)).id);
  }

  async find(): Promise<null> {
    return null;
  }

  /** It has been made with its file. */
  create(fileId: string, _tag: string, signal: AbortSignal): Promise<BatchState> {
    return this.get(fileId, signal);
  }

  protected override stateOf(batch: JsonObject): BatchState {
    const counts = asObject(batch.request_counts);
    const id = asString(batch.id);
    const isEnded = batch.processing_status === "ended";
    return {
      id,
      status: isEnded ? endOf(batch, counts) : "waiting",
      done: requestsIn(batch) - asCount(counts.processing),
      fileIds: isEnded ? [id] : [],
      error: null,
    };
  }

  async *answers(
    batch: BatchState,
    request: ModelRequest,
    signal: AbortSignal,
  ): AsyncGenerator<BatchAnswer, void, undefined> {
    for (const batchId of batch.fileIds) {
      for await (const line of this.http.lines(`${this.pathOf(batchId)}/results`, signal)) {
        const [mark = "", id = ""] = asString(line.custom_id).split("_");
        yield { id, mark, answer: this.#answerIn(asObject(line.result), request) };
      }
    }
  }

  #answerIn(result: JsonObject, request: ModelRequest): ModelAnswer | ModelError {
    if (result.type === "succeeded") return this.options.answer(request, asObject(result.message));
    const error = asObject(asObject(result.error).error ?? result.error);
    if (result.type === "errored") return errorFromEvent(asString(error.type), asString(error.message));
    const code = asString(result.type) || "no_answer";
    return new ModelError("server", `the request was not worked on: ${code}`, { code });
  }

  /** Newest first, back to the given time by the provider's clock. */
  async *#list(sinceMs: number, signal: AbortSignal): AsyncGenerator<JsonObject, void, undefined> {
    for (let after = ""; ; ) {
      const from = after === "" ? "" : `&after_id=${encodeURIComponent(after)}`;
      const incoming = await this.http.request("GET", `${PATH}?limit=${PAGE_BATCHES}${from}`, signal);
      const theirNow = Date.parse(incoming.headers.date ?? "");
      const aheadMs = Number.isNaN(theirNow) ? 0 : theirNow - Date.now();
      const page = await readObject(incoming);
      for (const batch of asArray(page.data).map(asObject)) {
        if (Date.parse(asString(batch.created_at)) < sinceMs + aheadMs - CLOCK_SKEW_MS) return;
        yield batch;
      }
      after = asString(page.last_id);
      if (page.has_more !== true || after === "") return;
    }
  }
}

/** The lines of the file as one body; each id gets a mark that tells the file. */
async function* bodyParts(name: string, path: string): AsyncGenerator<Buffer, void, undefined> {
  let before = '{"requests":[';
  for await (const text of createInterface({ input: createReadStream(path) })) {
    const { custom_id: id, params } = asObject(JSON.parse(text));
    const line = JSON.stringify({ custom_id: `${markOf(name)}_${asString(id)}`, params });
    yield Buffer.from(`${before}${line}`);
    before = ",";
  }
  yield Buffer.from("]}");
}

/** A name without what an id may not hold. */
export function markOf(name: string): string {
  return name.replace(/^procwire-|\.jsonl$|[^a-zA-Z0-9]/g, "").slice(0, MARK_CHARS);
}

function requestsIn(batch: JsonObject): number {
  const counts = asObject(batch.request_counts);
  return Object.values(counts).reduce<number>((sum, count) => sum + asCount(count), 0);
}

function endOf(batch: JsonObject, counts: JsonObject): BatchState["status"] {
  if (typeof batch.cancel_initiated_at === "string" && asCount(counts.canceled) > 0) return "cancelled";
  return asCount(counts.expired) > 0 ? "expired" : "completed";
}
