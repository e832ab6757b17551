import { onAbort } from "../../async/abort.ts";
import { withCallErrors } from "../../exec/call-error.ts";
import { type InputData, toInputBytes } from "../../exec/options/input-bytes.ts";
import { checkOptions } from "../../exec/options/option-schema.ts";
import { DisconnectedError } from "../../protocol/errors.ts";
import { ExecServerError } from "../../protocol/exec-server-error.ts";
import type { ParamsOf, ServerNotification, ServerNotificationParams } from "../../protocol/methods.ts";
import { httpRequest } from "../client-options.ts";
import { explainUnknownMethod } from "../rpc/unsupported-method.ts";
import type { ReconnectingSession } from "../session/reconnecting-session.ts";
import type { ReopeningSession } from "../session/reopening-session.ts";

/** Unread bytes of a streamed body above which reading from the connection is paused. */
const MAX_UNREAD_BYTES = 4 * 1024 * 1024;

export interface HttpRequest {
  url: string;
  /** Default GET. */
  method?: string;
  headers?: Record<string, string>;
  body?: InputData;
  /** Includes the body. Default: none. */
  timeoutMs?: number;
  redirect?: "follow" | "stop";
  signal?: AbortSignal;
}

export interface HttpResponse<Body> {
  status: number;
  headers: { name: string; value: string }[];
  body: Body;
}

/**
 * HTTP requests made from the host that a client is connected to.
 *
 * @example
 * const { status, body } = await client.http.request({ url: "http://127.0.0.1:8080/health" });
 */
export class RemoteHttp {
  readonly #sessions: ReopeningSession;
  readonly #newId: () => string;
  readonly #streams = new Map<string, BodyStream>();

  /** @internal */
  constructor(sessions: ReopeningSession, newId: () => string) {
    this.#sessions = sessions;
    this.#newId = newId;
  }

  request(request: HttpRequest): Promise<HttpResponse<Uint8Array>> {
    const check = () => checkOptions("request", request, httpRequest, "request");
    const send = (session: ReconnectingSession) => this.#request(session, request);
    return withCallErrors(HTTP_REQUEST, () => this.#sessions.run(send, request.signal), request?.signal, check);
  }

  /** Streams the body. A slow reader pauses the connection; after an early return the rest is discarded. */
  stream(request: HttpRequest): Promise<HttpResponse<AsyncIterableIterator<Uint8Array>>> {
    const check = () => checkOptions("stream", request, httpRequest, "request");
    const send = (session: ReconnectingSession) => this.#stream(session, request);
    return withCallErrors(HTTP_REQUEST, () => this.#sessions.run(send, request.signal), request?.signal, check);
  }

  async #request(session: ReconnectingSession, request: HttpRequest): Promise<HttpResponse<Uint8Array>> {
    const { bodyBase64, ...head } = await this.#send(session, request, { requestId: this.#newId() });
    return { ...head, body: bodyBase64 };
  }

  async #stream(
    session: ReconnectingSession,
    request: HttpRequest,
  ): Promise<HttpResponse<AsyncIterableIterator<Uint8Array>>> {
    const requestId = this.#newId();
    const stream = new BodyStream((isFull) => session.pauseInput(stream, isFull));
    this.#streams.set(requestId, stream);
    try {
      const { status, headers } = await this.#send(session, request, { requestId, streamResponse: true });
      const { signal } = request;
      const forget = () => this.#streams.delete(requestId);
      const unsubscribe =
        signal &&
        onAbort(signal, () => {
          forget();
          stream.abort(signal.reason);
        });
      const end = () => {
        forget();
        unsubscribe?.();
      };
      return { status, headers, body: stream.read(end) };
    } catch (error) {
      this.#streams.delete(requestId);
      throw error;
    }
  }

  /** @internal */
  onNotification(notification: ServerNotification): void {
    if (notification.method !== "http/request/bodyDelta") return;
    this.#streams.get(notification.params.requestId)?.push(notification.params);
  }

  /**
   * Requests end with their connection.
   *
   * @internal
   */
  onDisconnect(reason: string | null): void {
    for (const stream of this.#streams.values())
      stream.fail(new DisconnectedError(reason ?? undefined, {}, HTTP_REQUEST));
    this.#streams.clear();
  }

  async #send(
    session: ReconnectingSession,
    request: HttpRequest,
    own: { requestId: string; streamResponse?: boolean },
  ) {
    const { method = "GET", url, headers, body, timeoutMs, redirect, signal } = request;
    const params: ParamsOf<"http/request"> = {
      ...own,
      method,
      url,
      headers: headers && Object.entries(headers).map(([name, value]) => ({ name, value })),
      bodyBase64: body === undefined ? undefined : toInputBytes(body),
      timeoutMs,
      redirectPolicy: redirect,
    };
    try {
      // Most HTTP requests are not safe to repeat.
      return await session.call("http/request", params, { resend: "unsent", signal, isMovable: true });
    } catch (error) {
      // A server that handles requests in order would wait for this response first. It cancels the request only when
      // the connection closes.
      if (signal?.aborted && !session.server.isExtended) session.reconnect("an HTTP request was aborted");
      throw explainUnknownMethod("http/request", error);
    }
  }
}

/** Error details of both calls. */
const HTTP_REQUEST = { method: "http/request" };

function bodyError(why: string): ExecServerError {
  return new ExecServerError(`http/request failed: ${why}`, "INTERNAL", HTTP_REQUEST);
}

/** Buffer between the connection and the reader of one body. */
class BodyStream {
  readonly #pauseInput: (isFull: boolean) => void;
  #chunks: Uint8Array[] = [];
  #unreadBytes = 0;
  #end: { type: "whole" } | { type: "broken"; reason: unknown } | null = null;
  #waiting: PromiseWithResolvers<void> | null = null;

  constructor(pauseInput: (isFull: boolean) => void) {
    this.#pauseInput = pauseInput;
  }

  push({ deltaBase64, done, error }: ServerNotificationParams<"http/request/bodyDelta">): void {
    if (this.#end) return;
    if (deltaBase64.length > 0) this.#chunks.push(deltaBase64);
    this.#unreadBytes += deltaBase64.length;
    if (this.#unreadBytes > MAX_UNREAD_BYTES) this.#pauseInput(true);
    if (done) this.#end = error === null ? { type: "whole" } : { type: "broken", reason: bodyError(error) };
    this.#wake();
  }

  /** Discards the body after the reader aborted. */
  abort(reason: unknown): void {
    this.#chunks = [];
    this.#pauseInput(false);
    this.fail(reason);
  }

  fail(reason: unknown): void {
    this.#end ??= { type: "broken", reason };
    this.#wake();
  }

  read(onEnd: () => void): AsyncGenerator<Uint8Array, void, undefined> {
    const body = this.#read(onEnd);
    // An early return skips the `finally` of a generator that has not started.
    void body.next();
    return body;
  }

  async *#read(onEnd: () => void): AsyncGenerator<Uint8Array, void, undefined> {
    try {
      // Waits for the first read.
      yield new Uint8Array();
      for (;;) {
        const chunk = this.#chunks.shift();
        if (chunk) {
          this.#unreadBytes -= chunk.length;
          if (this.#unreadBytes <= MAX_UNREAD_BYTES / 2) this.#pauseInput(false);
          yield chunk;
        } else if (this.#end) {
          if (this.#end.type === "broken") throw this.#end.reason;
          return;
        } else {
          this.#waiting ??= Promise.withResolvers<void>();
          await this.#waiting.promise;
        }
      }
    } finally {
      onEnd();
      this.#pauseInput(false);
      this.#chunks = [];
    }
  }

  #wake(): void {
    this.#waiting?.resolve();
    this.#waiting = null;
  }
}
