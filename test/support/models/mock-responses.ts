/**
 * A mock of the Responses API on loopback for tests and benchmarks. It passes every request to a handler and sends the
 * response that the handler returns. A response can also be a fault.
 */

import http from "node:http";
import type { AddressInfo } from "node:net";

export interface MockRequest {
  /** Position of the request, from 0. */
  index: number;
  path: string;
  headers: http.IncomingHttpHeaders;
  body: Record<string, unknown>;
  /** Set when the request is an item of an agent job, read from its marker lines. */
  item: { jobId: string; itemId: string } | null;
}

export type MockAnswer =
  | {
      type: "sse";
      events: readonly object[];
      headers?: Record<string, string>;
      delayMs?: number;
      /** Leaves the stream open after the last event. */
      keepOpen?: boolean;
    }
  | { type: "status"; status: number; body?: unknown; headers?: Record<string, string>; delayMs?: number }
  /** Text instead of a stream, or a stream of another API dialect. */
  | { type: "raw"; text: string; contentType?: string }
  /** Sends the events, then closes the connection before the end of the stream. */
  | { type: "cut"; events: readonly object[]; afterMs?: number }
  /** Resets the connection without a response. */
  | { type: "reset" }
  /** Never sends a response. */
  | { type: "hang" };

export type MockHandler = (request: MockRequest) => MockAnswer | Promise<MockAnswer>;

export interface MockResponses {
  /** Base URL; clients post to `${url}/responses`. */
  url: string;
  requests: MockRequest[];
  /** Number of requests without a response yet, and its maximum so far. */
  readonly inFlight: number;
  readonly peakInFlight: number;
  /** Number of connections that clients have opened. */
  readonly connections: number;
  close(): Promise<void>;
}

export async function startMockResponses(handler: MockHandler): Promise<MockResponses> {
  const requests: MockRequest[] = [];
  let inFlight = 0;
  let peakInFlight = 0;
  let connections = 0;

  const server = http.createServer((incoming, outgoing) => {
    inFlight++;
    peakInFlight = Math.max(peakInFlight, inFlight);
    outgoing.on("close", () => inFlight--);
    const chunks: Buffer[] = [];
    incoming.on("data", (chunk: Buffer) => chunks.push(chunk));
    incoming.on("error", () => undefined);
    incoming.on("end", () => {
      const body = parseBody(Buffer.concat(chunks).toString("utf8"));
      const request: MockRequest = {
        index: requests.length,
        path: incoming.url ?? "",
        headers: incoming.headers,
        body,
        item: itemOf(body),
      };
      requests.push(request);
      Promise.resolve(request)
        .then(handler)
        .then((answer) => send(answer, incoming, outgoing))
        .catch((error: unknown) => {
          outgoing.writeHead(599).end(String(error));
        });
    });
  });
  server.on("connection", () => connections++);
  await new Promise<void>((resolve) => server.listen(0, "127.0.0.1", resolve));
  const { port } = server.address() as AddressInfo;

  return {
    url: `http://127.0.0.1:${port}/v1`,
    requests,
    get inFlight() {
      return inFlight;
    },
    get peakInFlight() {
      return peakInFlight;
    },
    get connections() {
      return connections;
    },
    close: () =>
      new Promise((resolve) => {
        server.close(() => resolve());
        server.closeAllConnections();
      }),
  };
}

async function send(answer: MockAnswer, incoming: http.IncomingMessage, outgoing: http.ServerResponse): Promise<void> {
  if ("delayMs" in answer && answer.delayMs) await new Promise((resolve) => setTimeout(resolve, answer.delayMs));
  switch (answer.type) {
    case "sse":
      outgoing.writeHead(200, { "content-type": "text/event-stream", ...answer.headers });
      if (answer.keepOpen) outgoing.write(eventText(answer.events));
      else outgoing.end(`${eventText(answer.events)}data: [DONE]\n\n`);
      return;
    case "status": {
      const text = typeof answer.body === "string" ? answer.body : JSON.stringify(answer.body ?? {});
      outgoing.writeHead(answer.status, { "content-type": "application/json", ...answer.headers }).end(text);
      return;
    }
    case "raw":
      outgoing.writeHead(200, { "content-type": answer.contentType ?? "text/event-stream" }).end(answer.text);
      return;
    case "cut":
      outgoing.writeHead(200, { "content-type": "text/event-stream" });
      outgoing.write(eventText(answer.events), () => setTimeout(() => outgoing.destroy(), answer.afterMs ?? 0));
      return;
    case "reset":
      incoming.socket.resetAndDestroy();
      return;
    case "hang":
      return;
  }
}

function eventText(events: readonly object[]): string {
  return events.map((event) => `data: ${JSON.stringify(event)}\n\n`).join("");
}

function parseBody(text: string): Record<string, unknown> {
  try {
    const value: unknown = JSON.parse(text);
    return typeof value === "object" && value !== null ? (value as Record<string, unknown>) : {};
  } catch {
    return {};
  }
}

// --- events of a model -------------------------------------------------------------------------------------------

export const created = (id = "resp"): object => ({
  type: "response.created",
  response: { id, model: "gpt-5", output: [] },
});

export const functionCall = (callId: string, name: string, args: unknown): object => ({
  type: "response.output_item.done",
  output_index: 0,
  item: {
    type: "function_call",
    id: `item-${callId}`,
    call_id: callId,
    name,
    arguments: typeof args === "string" ? args : JSON.stringify(args),
    status: "completed",
  },
});

export const message = (text: string): object => ({
  type: "response.output_item.done",
  output_index: 0,
  item: { type: "message", id: "msg", role: "assistant", content: [{ type: "output_text", text }] },
});

export const refusal = (text: string): object => ({
  type: "response.output_item.done",
  output_index: 0,
  item: { type: "message", id: "msg", role: "assistant", content: [{ type: "refusal", refusal: text }] },
});

export const completed = (usage: { input?: number; output?: number; cached?: number } = {}, id = "resp"): object => ({
  type: "response.completed",
  response: {
    id,
    usage: {
      input_tokens: usage.input ?? 1,
      input_tokens_details: { cached_tokens: usage.cached ?? 0 },
      output_tokens: usage.output ?? 1,
      output_tokens_details: { reasoning_tokens: 0 },
      total_tokens: (usage.input ?? 1) + (usage.output ?? 1),
    },
  },
});

export const failed = (code: string, text: string): object => ({
  type: "response.failed",
  response: { id: "resp", error: { code, message: text } },
});

/** Returns a complete response: created, the given events, completed. */
export const answer = (...events: object[]): MockAnswer => ({
  type: "sse",
  events: [created(), ...events, completed()],
});

export const says = (text: string): MockAnswer => answer(message(text));

/** Returns the report of a row agent for its item. */
export function report(request: MockRequest, result?: unknown, extra: Record<string, unknown> = {}): MockAnswer {
  const { jobId, itemId } = request.item ?? { jobId: "", itemId: "" };
  return answer(
    functionCall(`call-worker-${request.index}`, "report_agent_job_result", {
      job_id: jobId,
      item_id: itemId,
      result: result ?? { item_id: itemId },
      ...extra,
    }),
  );
}

// --- contents of a request ---------------------------------------------------------------------------------------

export function inputItems(body: Record<string, unknown>): Record<string, unknown>[] {
  return Array.isArray(body.input) ? body.input : [];
}

export function inputTexts(body: Record<string, unknown>): string[] {
  return inputItems(body)
    .filter((item) => item.type === "message")
    .flatMap((item) => (Array.isArray(item.content) ? item.content : []))
    .filter((part) => part?.type === "input_text")
    .map((part) => String(part.text));
}

/** Returns the texts in the `messages` of the other wire formats, for all roles. */
function messageTexts(body: Record<string, unknown>): string[] {
  const messages: unknown[] = Array.isArray(body.messages) ? body.messages : [];
  return messages.flatMap((message) => {
    const content = typeof message === "object" && message !== null && "content" in message ? message.content : null;
    if (typeof content === "string") return [content];
    return (Array.isArray(content) ? content : []).map((part) => String(part?.text ?? ""));
  });
}

export function toolOutputs(body: Record<string, unknown>): string[] {
  return inputItems(body)
    .filter((item) => item.type === "function_call_output")
    .map((item) => String(item.output));
}

/** Returns the job and the item of a row agent, from the same lines that the test server of Codex reads. */
function itemOf(body: Record<string, unknown>): MockRequest["item"] {
  const texts = [...inputTexts(body), ...messageTexts(body)];
  if (typeof body.instructions === "string") texts.push(body.instructions);
  const combined = texts.join("\n");
  if (!combined.includes("You are processing one item for a generic agent job.")) return null;
  let jobId: string | undefined;
  let itemId: string | undefined;
  for (const line of combined.split("\n")) {
    if (line.startsWith("Job ID: ")) jobId = line.slice("Job ID: ".length).trim();
    if (line.startsWith("Item ID: ")) itemId = line.slice("Item ID: ".length).trim();
  }
  return jobId !== undefined && itemId !== undefined ? { jobId, itemId } : null;
}
