/**
 * A mock of Anthropic's Message Batches and Messages APIs on loopback, after their public description. A test receives
 * every step before and after it takes effect, and can end the client at that point.
 */

import http from "node:http";
import type { AddressInfo } from "node:net";
import { messagesCall } from "./mock-messages.ts";
import { startMockResponses } from "./mock-responses.ts";

export type MessageBatchStep = "list" | "create" | "get" | "results";

export interface MockMessageBatchesOptions {
  /** Returns the report of a row in a batch, or null for a text without a report. */
  result?: (itemId: string) => object | null;
  /** Called before a step takes effect, and again before its response is sent; may never return. */
  onStep?: (step: MessageBatchStep, when: "arrived" | "done") => void | Promise<void>;
  /** Whether batches stay in progress. Otherwise they end at the second poll. */
  areEndless?: boolean;
}

interface Line {
  custom_id: string;
  params: Record<string, unknown>;
}

interface MockMessageBatch {
  id: string;
  lines: Line[];
  pollCount: number;
  createdAt: string;
}

export interface MockMessageBatches {
  url: string;
  batches: MockMessageBatch[];
  /** Ids of cancelled batches. */
  cancelled: string[];
  /** Item ids of single calls, and their bodies. */
  single: { itemId: string; body: Record<string, unknown> }[];
  close(): Promise<void>;
}

const REPORT = "report_agent_job_result";
/** Format of a request id. */
const CUSTOM_ID = /^[a-zA-Z0-9_-]{1,64}$/;

export async function startMockMessageBatches(options: MockMessageBatchesOptions = {}): Promise<MockMessageBatches> {
  const { result = (itemId) => ({ itemId }), onStep, areEndless = false } = options;
  const batches: MockMessageBatch[] = [];
  const cancelled: string[] = [];
  const single: MockMessageBatches["single"] = [];
  const mock = await startMockResponses(({ body }) => {
    const item = itemOf(body);
    single.push({ itemId: item.itemId, body });
    return messagesCall("toolu_1", REPORT, {
      job_id: item.jobId,
      item_id: item.itemId,
      result: { itemId: item.itemId },
    });
  });

  const step = async <T>(name: MessageBatchStep, act: () => T): Promise<T> => {
    await onStep?.(name, "arrived");
    const value = act();
    await onStep?.(name, "done");
    return value;
  };

  const create = (text: string): object => {
    const { requests }: { requests: Line[] } = JSON.parse(text);
    if (requests.length === 0) throw new Error("a batch needs requests");
    for (const { custom_id: id, params } of requests) {
      if (!CUSTOM_ID.test(id)) throw new Error(`${id} is no id`);
      if ("stream" in params) throw new Error("a batch cannot stream");
    }
    const id = `msgbatch_${batches.length + 1}`;
    const batch = { id, lines: requests, pollCount: 0, createdAt: new Date().toISOString() };
    batches.push(batch);
    return toObject(batch);
  };
  const toObject = (batch: MockMessageBatch) => batchObject(batch, !areEndless && batch.pollCount > 1);

  const answer = async (method: string, path: string, text: string): Promise<object | string | null> => {
    const [id, verb] = path.split("/");
    if (id === "") {
      return method === "POST"
        ? step("create", () => create(text))
        : step("list", () => {
            const data = batches.map(toObject).reverse();
            return { data, has_more: false, first_id: null, last_id: null };
          });
    }
    const batch = batches.find((candidate) => candidate.id === id);
    if (!batch) return null;
    if (verb === "results") return step("results", () => batch.lines.map(resultLine).join(""));
    if (verb === "cancel") cancelled.push(batch.id);
    return step("get", () => {
      batch.pollCount++;
      return toObject(batch);
    });
  };

  const resultLine = ({ custom_id: id, params }: Line): string => {
    const { jobId, itemId } = itemOf(params);
    const reported = result(itemId);
    const input = { job_id: jobId, item_id: itemId, result: reported };
    const content =
      reported === null
        ? [{ type: "text", text: "I would rather talk." }]
        : [{ type: "tool_use", id: "toolu_1", name: REPORT, input }];
    const message = {
      id: "msg_1",
      type: "message",
      role: "assistant",
      content,
      stop_reason: reported === null ? "end_turn" : "tool_use",
      usage: { input_tokens: 10, output_tokens: 5 },
    };
    return `${JSON.stringify({ custom_id: id, result: { type: "succeeded", message } })}\n`;
  };

  const server = http.createServer((incoming, outgoing) => {
    const { pathname } = new URL(incoming.url ?? "", "http://mock");
    if (pathname === "/v1/messages") {
      const target = new URL(mock.url);
      const { method, headers } = incoming;
      const { hostname: host, port } = target;
      const request = http.request({ host, port, path: pathname, method, headers }, (response) => {
        outgoing.writeHead(response.statusCode ?? 599, response.headers);
        response.pipe(outgoing);
      });
      incoming.pipe(request);
      return;
    }
    const rest = /^\/v1\/messages\/batches\/?(.*)$/.exec(pathname)?.[1];
    readText(incoming)
      .then((text) => (rest === undefined ? null : answer(incoming.method ?? "", rest, text)))
      .then((body) => {
        if (body === null) outgoing.writeHead(404).end('{"type":"error","error":{"type":"not_found_error"}}');
        else outgoing.writeHead(200).end(typeof body === "string" ? body : JSON.stringify(body));
      })
      .catch((error: unknown) => outgoing.writeHead(599).end(String(error)));
  });
  await new Promise<void>((resolve) => server.listen(0, "127.0.0.1", resolve));
  const { port } = server.address() as AddressInfo;
  return {
    url: `http://127.0.0.1:${port}/v1`,
    batches,
    cancelled,
    single,
    close: async () => {
      await mock.close();
      await new Promise<void>((resolve) => {
        server.close(() => resolve());
        server.closeAllConnections();
      });
    },
  };
}

/** Returns the item of a request to the Messages API, from its marker lines. */
export function itemOf(body: Record<string, unknown>): { jobId: string; itemId: string } {
  const text = JSON.stringify(body);
  const jobId = /Job ID: (.*?)\\n/.exec(text)?.[1] ?? "?";
  return { jobId, itemId: /Item ID: (.*?)\\n/.exec(text)?.[1] ?? "?" };
}

function batchObject({ id, lines, createdAt }: MockMessageBatch, isEnded: boolean): object {
  const counts = { succeeded: 0, errored: 0, canceled: 0, expired: 0, processing: 0 };
  return {
    id,
    type: "message_batch",
    processing_status: isEnded ? "ended" : "in_progress",
    request_counts: { ...counts, [isEnded ? "succeeded" : "processing"]: lines.length },
    created_at: createdAt,
    cancel_initiated_at: null,
    results_url: isEnded ? `https://elsewhere.example/${id}/results` : null,
  };
}

async function readText(incoming: http.IncomingMessage): Promise<string> {
  let text = "";
  incoming.setEncoding("utf8");
  for await (const chunk of incoming) text += String(chunk);
  return text;
}
