/**
 * A model API over HTTP, for all dialects. This module does not retry: `createModelCaller` alone does.
 *
 * The official client needs more resources: for 10,000 streamed calls, 64 at a time, 6.9 to 7.4 s of processor time and
 * 316 to 332 MB. This client, with its retries, needs 2.0 to 2.2 s and 167 to 197 MB
 * (bench/fanout/responses-clients.ts).
 */

import http from "node:http";
import https from "node:https";
import { createParser } from "eventsource-parser";
import { toError } from "../../base/error-message.ts";
import { AnthropicBatches } from "../batch/anthropic-batches.ts";
import { OpenAiBatches } from "../batch/openai-batches.ts";
import type { ModelApi, ModelDialect, ModelRequest, ResponseDecoder, ResponseListener } from "./model-api.ts";
import { collectAnswer } from "./model-caller.ts";
import { errorFromStatus, errorFromTransport, ModelError } from "./model-error.ts";
import { readText, receiveResponse } from "./receive-response.ts";
import type { JsonObject, ResponseEvent } from "./response-events.ts";

export interface HttpModelApiOptions {
  /** For example `https://api.openai.com/v1`. The path of the dialect is appended. */
  baseUrl: string;
  apiKey: string | undefined;
  /** A connection without data for this long counts as dead. Default: 5 minutes. */
  idleTimeoutMs?: number | undefined;
  /** Environment with HTTP_PROXY, HTTPS_PROXY and NO_PROXY. */
  proxyEnv?: NodeJS.ProcessEnv;
  /** Sent with every request. They override the headers of the dialect. */
  headers?: Readonly<Record<string, string>> | undefined;
}

/** Reasoning models may think for minutes, but servers send keep-alive data meanwhile. */
export const DEFAULT_IDLE_TIMEOUT_MS = 300_000;

export function createHttpModelApi(dialect: ModelDialect, options: HttpModelApiOptions): ModelApi {
  const url = new URL(options.baseUrl);
  url.pathname = `${url.pathname.replace(/\/+$/, "")}${dialect.path}`;
  const isSecure = url.protocol === "https:";
  const { proxyEnv } = options;
  const agentOptions = proxyEnv ? { keepAlive: true, proxyEnv } : { keepAlive: true };
  const agent = isSecure ? new https.Agent(agentOptions) : new http.Agent(agentOptions);
  const send = isSecure ? https.request : http.request;
  const ownHeaders = { "user-agent": "procwire", ...dialect.headers(options.apiKey) };
  const target = {
    method: "POST",
    agent,
    protocol: url.protocol,
    hostname: url.hostname.replace(/^\[|\]$/g, ""),
    port: url.port,
    path: `${url.pathname}${url.search}`,
  };
  const idleTimeoutMs = options.idleTimeoutMs ?? DEFAULT_IDLE_TIMEOUT_MS;
  const Batches = dialect.batches === "messages" ? AnthropicBatches : OpenAiBatches;
  /** Droppable parameters that this API rejected. */
  const dropped = new Set<string>();

  return {
    batches: new Batches({
      baseUrl: new URL(options.baseUrl),
      endpoint: `/v1${dialect.path}`,
      agent,
      headers: { ...ownHeaders, ...options.headers },
      idleTimeoutMs,
      body: (request) => ({ ...dialect.body(request, dropped), ...request.options?.extraBody }),
      parseAnswer: (request, body) => {
        const decoder = dialect.decoder(request, dropped);
        return collectAnswer([...decoder.push(dialect.decodeWhole(body)), ...decoder.end()]);
      },
    }),
    async send(request, signal, listener) {
      signal.throwIfAborted();
      const without = new Set(dropped);
      const fields = { ...dialect.body(request, without), ...request.options?.extraBody };
      const body = Buffer.from(JSON.stringify(fields));
      const outgoing = send({
        ...target,
        headers: {
          "content-type": "application/json",
          accept: "text/event-stream",
          ...ownHeaders,
          "content-length": body.length,
          ...request.headers,
          ...options.headers,
        },
      });
      const onAbort = () => outgoing.destroy();
      signal.addEventListener("abort", onAbort, { once: true });
      try {
        outgoing.end(body);
        const incoming = await receiveResponse(outgoing, idleTimeoutMs);
        if (incoming.statusCode !== 200)
          throw await toModelError(incoming, dialect, { request, fields, without }, dropped);
        listener.onAccepted?.(dialect.limitHeaders?.(incoming.headers) ?? incoming.headers);
        await readEvents(incoming, dialect.decoder(request, without), listener);
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

/** Statuses that may concern a single parameter. */
const PARAMETER_STATUSES: ReadonlySet<number> = new Set([400, 404, 422]);

/**
 * Converts an error response. If the API rejects a droppable parameter, later requests omit it, and the error asks for
 * an immediate retry.
 */
async function toModelError(
  incoming: http.IncomingMessage,
  dialect: ModelDialect,
  sent: { request: ModelRequest; fields: JsonObject; without: ReadonlySet<string> },
  dropped: Set<string>,
): Promise<ModelError> {
  const status = incoming.statusCode ?? 0;
  const body = await readText(incoming);
  const error = errorFromStatus(status, incoming.headers, body);
  if (!PARAMETER_STATUSES.has(status)) return error;
  const parameter = dialect.droppable.find(
    ({ name, rejectionPattern, canDrop }) =>
      !sent.without.has(name) &&
      rejectionPattern.test(body) &&
      (canDrop ? canDrop(sent.request) : sent.fields[name] !== undefined),
  );
  if (!parameter) return error;
  dropped.add(parameter.name);
  return new ModelError(error.kind, error.message, { status, cause: error, retryImmediately: true });
}

/** Far more than any real event. Bounds a stream without line ends. */
const MAX_EVENT_CHARS = 64 * 1024 * 1024;

/** How long a complete answer may take to end, so that its connection can be reused. */
const DRAIN_TIMEOUT_MS = 100;

/**
 * Reads the events of an answer. Uses callbacks instead of an iterator, because iteration costs about a third more time
 * and twice the memory for each call.
 * No relevant event follows the terminal one. The function still waits up to `DRAIN_TIMEOUT_MS` for the end, because
 * that frees the connection; an immediate next call would otherwise open a second connection.
 */
function readEvents(
  incoming: http.IncomingMessage,
  decoder: ResponseDecoder,
  listener: ResponseListener,
): Promise<void> {
  return new Promise((resolve, reject) => {
    let isFinished = false;
    let drain: NodeJS.Timeout | undefined;
    const emit = (events: readonly ResponseEvent[]) => {
      for (const event of events) {
        listener.onEvent(event);
        isFinished ||= event.type === "completed" || event.type === "failed" || event.type === "incomplete";
      }
    };
    const parser = createParser({
      maxBufferSize: MAX_EVENT_CHARS,
      onEvent: ({ data }) => {
        if (isFinished) return;
        emit(decoder.push(data));
        if (isFinished) drain = setTimeout(() => incoming.destroy(), DRAIN_TIMEOUT_MS);
      },
      onError: (error) => {
        // An unknown field does not invalidate an answer.
        if (error.type === "max-buffer-size-exceeded") throw error;
      },
    });
    incoming.setEncoding("utf8");
    incoming.on("data", (chunk: string) => {
      if (isFinished) return;
      try {
        parser.feed(chunk);
      } catch (error) {
        incoming.destroy(toError(error));
      }
    });
    incoming.on("error", (error) => {
      if (!isFinished) reject(error);
    });
    incoming.on("end", () => {
      if (!isFinished) emit(decoder.end());
    });
    incoming.on("close", () => {
      clearTimeout(drain);
      if (isFinished) resolve();
      else reject(new ModelError("transport", "the stream was closed before its end"));
    });
  });
}
