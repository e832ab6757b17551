import type { Agent, ClientRequest, IncomingMessage, RequestOptions } from "node:http";
import { type Clock, systemClock } from "../async/clock.ts";
import { TaskSet } from "../async/task-set.ts";
import { internalError, invalidParams } from "../protocol/errors.ts";
import type { HttpAnswer, HttpBodyDelta, HttpRequestParams } from "../protocol/http-schemas.ts";
import {
  checkedMethod,
  checkedUrl,
  namesFromEnvironment,
  outgoingHeaders,
  receivedHeaders,
} from "./http-message.ts";
import { type Hop, nextHop } from "./redirect.ts";

export interface HttpRequestsOptions {
  /** Where deltas go; the next one waits for it. A rejection ends the stream. */
  sink: (delta: HttpBodyDelta) => Promise<void>;
  onError: (error: unknown) => void;
  env?: NodeJS.ProcessEnv;
  clock?: Clock;
  maxBodyBytes?: number;
  /** Asked before each request: may refuse it by throwing, and gives how to leave once its body is over. */
  enter?: () => () => void;
}

/** One message carries the whole body as base64, and a server holds it more than once on the way: larger ones stream. */
export const MAX_BUFFERED_BODY_BYTES = 128 * 1024 * 1024;
/** The protocol's limit of one delta. */
export const MAX_DELTA_BYTES = 1024 * 1024;
/** As many as upstream follows. */
export const MAX_REDIRECTS = 10;
/** Room for large cookies and tokens; Node's own 16 KiB is short of what servers send. */
const MAX_HEADER_BYTES = 64 * 1024;

/** The requests of one connection. */
export class HttpRequests {
  #options: Required<HttpRequestsOptions>;
  #streams = new Set<string>();
  #tasks: TaskSet;
  #active = new Set<AbortController>();
  #closed = false;
  #agents = new Map<string, Agent>();

  constructor(options: HttpRequestsOptions) {
    this.#options = {
      env: process.env,
      clock: systemClock,
      maxBodyBytes: MAX_BUFFERED_BODY_BYTES,
      enter: () => () => undefined,
      ...options,
    };
    this.#tasks = new TaskSet(options.onError);
  }

  /**
   * A streamed answer's deltas begin with `stream()`, so that the caller can send the answer first. `admit` is asked with
   * each piece of a body that is not streamed: false when there is no memory for it.
   */
  async request(
    params: HttpRequestParams,
    admit: (bytes: number) => boolean = () => true,
  ): Promise<HttpAnswer> {
    const { requestId } = params;
    if (params.streamResponse !== true) return await this.#buffered(params, admit);
    if (this.#streams.has(requestId)) {
      throw invalidParams(`http/request streamResponse requestId \`${requestId}\` is already active`);
    }
    this.#streams.add(requestId);
    try {
      const exchange = await this.#send(params);
      const stream = once(() => this.#tasks.run(() => this.#stream(requestId, exchange)));
      return { ...answer(exchange.response, new Uint8Array()), stream };
    } catch (error) {
      this.#streams.delete(requestId);
      throw error;
    }
  }

  /** Breaks off what is under way; resolves when the last of it is gone. */
  async close(): Promise<void> {
    this.#closed = true;
    for (const exchange of this.#active) exchange.abort();
    for (const agent of this.#agents.values()) agent.destroy();
    await this.#tasks.settled();
  }

  async #buffered(params: HttpRequestParams, admit: (bytes: number) => boolean): Promise<HttpAnswer> {
    const { maxBodyBytes } = this.#options;
    const { response, end } = await this.#send(params);
    const chunks: Buffer[] = [];
    let length = 0;
    let hasRoom = true;
    try {
      for await (const chunk of bytesOf(response)) {
        length += chunk.byteLength;
        if (length > maxBodyBytes) break;
        hasRoom = admit(chunk.byteLength);
        if (!hasRoom) break;
        chunks.push(chunk);
      }
    } catch (cause) {
      throw internalError(`failed to read http/request response body: ${BROKEN_BODY}`, { cause });
    } finally {
      end();
    }
    if (length > maxBodyBytes) {
      throw internalError(
        `http/request response body is larger than ${maxBodyBytes} bytes; use streamResponse`,
      );
    }
    if (!hasRoom) {
      throw internalError(
        `http/request response body does not fit: this server holds as many bytes of such bodies as it may; use streamResponse, or ask again later`,
      );
    }
    return answer(response, Buffer.concat(chunks, length));
  }

  async #stream(requestId: string, { response, end }: Exchange): Promise<void> {
    let seq = 0;
    const send = async (delta: Uint8Array, done: boolean, error: string | null) => {
      if (!this.#closed) await this.#options.sink({ requestId, seq: ++seq, delta, done, error });
    };
    let error: string | null = null;
    try {
      const chunks = bytesOf(response)[Symbol.asyncIterator]();
      for (;;) {
        // Only the body's own failure is told as one; a sink that fails has nobody left to tell.
        const next = await chunks.next().catch(() => BROKEN_BODY);
        if (typeof next === "string") error = next;
        if (typeof next === "string" || next.done) break;
        for (let at = 0; at < next.value.byteLength; at += MAX_DELTA_BYTES) {
          await send(next.value.subarray(at, at + MAX_DELTA_BYTES), false, null);
        }
      }
      await send(new Uint8Array(), true, error);
    } finally {
      this.#streams.delete(requestId);
      response.destroy();
      end();
    }
  }

  /** Sends the request and follows redirects, until there is a response to answer with. */
  async #send(params: HttpRequestParams): Promise<Exchange> {
    let hop: Hop = {
      method: checkedMethod(params.method),
      url: checkedUrl(params.url),
      headers: outgoingHeaders(params.headers ?? [], this.#options.env),
      private: namesFromEnvironment(params.headers ?? []),
      body: params.body ?? new Uint8Array(),
    };
    const leave = this.#options.enter();
    const stop = new AbortController();
    const abort = () => stop.abort();
    this.#active.add(stop);
    if (this.#closed) abort();
    const timer =
      params.timeoutMs === undefined
        ? null
        : this.#options.clock.after(params.timeoutMs, abort, { keepAlive: false });
    const end = () => {
      timer?.cancel();
      this.#active.delete(stop);
      leave();
    };
    try {
      for (let redirects = 0; ; redirects++) {
        const response = await this.#exchange(hop, stop.signal);
        const next = params.redirectPolicy === "stop" ? null : nextHop(hop, response);
        if (next === null) return { response, end };
        response.destroy();
        if (redirects === MAX_REDIRECTS) throw internalError("http/request failed: too many redirects");
        hop = next;
      }
    } catch (error) {
      end();
      throw error;
    }
  }

  async #exchange(hop: Hop, signal: AbortSignal): Promise<IncomingMessage> {
    // Node itself tells the length only of methods that usually have a body.
    const length = hop.body.byteLength > 0 ? { "content-length": hop.body.byteLength } : {};
    const options: RequestOptions = {
      method: hop.method,
      headers: { accept: "*/*", ...hop.headers, ...length },
      maxHeaderSize: MAX_HEADER_BYTES,
    };
    const failed = (cause: unknown) => {
      const shown = new URL(hop.url);
      shown.username = shown.password = "";
      return internalError(`http/request failed: error sending request for url (${shown.href})`, { cause });
    };
    // One more try where a kept connection turned out to be closed, if asking twice does no harm.
    for (let tries = 1; ; tries++) {
      try {
        const request = await this.#start(hop.url, options);
        return await responseTo(request, hop.body, signal);
      } catch (error) {
        const again =
          !signal.aborted &&
          error instanceof StaleConnection &&
          REPEATABLE.includes(hop.method.toUpperCase());
        if (tries === 2 || !again) throw failed(error);
      }
    }
  }

  /** The modules are loaded by the first request that needs them: a server that makes none starts faster. */
  async #start(url: URL, options: RequestOptions): Promise<ClientRequest> {
    const secure = url.protocol === "https:";
    const { Agent, request } = secure ? await import("node:https") : await import("node:http");
    let agent = this.#agents.get(url.protocol);
    if (agent === undefined) {
      agent = new Agent({ keepAlive: true, proxyEnv: this.#options.env });
      this.#agents.set(url.protocol, agent);
    }
    return request(url, { ...options, agent });
  }
}

interface Exchange {
  response: IncomingMessage;
  /** To be called once the body is done with. */
  end: () => void;
}

const REPEATABLE = ["GET", "HEAD", "OPTIONS", "PUT", "DELETE", "TRACE"];

const BROKEN_BODY = "error decoding response body";

class StaleConnection extends Error {}

function responseTo(request: ClientRequest, body: Uint8Array, signal: AbortSignal): Promise<IncomingMessage> {
  return new Promise((resolve, reject) => {
    // Not Node's own `signal` option, and without an error of ours: both reach the socket, which after the last byte
    // belongs to the agent and has nobody to listen to it.
    const abort = () => void request.destroy();
    if (signal.aborted) abort();
    signal.addEventListener("abort", abort, { once: true });
    request.on("response", (response) => {
      // The body may break off before it is read; a later read still fails.
      response.on("error", () => undefined);
      resolve(response);
    });
    // Tunnels are not offered; without a listener Node would drop the socket silently.
    request.on("connect", (_response, socket) => {
      socket.destroy();
      reject(new Error("the server opened a tunnel"));
    });
    request.on("error", (error) => {
      const stale = request.reusedSocket && "code" in error && error.code === "ECONNRESET";
      reject(stale ? new StaleConnection(error.message, { cause: error }) : error);
    });
    request.end(body);
  });
}

function once(act: () => void): () => void {
  let done = false;
  return () => {
    if (!done) act();
    done = true;
  };
}

async function* bytesOf(response: IncomingMessage): AsyncGenerator<Buffer> {
  for await (const chunk of response) if (Buffer.isBuffer(chunk)) yield chunk;
}

function answer(response: IncomingMessage, body: Uint8Array): HttpAnswer {
  return { status: response.statusCode ?? 0, headers: receivedHeaders(response.rawHeaders), body };
}
