/**
 * A mock of OpenAI's files, batches and Responses APIs on loopback. The handler of single calls also answers each line
 * of a batch. A test receives every step before and after it takes effect, and can end the client at that point.
 */

import http from "node:http";
import type { AddressInfo } from "node:net";
import { type MockAnswer, type MockHandler, type MockResponses, startMockResponses } from "./mock-responses.ts";

/** A request of the client. */
export type BatchStep = "list files" | "upload" | "list batches" | "create" | "get" | "download" | "cancel";

export interface MockBatch {
  id: string;
  tag: string;
  fileId: string;
  status: string;
  /** Lines that were answered. */
  answered: string[];
  outputFileId: string | null;
  errorFileId: string | null;
  errors: { code: string; message: string } | null;
}

/** The outcome of a batch. Default: every line is answered, and it is completed at the second poll. */
export interface BatchFate {
  status?: "completed" | "failed" | "expired" | "cancelled" | "in_progress";
  /** Number of answered lines; the other lines are reported as expired. */
  answers?: number;
  errors?: { code: string; message: string };
}

export interface MockBatchesOptions {
  handler: MockHandler;
  fate?: (batch: MockBatch, number: number) => BatchFate;
  /** Called before a step takes effect, and again before its response is sent; may never return. */
  onStep?: (step: BatchStep, when: "arrived" | "done") => void | Promise<void>;
}

export interface MockBatches {
  url: string;
  /** The Responses API for single calls. */
  single: MockResponses;
  files: Map<string, { name: string; text: string }>;
  batches: MockBatch[];
  /** Returns the item ids of all answered batch lines, with repetitions. */
  answeredItems(): string[];
  cancelled: string[];
  close(): Promise<void>;
}

export async function startMockBatches(options: MockBatchesOptions): Promise<MockBatches> {
  const single = await startMockResponses(options.handler);
  const state = new MockState(options, single);
  const server = http.createServer((incoming, outgoing) => {
    state.serve(incoming, outgoing).catch((error: unknown) => outgoing.writeHead(599).end(String(error)));
  });
  await new Promise<void>((resolve) => server.listen(0, "127.0.0.1", resolve));
  const { port } = server.address() as AddressInfo;
  return {
    url: `http://127.0.0.1:${port}/v1`,
    single,
    files: state.files,
    batches: state.batches,
    cancelled: state.cancelled,
    answeredItems: () => state.batches.flatMap((batch) => batch.answered),
    close: async () => {
      await single.close();
      await new Promise<void>((resolve) => {
        server.close(() => resolve());
        server.closeAllConnections();
      });
    },
  };
}

class MockState {
  readonly files = new Map<string, { name: string; text: string; createdAt: number }>();
  readonly batches: MockBatch[] = [];
  readonly cancelled: string[] = [];
  #options: MockBatchesOptions;
  #single: MockResponses;
  #polls = new Map<string, number>();

  constructor(options: MockBatchesOptions, single: MockResponses) {
    this.#options = options;
    this.#single = single;
  }

  async serve(incoming: http.IncomingMessage, outgoing: http.ServerResponse): Promise<void> {
    const url = new URL(incoming.url ?? "", "http://mock");
    if (url.pathname === "/v1/responses" || url.pathname === "/v1/chat/completions") {
      this.#forward(incoming, outgoing);
      return;
    }
    const body = await readBody(incoming);
    const answer = await this.#answer(incoming.method ?? "", url, body, incoming.headers["content-type"] ?? "");
    if (typeof answer === "string") outgoing.end(answer);
    else if (answer === null) outgoing.writeHead(404).end(JSON.stringify({ error: { message: "not found" } }));
    else outgoing.writeHead(200, { "content-type": "application/json" }).end(JSON.stringify(answer));
  }

  async #answer(method: string, url: URL, body: Buffer, type: string): Promise<object | string | null> {
    const [, , kind, id, verb] = url.pathname.split("/");
    if (kind === "files" && method === "GET" && id === undefined) {
      return this.#step("list files", () => this.#page([...this.files].map(fileObject).reverse(), url));
    }
    if (kind === "files" && method === "POST") return this.#step("upload", () => this.#upload(body, type));
    if (kind === "files" && id !== undefined && verb === "content") {
      return this.#step("download", () => this.files.get(id)?.text ?? null);
    }
    if (kind === "batches" && method === "GET" && id === undefined) {
      return this.#step("list batches", () => this.#page(this.batches.map(batchObject).reverse(), url));
    }
    if (kind === "batches" && method === "POST" && id === undefined) {
      return this.#step("create", () => this.#create(JSON.parse(body.toString("utf8"))));
    }
    const batch = this.batches.find((candidate) => candidate.id === id);
    if (kind !== "batches" || !batch) return null;
    if (verb === "cancel") {
      return this.#step("cancel", () => {
        this.cancelled.push(batch.id);
        return batchObject(batch);
      });
    }
    return this.#step("get", () => this.#poll(batch));
  }

  async #step<T>(step: BatchStep, act: () => T | Promise<T>): Promise<T> {
    await this.#options.onStep?.(step, "arrived");
    const value = await act();
    await this.#options.onStep?.(step, "done");
    return value;
  }

  /** Returns one object per page, so that every search needs several pages. */
  #page(objects: { id: string }[], url: URL): object {
    const after = url.searchParams.get("after");
    const from = after === null ? 0 : objects.findIndex(({ id }) => id === after) + 1;
    return { object: "list", data: objects.slice(from, from + 1), has_more: from + 1 < objects.length };
  }

  #upload(body: Buffer, type: string): object {
    const boundary = /boundary=(.+)$/.exec(type)?.[1] ?? "";
    const parts = body.toString("utf8").split(`--${boundary}`);
    const file = parts.find((part) => part.includes('name="file"')) ?? "";
    if (!parts.some((part) => /name="purpose"\r\n\r\nbatch\r\n/.test(part))) throw new Error("no purpose");
    const id = `file-${this.files.size + 1}`;
    const name = /filename="([^"]*)"/.exec(file)?.[1] ?? "";
    const text = file.slice(file.indexOf("\r\n\r\n") + 4, -2);
    const stored = { name, text, createdAt: Math.floor(Date.now() / 1000) };
    this.files.set(id, stored);
    return fileObject([id, stored]);
  }

  #create(request: Record<string, unknown>): object {
    const metadata = request.metadata as Record<string, string> | undefined;
    const fileId = String(request.input_file_id);
    if (!this.files.has(fileId)) throw new Error(`there is no file ${fileId}`);
    if (request.endpoint !== "/v1/responses" || request.completion_window !== "24h") {
      throw new Error(`cannot batch ${JSON.stringify(request)}`);
    }
    const batch: MockBatch = {
      id: `batch_${this.batches.length + 1}`,
      tag: metadata?.procwire_part ?? "",
      fileId,
      status: "validating",
      answered: [],
      outputFileId: null,
      errorFileId: null,
      errors: null,
    };
    this.batches.push(batch);
    return batchObject(batch);
  }

  /** Reports the batch as in progress at the first poll and as ended at the next one. */
  async #poll(batch: MockBatch): Promise<object> {
    const polls = (this.#polls.get(batch.id) ?? 0) + 1;
    this.#polls.set(batch.id, polls);
    if (polls === 1) batch.status = "in_progress";
    else if (batch.status === "in_progress") await this.#end(batch);
    return batchObject(batch);
  }

  async #end(batch: MockBatch): Promise<void> {
    const fate = this.#options.fate?.(batch, this.batches.indexOf(batch)) ?? {};
    if (fate.status === "in_progress") return;
    const lines = (this.files.get(batch.fileId)?.text ?? "").split("\n").filter((line) => line !== "");
    const output: object[] = [];
    const errors: object[] = [];
    for (const [index, text] of lines.entries()) {
      const line = JSON.parse(text) as { custom_id: string; body: Record<string, unknown> };
      if (fate.status === "failed") continue;
      if (index >= (fate.answers ?? lines.length)) {
        const error = { code: "batch_expired", message: "This request could not be executed in time." };
        errors.push({ custom_id: line.custom_id, response: null, error });
        continue;
      }
      const response = await this.#answerLine(line.body, batch);
      (response.status_code === 200 ? output : errors).push({
        custom_id: line.custom_id,
        response,
        error: null,
      });
    }
    batch.outputFileId = this.#keep(output);
    batch.errorFileId = this.#keep(errors);
    batch.errors = fate.errors ?? null;
    batch.status = fate.status ?? "completed";
  }

  async #answerLine(body: Record<string, unknown>, batch: MockBatch): Promise<{ status_code: number; body: object }> {
    if ("stream" in body) throw new Error("a batch cannot stream");
    const text = JSON.stringify(body);
    const itemId = /Item ID: (.*?)\\n/.exec(text)?.[1] ?? "?";
    const jobId = /Job ID: (.*?)\\n/.exec(text)?.[1] ?? "?";
    batch.answered.push(itemId);
    const request = { index: -1, path: "batch", headers: {}, body, item: { jobId, itemId } };
    return wholeResponse(await this.#options.handler(request));
  }

  #keep(lines: readonly object[]): string | null {
    if (lines.length === 0) return null;
    const id = `file-${this.files.size + 1}`;
    const text = lines.map((line) => `${JSON.stringify(line)}\n`).join("");
    this.files.set(id, { name: "output.jsonl", text, createdAt: Math.floor(Date.now() / 1000) });
    return id;
  }

  #forward(incoming: http.IncomingMessage, outgoing: http.ServerResponse): void {
    const target = new URL(this.#single.url);
    const request = http.request({
      host: target.hostname,
      port: target.port,
      path: incoming.url,
      method: incoming.method,
      headers: incoming.headers,
    });
    request.on("response", (response) => {
      outgoing.writeHead(response.statusCode ?? 599, response.headers);
      response.pipe(outgoing);
    });
    request.on("error", () => outgoing.destroy());
    incoming.pipe(request);
  }
}

/** Converts the events of a stream into the response object of a call without streaming. */
function wholeResponse(answer: MockAnswer): { status_code: number; body: object } {
  if (answer.type === "status") return { status_code: answer.status, body: Object(answer.body ?? {}) };
  if (answer.type !== "sse") throw new Error(`a batch has no ${answer.type}`);
  const events = answer.events as Record<string, Record<string, unknown> | string>[];
  const output = events.filter(({ type }) => type === "response.output_item.done").map(({ item }) => item);
  const end = Object(events.at(-1)?.response);
  return { status_code: 200, body: { ...end, object: "response", status: "completed", output } };
}

function fileObject([id, file]: [string, { name: string; createdAt: number }]): {
  id: string;
  [field: string]: unknown;
} {
  return { id, object: "file", filename: file.name, purpose: "batch", created_at: file.createdAt };
}

function batchObject(batch: MockBatch): { id: string; [field: string]: unknown } {
  return {
    id: batch.id,
    object: "batch",
    endpoint: "/v1/responses",
    created_at: Math.floor(Date.now() / 1000),
    input_file_id: batch.fileId,
    status: batch.status,
    output_file_id: batch.outputFileId,
    error_file_id: batch.errorFileId,
    errors: batch.errors && { object: "list", data: [batch.errors] },
    request_counts: { total: 0, completed: batch.answered.length, failed: 0 },
    metadata: { procwire_part: batch.tag },
  };
}

async function readBody(incoming: http.IncomingMessage): Promise<Buffer> {
  const chunks: Buffer[] = [];
  for await (const chunk of incoming) chunks.push(chunk as Buffer);
  return Buffer.concat(chunks);
}
