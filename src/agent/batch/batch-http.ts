/** Requests about batches, whichever provider's: JSON up and down, and files of JSON lines. */

import http from "node:http";
import https from "node:https";
import { createInterface } from "node:readline";
import { pipeline } from "node:stream/promises";
import { type JsonObject, parseObject } from "../../base/json-fields.ts";
import { errorFromStatus, errorFromTransport, ModelError } from "../api/model-error.ts";

export interface BatchHttpOptions {
  baseUrl: URL;
  agent: http.Agent;
  headers: Readonly<Record<string, string>>;
  idleTimeoutMs: number;
}

/** What a request brings along. */
export interface SentBody {
  headers: http.OutgoingHttpHeaders;
  parts: () => AsyncIterable<Buffer>;
}

/** An error's text is short; a proxy's whole page is not needed. */
const MAX_ERROR_CHARS = 64 * 1024;

export class BatchHttp {
  #options: BatchHttpOptions;

  constructor(options: BatchHttpOptions) {
    this.#options = options;
  }

  /** The lines of a file, as far as they are JSON objects; rejects when the file is cut short. */
  async *lines(path: string, signal: AbortSignal): AsyncGenerator<JsonObject, void, undefined> {
    const incoming = await this.request("GET", path, signal);
    const broken = Promise.withResolvers<never>();
    broken.promise.catch(() => undefined);
    incoming.on("error", broken.reject);
    const lines = createInterface({ input: incoming, crlfDelay: Number.POSITIVE_INFINITY });
    for await (const text of lines) {
      const line = parseObject(text);
      if (line) yield line;
    }
    // A download that was cut has ended its lines too.
    if (!incoming.complete) await Promise.race([broken.promise, cutShort()]);
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

  /** The answer's head; rejects with a ModelError for anything but a success. */
  async request(
    method: string,
    path: string,
    signal: AbortSignal,
    sent?: SentBody,
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

async function cutShort(): Promise<never> {
  throw new ModelError("transport", "the answers were cut off before their end");
}

export async function readObject(incoming: http.IncomingMessage): Promise<JsonObject> {
  const value = parseObject(await readText(incoming, Number.POSITIVE_INFINITY));
  if (!value) throw new ModelError("server", "the API answered with something that is not a JSON object");
  return value;
}

async function readText(incoming: http.IncomingMessage, most = MAX_ERROR_CHARS): Promise<string> {
  let text = "";
  incoming.setEncoding("utf8");
  for await (const chunk of incoming) if (text.length < most) text += String(chunk);
  return text;
}
