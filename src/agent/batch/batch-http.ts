/** HTTP requests to batch APIs: JSON bodies, and files of JSON lines. */

import http from "node:http";
import https from "node:https";
import { createInterface } from "node:readline";
import { pipeline } from "node:stream/promises";
import { type JsonObject, parseObject } from "../../base/json-fields.ts";
import { errorFromStatus, errorFromTransport, ModelError } from "../api/model-error.ts";
import { readText, receiveResponse } from "../api/receive-response.ts";

export interface BatchHttpOptions {
  baseUrl: URL;
  agent: http.Agent;
  headers: Readonly<Record<string, string>>;
  idleTimeoutMs: number;
}

/** Content of a request. */
export interface RequestBody {
  headers: http.OutgoingHttpHeaders;
  parts: () => AsyncIterable<Buffer>;
}

export class BatchHttp {
  #options: BatchHttpOptions;

  constructor(options: BatchHttpOptions) {
    this.#options = options;
  }

  /** Yields the JSON objects of a file. Rejects if the download is truncated. */
  async *lines(path: string, signal: AbortSignal): AsyncGenerator<JsonObject, void, undefined> {
    const incoming = await this.request("GET", path, signal);
    const broken = Promise.withResolvers<never>();
    broken.promise.catch(() => undefined);
    incoming.on("error", broken.reject);
    const lines = createInterface({ input: incoming, crlfDelay: Number.POSITIVE_INFINITY });
    try {
      for await (const text of lines) {
        const line = parseObject(text);
        if (line) yield line;
      }
      // A truncated download ends the line stream normally.
      if (!incoming.complete) await Promise.race([broken.promise, truncatedError()]);
    } finally {
      // The caller may stop early.
      incoming.destroy();
    }
  }

  async json(method: string, path: string, signal: AbortSignal, body?: JsonObject): Promise<JsonObject> {
    const text = body && Buffer.from(JSON.stringify(body));
    const incoming = await this.request(
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

  /** Returns the response head. Rejects with a `ModelError` for any status but success. */
  async request(method: string, path: string, signal: AbortSignal, sent?: RequestBody): Promise<http.IncomingMessage> {
    const { baseUrl, agent, headers, idleTimeoutMs } = this.#options;
    signal.throwIfAborted();
    const url = new URL(`${baseUrl.href.replace(/\/+$/, "")}${path}`);
    const send = url.protocol === "https:" ? https.request : http.request;
    const outgoing = send(url, {
      method,
      agent,
      headers: { ...headers, ...sent?.headers },
      signal,
    });
    try {
      const head = receiveResponse(outgoing, idleTimeoutMs);
      head.catch(() => undefined);
      // A server that rejects a request may close before it has read the body. Its response says more than the broken
      // pipe.
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

async function truncatedError(): Promise<never> {
  throw new ModelError("transport", "the answers were cut off before their end");
}

export async function readObject(incoming: http.IncomingMessage): Promise<JsonObject> {
  const value = parseObject(await readText(incoming, Number.POSITIVE_INFINITY));
  if (!value) throw new ModelError("server", "the API answered with something that is not a JSON object");
  return value;
}
