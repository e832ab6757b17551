import type { Agent, ClientRequest, IncomingMessage, RequestOptions } from "node:http";
import { type Clock, systemClock } from "../async/clock.ts";
import { TaskSet } from "../async/task-set.ts";
import { hasErrorCode } from "../base/error-code.ts";
import { once } from "../base/once.ts";
import { internalError, invalidParams } from "../protocol/errors.ts";
import type { HttpBodyDelta, HttpRequestParams, HttpResult } from "../protocol/http-schemas.ts";
import { envHeaderNames, outgoingHeaders, parseHttpUrl, parseMethod, receivedHeaders } from "./http-message.ts";
import { followRedirect, type RedirectHop } from "./redirect.ts";

export interface HttpRequestsOptions {
  /** Receives the deltas; each waits for the previous one. A rejection ends the stream. */
  sink: (delta: HttpBodyDelta) => Promise<void>;
  onError: (error: unknown) => void;
  env?: NodeJS.ProcessEnv;
  clock?: Clock;
  maxBodyBytes?: number;
  /** Called before each request. Throws if the cap is reached; otherwise returns a function that is called after the body. */
  acquire?: () => () => void;
}

/** One message carries the whole body as base64, and a server holds several copies; larger bodies must be streamed. */
export const MAX_BUFFERED_BODY_BYTES = 128 * 1024 * 1024;
/** The protocol's limit of one delta. */
export const MAX_DELTA_BYTES = 1024 * 1024;
/** Codex's limit. */
export const MAX_REDIRECTS = 10;
/** Allows large cookies and tokens; Node's default of 16 KiB is too small for some servers. */
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
      acquire: () => () => undefined,
      ...options,
    };
    this.#tasks = new TaskSet(options.onError);
  }

  /**
   * The deltas of a streamed response start with `stream()`, so that the caller can send the response first. `admit` is called
   * with the size of each chunk of a body that is not streamed; false means that there is no memory for it.
   */
  async request(params: HttpRequestParams, admit: (bytes: number) => boolean = () => true): Promise<HttpResult> {
    const { requestId } = params;
    if (params.streamResponse !== true) return await this.#buffered(params, admit);
    if (this.#streams.has(requestId)) {
      throw invalidParams(`http/request streamResponse requestId \`${requestId}\` is already active`);
    }
    this.#streams.add(requestId);
    try {
      const exchange = await this.#send(params);
      const stream = once(() => this.#tasks.run(() => this.#stream(requestId, exchange)));
      return { ...toResult(exchange.response, new Uint8Array()), stream };
    } catch (error) {
      this.#streams.delete(requestId);
      throw error;
    }
  }

  /** Aborts all requests; resolves when the last one has ended. */
  async close(): Promise<void> {
    this.#closed = true;
    for (const exchange of this.#active) exchange.abort();
    for (const agent of this.#agents.values()) agent.destroy();
    await this.#tasks.settled();
  }

  async #buffered(params: HttpRequestParams, admit: (bytes: number) => boolean): Promise<HttpResult> {
    const { maxBodyBytes } = this.#options;
    const { response, end } = await this.#send(params);
    const chunks: Buffer[] = [];
    let length = 0;
    let isAdmitted = true;
    try {
      for await (const chunk of bytesOf(response)) {
        length += chunk.byteLength;
        if (length > maxBodyBytes) break;
        isAdmitted = admit(chunk.byteLength);
        if (!isAdmitted) break;
        chunks.push(chunk);
      }
    } catch (cause) {
      throw internalError(`failed to read http/request response body: ${BROKEN_BODY}`, { cause });
    } finally {
      end();
    }
    if (length > maxBodyBytes) {
      throw internalError(`http/request response body is larger than ${maxBodyBytes} bytes; use streamResponse`);
    }
    if (!isAdmitted) {
      throw internalError(
        "http/request response body does not fit: the memory budget for buffered bodies is exhausted; use streamResponse, or retry later",
      );
    }
    return toResult(response, Buffer.concat(chunks, length));
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
        // Only a failure of the body is reported as a delta; a failed sink cannot receive one.
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

  /** Sends the request and follows redirects until there is a final response. */
  async #send(params: HttpRequestParams): Promise<Exchange> {
    let hop: RedirectHop = {
      method: parseMethod(params.method),
      url: parseHttpUrl(params.url),
      headers: outgoingHeaders(params.headers ?? [], this.#options.env),
      private: envHeaderNames(params.headers ?? []),
      body: params.body ?? new Uint8Array(),
    };
    const release = this.#options.acquire();
    const stop = new AbortController();
    const abort = () => stop.abort();
    this.#active.add(stop);
    if (this.#closed) abort();
    const timer =
      params.timeoutMs === undefined ? null : this.#options.clock.after(params.timeoutMs, abort, { keepAlive: false });
    const end = () => {
      timer?.cancel();
      this.#active.delete(stop);
      release();
    };
    try {
      for (let redirects = 0; ; redirects++) {
        const response = await this.#exchange(hop, stop.signal);
        const next = params.redirectPolicy === "stop" ? null : followRedirect(hop, response);
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

  async #exchange(hop: RedirectHop, signal: AbortSignal): Promise<IncomingMessage> {
    // Node sets the length only for methods that usually have a body.
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
    // Retries once if a keep-alive connection was closed and the method can be repeated safely.
    for (let attempt = 1; ; attempt++) {
      try {
        const request = await this.#start(hop.url, options);
        return await responseTo(request, hop.body, signal);
      } catch (error) {
        const canRetry =
          !signal.aborted && error instanceof StaleConnectionError && REPEATABLE.includes(hop.method.toUpperCase());
        if (attempt === 2 || !canRetry) throw failed(error);
      }
    }
  }

  /** The first request imports the modules, so that a server without requests starts faster. */
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
  /** Called once the body has ended. */
  end: () => void;
}

const REPEATABLE = ["GET", "HEAD", "OPTIONS", "PUT", "DELETE", "TRACE"];

const BROKEN_BODY = "error decoding response body";

class StaleConnectionError extends Error {}

function responseTo(request: ClientRequest, body: Uint8Array, signal: AbortSignal): Promise<IncomingMessage> {
  return new Promise((resolve, reject) => {
    // Not Node's `signal` option and without an error argument: both reach the socket, which after the last byte
    // belongs to the agent and has no error listener.
    const abort = () => void request.destroy();
    if (signal.aborted) abort();
    signal.addEventListener("abort", abort, { once: true });
    request.on("response", (response) => {
      // The body may fail before it is read; a later read still fails.
      response.on("error", () => undefined);
      resolve(response);
    });
    // Tunnels are unsupported; without a listener Node would close the socket silently.
    request.on("connect", (_response, socket) => {
      socket.destroy();
      reject(new Error("the server opened a tunnel"));
    });
    request.on("error", (error) => {
      const stale = request.reusedSocket && hasErrorCode(error, "ECONNRESET");
      reject(stale ? new StaleConnectionError(error.message, { cause: error }) : error);
    });
    request.end(body);
  });
}

async function* bytesOf(response: IncomingMessage): AsyncGenerator<Buffer> {
  for await (const chunk of response) if (Buffer.isBuffer(chunk)) yield chunk;
}

function toResult(response: IncomingMessage, body: Uint8Array): HttpResult {
  return { status: response.statusCode ?? 0, headers: receivedHeaders(response.rawHeaders), body };
}
