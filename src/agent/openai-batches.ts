/** Batches as OpenAI has them (and those who copy it): files of JSON lines up and down, a batch object in between. */

import { randomUUID } from "node:crypto";
import { createReadStream } from "node:fs";
import { stat } from "node:fs/promises";
import http from "node:http";
import https from "node:https";
import { createInterface } from "node:readline";
import { pipeline } from "node:stream/promises";
import type { BatchAnswer, BatchApi, BatchState } from "./batch-api.ts";
import { asArray, asCount, asObject, asString, type JsonObject, parseObject } from "./json-fields.ts";
import type { ModelRequest } from "./model-api.ts";
import type { ModelAnswer } from "./model-call.ts";
import { errorFromStatus, errorFromTransport, ModelError } from "./model-error.ts";

export interface OpenAiBatchesOptions {
  baseUrl: URL;
  /** As the provider names it in a line: `/v1/responses`. */
  endpoint: string;
  agent: http.Agent;
  headers: Readonly<Record<string, string>>;
  idleTimeoutMs: number;
  /** What a single call would send. */
  body(request: ModelRequest): JsonObject;
  /** What a single call would make of this answer. */
  answer(request: ModelRequest, body: JsonObject): ModelAnswer | ModelError;
}

/** The key of the batch's metadata under which its tag is kept. */
const TAG = "procwire_part";
/** Clocks of two machines are forgiven this much when a list is read back to a time. */
const CLOCK_SKEW_MS = 60 * 60_000;
/** The most that a page of either list holds. */
const PAGE_BATCHES = 100;
const PAGE_FILES = 1_000;
/** An error's text is short; a proxy's whole page is not needed. */
const MAX_ERROR_CHARS = 64 * 1024;

export class OpenAiBatches implements BatchApi {
  #options: OpenAiBatchesOptions;

  constructor(options: OpenAiBatchesOptions) {
    this.#options = options;
  }

  line(id: string, request: ModelRequest): string {
    const { stream: _stream, stream_options: _streamOptions, ...body } = this.#options.body(request);
    return JSON.stringify({ custom_id: id, method: "POST", url: this.#options.endpoint, body });
  }

  async findFile(name: string, sinceMs: number, signal: AbortSignal): Promise<string | null> {
    const query = `purpose=batch&order=desc&limit=${PAGE_FILES}`;
    for await (const file of this.#list("/files", query, sinceMs, signal)) {
      if (file.filename === name) return asString(file.id);
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
    const incoming = await this.#request("POST", "/files", signal, {
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
    for await (const batch of this.#list("/batches", `limit=${PAGE_BATCHES}`, sinceMs, signal)) {
      if (asObject(batch.metadata)[TAG] === tag) return stateOf(batch);
    }
    return null;
  }

  async create(fileId: string, tag: string, signal: AbortSignal): Promise<BatchState> {
    return stateOf(
      await this.#json("POST", "/batches", signal, {
        input_file_id: fileId,
        endpoint: this.#options.endpoint,
        completion_window: "24h",
        metadata: { [TAG]: tag },
      }),
    );
  }

  async get(batchId: string, signal: AbortSignal): Promise<BatchState> {
    return stateOf(await this.#json("GET", `/batches/${encodeURIComponent(batchId)}`, signal));
  }

  async cancel(batchId: string, signal: AbortSignal): Promise<void> {
    await this.#json("POST", `/batches/${encodeURIComponent(batchId)}/cancel`, signal, {});
  }

  async *answers(
    batch: BatchState,
    request: ModelRequest,
    signal: AbortSignal,
  ): AsyncGenerator<BatchAnswer, void, undefined> {
    for (const fileId of batch.fileIds) {
      const incoming = await this.#request("GET", `/files/${encodeURIComponent(fileId)}/content`, signal);
      const broken = Promise.withResolvers<never>();
      broken.promise.catch(() => undefined);
      incoming.on("error", broken.reject);
      const lines = createInterface({ input: incoming, crlfDelay: Number.POSITIVE_INFINITY });
      for await (const text of lines) {
        const line = parseObject(text);
        if (line) yield { id: asString(line.custom_id), answer: this.#answerIn(line, request) };
      }
      // A download that was cut has ended its lines too.
      if (!incoming.complete) await Promise.race([broken.promise, cutShort()]);
    }
  }

  #answerIn(line: JsonObject, request: ModelRequest): ModelAnswer | ModelError {
    const response = asObject(line.response);
    const status = asCount(response.status_code);
    if (status === 200) return this.#options.answer(request, asObject(response.body));
    if (status > 0) return errorFromStatus(status, {}, JSON.stringify(response.body ?? {}));
    const error = asObject(line.error);
    const code = asString(error.code) || "no_answer";
    return new ModelError("server", asString(error.message) || code, { code });
  }

  /** Newest first, back to the given time. */
  async *#list(
    path: string,
    query: string,
    sinceMs: number,
    signal: AbortSignal,
  ): AsyncGenerator<JsonObject, void, undefined> {
    for (let after = ""; ; ) {
      const from = after === "" ? "" : `&after=${encodeURIComponent(after)}`;
      const page = await this.#json("GET", `${path}?${query}${from}`, signal);
      const entries = asArray(page.data).map(asObject);
      for (const entry of entries) {
        if (asCount(entry.created_at) * 1000 < sinceMs - CLOCK_SKEW_MS) return;
        yield entry;
      }
      after = asString(entries.at(-1)?.id);
      if (page.has_more !== true || after === "") return;
    }
  }

  async #json(method: string, path: string, signal: AbortSignal, body?: JsonObject): Promise<JsonObject> {
    const text = body && Buffer.from(JSON.stringify(body));
    const incoming = await this.#request(
      method,
      path,
      signal,
      text && {
        headers: { "content-type": "application/json", "content-length": text.length },
        parts: async function* () {
          yield text;
        },
      },
    );
    return readObject(incoming);
  }

  /** The answer's head; rejects with a ModelError for anything but a success. */
  async #request(
    method: string,
    path: string,
    signal: AbortSignal,
    sent?: { headers: http.OutgoingHttpHeaders; parts: () => AsyncIterable<Buffer> },
  ): Promise<http.IncomingMessage> {
    const { baseUrl, agent, headers, idleTimeoutMs } = this.#options;
    signal.throwIfAborted();
    const url = new URL(`${baseUrl.href.replace(/\/+$/, "")}${path}`);
    const send = url.protocol === "https:" ? https.request : http.request;
    const outgoing = send(url, {
      method,
      agent,
      timeout: idleTimeoutMs,
      headers: { ...headers, ...sent?.headers },
      signal,
    });
    outgoing.on("timeout", () =>
      outgoing.destroy(new ModelError("transport", `the API was silent for ${idleTimeoutMs / 1000} s`)),
    );
    try {
      const head = new Promise<http.IncomingMessage>((resolve, reject) => {
        outgoing.on("response", resolve);
        outgoing.on("error", reject);
      });
      head.catch(() => undefined);
      // A server that refuses may close before it has read all; then its answer says more than the broken pipe.
      if (sent) pipeline(sent.parts, outgoing).catch(() => undefined);
      else outgoing.end();
      const incoming = await head;
      const status = incoming.statusCode ?? 0;
      if (status >= 200 && status < 300) return incoming;
      throw errorFromStatus(status, incoming.headers, await readText(incoming));
    } catch (error) {
      throw signal.aborted ? signal.reason : errorFromTransport(error, false);
    }
  }
}

function stateOf(batch: JsonObject): BatchState {
  const counts = asObject(batch.request_counts);
  const first = asObject(asArray(asObject(batch.errors).data)[0]);
  return {
    id: asString(batch.id),
    status: FINAL.find((status) => status === batch.status) ?? "waiting",
    done: asCount(counts.completed) + asCount(counts.failed),
    fileIds: [batch.output_file_id, batch.error_file_id].map(asString).filter((id) => id !== ""),
    error:
      first.message === undefined ? null : { code: asString(first.code), message: asString(first.message) },
  };
}

/** `validating`, `in_progress`, `finalizing` and `cancelling` come before these. */
const FINAL = ["completed", "failed", "expired", "cancelled"] as const;

async function cutShort(): Promise<never> {
  throw new ModelError("transport", "the answers were cut off before their end");
}

async function readObject(incoming: http.IncomingMessage): Promise<JsonObject> {
  const value = parseObject(await readText(incoming, Number.POSITIVE_INFINITY));
  if (!value) throw new ModelError("server", "the API answered with something that is no JSON object");
  return value;
}

async function readText(incoming: http.IncomingMessage, most = MAX_ERROR_CHARS): Promise<string> {
  let text = "";
  incoming.setEncoding("utf8");
  for await (const chunk of incoming) if (text.length < most) text += String(chunk);
  return text;
}
