/**
 * A model's API over HTTP, whichever wire it speaks. Retries are not made here: `callModel` is the one place that asks again.
 *
 * Why not the official client: 10,000 streamed calls, 64 at a time, took it 6.9 to 7.4 s of processor time and 316 to
 * 332 MB; this one with its retries took 2.0 to 2.2 s and 167 to 197 MB (bench/fanout/responses-clients.ts).
 */

import http from "node:http";
import https from "node:https";
import { createParser } from "eventsource-parser";
import { AnthropicBatches } from "../batch/anthropic-batches.ts";
import { OpenAiBatches } from "../batch/openai-batches.ts";
import type { AnswerDecoder, ModelApi, ModelRequest, ResponseListener, Wire } from "./model-api.ts";
import { answerOf } from "./model-caller.ts";
import { errorFromStatus, errorFromTransport, ModelError } from "./model-error.ts";
import type { JsonObject, ResponseEvent } from "./response-events.ts";

export interface HttpModelApiOptions {
  /** E.g. `https://api.openai.com/v1`; the wire's path is appended. */
  baseUrl: string;
  apiKey: string | undefined;
  /** Silence on a connection for this long means that it is dead. */
  idleTimeoutMs?: number | undefined;
  /** HTTP_PROXY, HTTPS_PROXY and NO_PROXY are taken from here. */
  proxyEnv?: NodeJS.ProcessEnv;
  /** Sent with every request, over those of the wire. */
  headers?: Readonly<Record<string, string>> | undefined;
}

/** Reasoning models may think for minutes, but servers keep the stream alive meanwhile. */
export const DEFAULT_IDLE_TIMEOUT_MS = 300_000;

export function createHttpModelApi(wire: Wire, options: HttpModelApiOptions): ModelApi {
  const url = new URL(options.baseUrl);
  url.pathname = `${url.pathname.replace(/\/+$/, "")}${wire.path}`;
  const secure = url.protocol === "https:";
  const { proxyEnv } = options;
  const agentOptions = proxyEnv ? { keepAlive: true, proxyEnv } : { keepAlive: true };
  const agent = secure ? new https.Agent(agentOptions) : new http.Agent(agentOptions);
  const send = secure ? https.request : http.request;
  const ownHeaders = { "user-agent": "procwire", ...wire.headers(options.apiKey) };
  const target = {
    method: "POST",
    agent,
    protocol: url.protocol,
    hostname: url.hostname.replace(/^\[|\]$/g, ""),
    port: url.port,
    path: `${url.pathname}${url.search}`,
  };
  const idleTimeoutMs = options.idleTimeoutMs ?? DEFAULT_IDLE_TIMEOUT_MS;
  const commonHeaders = {
    "content-type": "application/json",
    accept: "text/event-stream",
    ...ownHeaders,
  };
  const Batches = wire.batches === "messages" ? AnthropicBatches : OpenAiBatches;
  /** Parameters that this API was found not to take. */
  const spared = new Set<string>();

  return {
    batches: new Batches({
      baseUrl: new URL(options.baseUrl),
      endpoint: `/v1${wire.path}`,
      agent,
      headers: { ...ownHeaders, ...options.headers },
      idleTimeoutMs,
      body: (request) => ({ ...wire.body(request, spared), ...request.options?.extraBody }),
      answer: (request, body) => {
        const decoder = wire.decoder(request, spared);
        return answerOf([...decoder.take(wire.wholeAnswer(body)), ...decoder.end()]);
      },
    }),
    async send(request, signal, listener) {
      signal.throwIfAborted();
      const without = new Set(spared);
      const fields = { ...wire.body(request, without), ...request.options?.extraBody };
      const body = Buffer.from(JSON.stringify(fields));
      const outgoing = send({
        ...target,
        timeout: idleTimeoutMs,
        headers: {
          ...commonHeaders,
          "content-length": body.length,
          ...request.headers,
          ...options.headers,
        },
      });
      outgoing.on("timeout", () =>
        outgoing.destroy(new ModelError("transport", `the API was silent for ${idleTimeoutMs / 1000} s`)),
      );
      const onAbort = () => outgoing.destroy();
      signal.addEventListener("abort", onAbort, { once: true });
      try {
        outgoing.end(body);
        const incoming = await answered(outgoing);
        if (incoming.statusCode !== 200)
          throw await readRefusal(incoming, wire, { request, fields, without }, spared);
        listener.onAccepted?.(wire.limitHeaders?.(incoming.headers) ?? incoming.headers);
        await readEvents(incoming, wire.decoder(request, without), listener);
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

/** Statuses that may be about a single parameter. */
const ABOUT_PARAMETERS: ReadonlySet<number> = new Set([400, 404, 422]);

/** When a parameter is refused that can be spared, it is from now on, and the request is worth sending again. */
async function readRefusal(
  incoming: http.IncomingMessage,
  wire: Wire,
  sent: { request: ModelRequest; fields: JsonObject; without: ReadonlySet<string> },
  spared: Set<string>,
): Promise<ModelError> {
  const status = incoming.statusCode ?? 0;
  const body = await readText(incoming);
  const error = errorFromStatus(status, incoming.headers, body);
  if (!ABOUT_PARAMETERS.has(status)) return error;
  const parameter = wire.spareable.find(
    ({ name, refusal, canSpare }) =>
      !sent.without.has(name) &&
      refusal.test(body) &&
      (canSpare ? canSpare(sent.request) : sent.fields[name] !== undefined),
  );
  if (!parameter) return error;
  spared.add(parameter.name);
  return new ModelError(error.kind, error.message, { status, cause: error, sendAgain: true });
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
function readEvents(
  incoming: http.IncomingMessage,
  decoder: AnswerDecoder,
  listener: ResponseListener,
): Promise<void> {
  return new Promise((resolve, reject) => {
    let finished = false;
    let drain: NodeJS.Timeout | undefined;
    const tell = (events: readonly ResponseEvent[]) => {
      for (const event of events) {
        listener.onEvent(event);
        finished ||= event.type === "completed" || event.type === "failed" || event.type === "incomplete";
      }
    };
    const parser = createParser({
      maxBufferSize: MAX_EVENT_CHARS,
      onEvent: ({ data }) => {
        if (finished) return;
        tell(decoder.take(data));
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
    incoming.on("end", () => {
      if (!finished) tell(decoder.end());
    });
    incoming.on("close", () => {
      clearTimeout(drain);
      if (finished) resolve();
      else reject(new ModelError("transport", "the stream was closed before its end"));
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
