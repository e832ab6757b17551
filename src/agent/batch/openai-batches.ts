/**
 * Batches of OpenAI and compatible providers: input and output are files of JSON lines, and a batch object connects
 * them.
 */

import { randomUUID } from "node:crypto";
import { createReadStream } from "node:fs";
import { stat } from "node:fs/promises";
import { asArray, asCount, asObject, asString, type JsonObject } from "../../base/json-fields.ts";
import type { ModelRequest } from "../api/model-api.ts";
import type { ModelAnswer } from "../api/model-caller.ts";
import { errorFromStatus, ModelError } from "../api/model-error.ts";
import type { BatchApi, BatchFileQuery, BatchResult, BatchState, FoundFile } from "./batch-api.ts";
import { readObject } from "./batch-http.ts";
import { HttpBatches } from "./http-batches.ts";

const BATCHES = "/batches";
/** Metadata key of the batch tag. */
const TAG_KEY = "procwire_part";
/** Tolerated clock difference when a list is read back to a time. */
const CLOCK_SKEW_MS = 60 * 60_000;
/** Maximum page size of both lists. */
const PAGE_BATCHES = 100;
const PAGE_FILES = 1_000;

export class OpenAiBatches extends HttpBatches implements BatchApi {
  protected override readonly path = BATCHES;

  encodeRequest(id: string, request: ModelRequest): string {
    const { stream: _stream, stream_options: _streamOptions, ...body } = this.options.body(request);
    return JSON.stringify({ custom_id: id, method: "POST", url: this.options.endpoint, body });
  }

  async findFile({ name, sinceMs }: BatchFileQuery, signal: AbortSignal): Promise<FoundFile | null> {
    const query = `purpose=batch&order=desc&limit=${PAGE_FILES}`;
    for await (const file of this.#list("/files", query, sinceMs, signal)) {
      if (file.filename === name) return { id: asString(file.id), isAssumed: false };
    }
    return null;
  }

  async upload(name: string, path: string, signal: AbortSignal): Promise<string> {
    const boundary = `procwire-${randomUUID()}`;
    const head = Buffer.from(
      `--${boundary}\r\ncontent-disposition: form-data; name="purpose"\r\n\r\nbatch\r\n--${boundary}\r\ncontent-disposition: form-data; name="file"; filename="${name}"\r\ncontent-type: application/jsonl\r\n\r\n`,
    );
    const tail = Buffer.from(`\r\n--${boundary}--\r\n`);
    const { size } = await stat(path);
    const incoming = await this.http.request("POST", "/files", signal, {
      headers: {
        "content-type": `multipart/form-data; boundary=${boundary}`,
        "content-length": head.length + size + tail.length,
      },
      parts: async function* () {
        yield head;
        yield* createReadStream(path);
        yield tail;
      },
    });
    return asString((await readObject(incoming)).id);
  }

  async find(tag: string, sinceMs: number, signal: AbortSignal): Promise<BatchState | null> {
    for await (const batch of this.#list(BATCHES, `limit=${PAGE_BATCHES}`, sinceMs, signal)) {
      if (asObject(batch.metadata)[TAG_KEY] === tag) return this.parseState(batch);
    }
    return null;
  }

  async create(fileId: string, tag: string, signal: AbortSignal): Promise<BatchState> {
    return this.parseState(
      await this.http.json("POST", BATCHES, signal, {
        input_file_id: fileId,
        endpoint: this.options.endpoint,
        completion_window: "24h",
        metadata: { [TAG_KEY]: tag },
      }),
    );
  }

  protected override parseState(batch: JsonObject): BatchState {
    const counts = asObject(batch.request_counts);
    const firstError = asObject(asArray(asObject(batch.errors).data)[0]);
    return {
      id: asString(batch.id),
      status: FINAL_STATUSES.find((status) => status === batch.status) ?? "waiting",
      done: asCount(counts.completed) + asCount(counts.failed),
      fileIds: [batch.output_file_id, batch.error_file_id].map(asString).filter((id) => id !== ""),
      error:
        firstError.message === undefined
          ? null
          : { code: asString(firstError.code), message: asString(firstError.message) },
    };
  }

  protected override resultsPath(fileId: string): string {
    return `/files/${encodeURIComponent(fileId)}/content`;
  }

  protected override parseResult(line: JsonObject, request: ModelRequest): BatchResult {
    return { id: asString(line.custom_id), answer: this.#answerIn(line, request) };
  }

  #answerIn(line: JsonObject, request: ModelRequest): ModelAnswer | ModelError {
    const response = asObject(line.response);
    const status = asCount(response.status_code);
    if (status === 200) return this.options.parseAnswer(request, asObject(response.body));
    if (status > 0) return errorFromStatus(status, {}, JSON.stringify(response.body ?? {}));
    const error = asObject(line.error);
    const code = asString(error.code) || "no_answer";
    return new ModelError("server", asString(error.message) || code, { code });
  }

  /** Lists entries, newest first, back to the given time. */
  async *#list(
    path: string,
    query: string,
    sinceMs: number,
    signal: AbortSignal,
  ): AsyncGenerator<JsonObject, void, undefined> {
    for (let after: string | null = null; ; ) {
      const from: string = after === null ? "" : `&after=${encodeURIComponent(after)}`;
      const page = await this.http.json("GET", `${path}?${query}${from}`, signal);
      const entries = asArray(page.data).map(asObject);
      for (const entry of entries) {
        if (asCount(entry.created_at) * 1000 < sinceMs - CLOCK_SKEW_MS) return;
        yield entry;
      }
      after = asString(entries.at(-1)?.id) || null;
      if (page.has_more !== true || after === null) return;
    }
  }
}

/** Final statuses. `validating`, `in_progress`, `finalizing` and `cancelling` precede them. */
const FINAL_STATUSES = ["completed", "failed", "expired", "cancelled"] as const;
