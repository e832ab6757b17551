/**
 * The Responses API over HTTP. One request is one POST whose answer is a stream of events; history travels whole each time
 * (`store: false`). Retries are not made here: `callModel` is the one place that asks again.
 *
 * Why not the official client: 10,000 streamed calls, 64 at a time, took it 6.9 to 7.4 s of processor time and 316 to
 * 332 MB; this one with its retries took 2.0 to 2.2 s and 167 to 197 MB (bench/fanout/responses-clients.ts).
 */

import http from "node:http";
import https from "node:https";
import { createParser } from "eventsource-parser";
import type { ToolDefinition } from "../tools/tool.ts";
import { errorFromStatus, errorFromTransport, ModelError } from "./model-error.ts";
import { decodeResponseEvent, type JsonObject, type ResponseEvent } from "./response-events.ts";

export interface ResponsesRequest {
  model: string;
  /** The part of the prompt that all calls with one `cacheKey` share. */
  instructions: string;
  input: readonly JsonObject[];
  tools: readonly ToolDefinition[];
  parallelToolCalls: boolean;
  reasoningEffort?: string | undefined;
  /** Lets the server reuse what it has computed for the common beginning. */
  cacheKey: string;
  headers?: Readonly<Record<string, string>>;
}

export type ResponseHeaders = Readonly<Record<string, string | string[] | undefined>>;

export interface ResponseListener {
  /** The API has said yes; what it says follows. */
  onAccepted?(headers: ResponseHeaders): void;
  onEvent(event: ResponseEvent): void;
}

export interface ResponsesApi {
  /** Resolves after the terminal event; rejects with a ModelError when there is none, or with the signal's reason. */
  send(request: ResponsesRequest, signal: AbortSignal, listener: ResponseListener): Promise<void>;
  /** Ends every connection. */
  close(): void;
}

export interface HttpResponsesApiOptions {
  /** E.g. `https://api.openai.com/v1`; `/responses` is appended. */
  baseUrl: string;
  apiKey: string | undefined;
  /** Silence on a connection for this long means that it is dead. */
  idleTimeoutMs?: number | undefined;
  /** HTTP_PROXY, HTTPS_PROXY and NO_PROXY are taken from here. */
  proxyEnv?: NodeJS.ProcessEnv;
}

/** Reasoning models may think for minutes, but servers keep the stream alive meanwhile. */
export const DEFAULT_IDLE_TIMEOUT_MS = 300_000;

export function createHttpResponsesApi(options: HttpResponsesApiOptions): ResponsesApi {
  const url = new URL(`${options.baseUrl.replace(/\/+$/, "")}/responses`);
  const secure = url.protocol === "https:";
  const agentOptions = {
    keepAlive: true,
    ...(options.proxyEnv ? { proxyEnv: options.proxyEnv } : {}),
  };
  const agent = secure ? new https.Agent(agentOptions) : new http.Agent(agentOptions);
  const send = secure ? https.request : http.request;
  const target = {
    method: "POST",
    agent,
    protocol: url.protocol,
    hostname: url.hostname.replace(/^\[|\]$/g, ""),
    port: url.port,
    path: `${url.pathname}${url.search}`,
  };
  const idleTimeoutMs = options.idleTimeoutMs ?? DEFAULT_IDLE_TIMEOUT_MS;

  return {
    async send(request, signal, listener) {
      signal.throwIfAborted();
      const body = Buffer.from(JSON.stringify(requestBody(request)));
      const outgoing = send({
        ...target,
        timeout: idleTimeoutMs,
        headers: {
          "content-type": "application/json",
          "content-length": body.length,
          accept: "text/event-stream",
          "user-agent": "procwire",
          ...(options.apiKey ? { authorization: `Bearer ${options.apiKey}` } : {}),
          ...request.headers,
        },
      });
      outgoing.on("timeout", () =>
        outgoing.destroy(new ModelError("transport", `the API was silent for ${idleTimeoutMs / 1000} s`)),
      );
      const onAbort = () => outgoing.destroy();
      signal.addEventListener("abort", onAbort, { once: true });
      try {
        outgoing.end(body);
        await readAnswer(await answered(outgoing), listener);
      } catch (error) {
        throw signal.aborted ? signal.reason : errorFromTransport(error, outgoing.reusedSocket);
      } finally {
        signal.removeEventListener("abort", onAbort);
      }
    },
    close() {
      agent.destroy();
    },
  };
}

function answered(outgoing: http.ClientRequest): Promise<http.IncomingMessage> {
  return new Promise((resolve, reject) => {
    // Stays for the life of the request: what breaks after the answer has begun is told by the answer too.
    outgoing.on("error", reject);
    outgoing.on("response", resolve);
  });
}

async function readAnswer(incoming: http.IncomingMessage, listener: ResponseListener): Promise<void> {
  if (incoming.statusCode !== 200) {
    throw errorFromStatus(incoming.statusCode ?? 0, incoming.headers, await readText(incoming));
  }
  listener.onAccepted?.(incoming.headers);
  await readEvents(incoming, listener);
}

function requestBody(request: ResponsesRequest): JsonObject {
  return {
    model: request.model,
    instructions: request.instructions,
    input: request.input,
    tools: request.tools.map((tool) => ({
      type: "function",
      name: tool.name,
      description: tool.description,
      strict: false,
      parameters: tool.parameters,
    })),
    tool_choice: "auto",
    parallel_tool_calls: request.parallelToolCalls,
    ...(request.reasoningEffort ? { reasoning: { effort: request.reasoningEffort } } : {}),
    store: false,
    stream: true,
    include: ["reasoning.encrypted_content"],
    prompt_cache_key: request.cacheKey,
  };
}

/** Far above any real event; a stream without line ends must not grow for ever. */
const MAX_EVENT_CHARS = 64 * 1024 * 1024;

/** How long a finished answer may take to end, so that its connection can be used again. */
const DRAIN_MS = 100;

/**
 * Callbacks rather than an iterator: a stream iterated over costs about a third more time and twice the memory a call.
 * Nothing of interest follows the terminal event, but the end is waited for a moment: it frees the connection, and a caller
 * that asks again at once would otherwise open a second one.
 */
function readEvents(incoming: http.IncomingMessage, listener: ResponseListener): Promise<void> {
  return new Promise((resolve, reject) => {
    let finished = false;
    let drain: NodeJS.Timeout | undefined;
    const parser = createParser({
      maxBufferSize: MAX_EVENT_CHARS,
      onEvent: ({ data }) => {
        if (finished) return;
        const event = decodeResponseEvent(data);
        if (!event) return;
        listener.onEvent(event);
        finished = event.type === "completed" || event.type === "failed" || event.type === "incomplete";
        if (finished) drain = setTimeout(() => incoming.destroy(), DRAIN_MS);
      },
      onError: (error) => {
        // An unknown field is no reason to give up an answer.
        if (error.type === "max-buffer-size-exceeded") throw error;
      },
    });
    incoming.setEncoding("utf8");
    incoming.on("data", (chunk: string) => {
      if (finished) return;
      try {
        parser.feed(chunk);
      } catch (error) {
        incoming.destroy(error instanceof Error ? error : new Error(String(error)));
      }
    });
    incoming.on("error", (error) => {
      if (!finished) reject(error);
    });
    incoming.on("close", () => {
      clearTimeout(drain);
      if (finished) resolve();
      else reject(new ModelError("transport", "the stream was closed before response.completed"));
    });
  });
}

/** Enough for any error message; a proxy's whole page is not needed. */
const MAX_ERROR_BODY_CHARS = 64 * 1024;

async function readText(incoming: http.IncomingMessage): Promise<string> {
  let text = "";
  incoming.setEncoding("utf8");
  for await (const chunk of incoming) {
    if (text.length < MAX_ERROR_BODY_CHARS) text += String(chunk);
  }
  return text;
}
