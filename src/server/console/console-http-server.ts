import type { IncomingMessage, Server, ServerResponse } from "node:http";
import type { Socket } from "node:net";
import type { Duplex } from "node:stream";
import { sleep, systemClock } from "../../async/clock.ts";
import { parseObject } from "../../base/json-fields.ts";
import type { Principal } from "../auth/principal.ts";
import { INVALID_TOKEN_DELAY_MS, type WebSocketAuth } from "../auth/websocket-auth.ts";
import type { RequestHead } from "../listen/http-request-head.ts";
import { COOKIE_VALID_MS, type ConsoleAuth, readCookie } from "./console-auth.ts";
import { handleJobsRequest, type JobsQueryHandler } from "./jobs-http-api.ts";
import type { StaticFile, StaticFiles } from "./static-files.ts";

export interface ConsoleHttpOptions {
  access: ConsoleAuth;
  auth: WebSocketAuth;
  /** Files of the console, or null if there is no console page. */
  files: StaticFiles | null;
  cookieName: string;
  /** Handles queries about fan-out jobs. If absent, the server has no jobs. */
  jobs?: JobsQueryHandler | undefined;
  /** Returns Prometheus text. If absent, there is no `/metrics`. */
  metrics?: (() => string) | undefined;
  /** Reports whether an `authorization` header belongs to an operator. */
  isOperator: (authorization: string | undefined) => Promise<boolean>;
  /** Returns the rejection if the host or origin of a request is not allowed, or null. Called for each request. */
  rejectForeignOrigin: (head: RequestHead) => { status: number; body: string } | null;
  health: () => { status: number; body: string; type?: string };
  /** Called for a WebSocket upgrade on a kept-alive connection. */
  upgrade: (head: RequestHead, socket: Socket, rest: Buffer) => void;
  /** Called for every response with a status of 400 or more. */
  onRefused: (status: number) => void;
  /** Default: `HTTP_TIMEOUTS`. */
  timeouts?: HttpTimeouts | undefined;
  log: (message: string) => void;
}

/** Timeouts of HTTP connections in milliseconds. */
export interface HttpTimeouts {
  /** Maximum time for a request head, from its first byte. */
  headMs: number;
  /** Maximum time for a whole request. */
  requestMs: number;
  /** Maximum time between a response and the next request. */
  keepAliveMs: number;
  /** Maximum time without traffic while a response is pending. */
  stalledMs: number;
  /** Interval of timeout checks. */
  checkIntervalMs: number;
}

export const HTTP_TIMEOUTS: HttpTimeouts = {
  headMs: 10_000,
  requestMs: 30_000,
  keepAliveMs: 5_000,
  stalledMs: 60_000,
  checkIntervalMs: 5_000,
};
const UNREADABLE: Readonly<Record<string, string>> = {
  HPE_HEADER_OVERFLOW: "431 Request Header Fields Too Large",
  HPE_CHUNK_EXTENSIONS_OVERFLOW: "413 Payload Too Large",
  ERR_HTTP_REQUEST_TIMEOUT: "408 Request Timeout",
};
/** Maximum size of a request body: a token, or a retry request for jobs. */
const MAX_BODY_BYTES = 16 * 1024;

/**
 * Allows nothing from other hosts, no inline content except styles, which the terminal emulator generates, and no
 * frames. A page that shows command output must not execute any of it.
 */
const PAGE_HEADERS = {
  "content-security-policy":
    "default-src 'none'; script-src 'self'; style-src 'self' 'unsafe-inline'; img-src 'self' data:; font-src 'self'; connect-src 'self'; manifest-src 'self'; base-uri 'none'; form-action 'none'; frame-ancestors 'none'",
  "x-content-type-options": "nosniff",
  "referrer-policy": "no-referrer",
  "cross-origin-opener-policy": "same-origin",
  "cross-origin-resource-policy": "same-origin",
} as const;

/** HTTP server of the console. It gets each connection whose first request is not a WebSocket upgrade. */
export class ConsoleHttpServer {
  readonly #options: ConsoleHttpOptions;
  readonly #http: Server;

  constructor(options: ConsoleHttpOptions) {
    this.#options = options;
    const { timeouts = HTTP_TIMEOUTS } = options;
    const { createServer } = process.getBuiltinModule("node:http");
    this.#http = createServer(
      {
        headersTimeout: timeouts.headMs,
        requestTimeout: timeouts.requestMs,
        keepAliveTimeout: timeouts.keepAliveMs,
        // Node adds a buffer of one second by default.
        keepAliveTimeoutBuffer: 0,
        connectionsCheckingInterval: timeouts.checkIntervalMs,
        maxHeaderSize: 16 * 1024,
      },
      (request, response) => void this.#respond(request, response),
    );
    this.#http.timeout = timeouts.stalledMs;
    // This server never listens itself. Without this event, node:http would not start its timeout checks.
    this.#http.emit("listening");
    this.#http.on("clientError", (error: NodeJS.ErrnoException, socket) => this.#onClientError(error, socket));
    this.#http.on("upgrade", (request: IncomingMessage, socket: Duplex, rest: Buffer) => {
      // node:http passes the socket that it got, which is a node:net socket.
      options.upgrade(headOf(request), socket as Socket, rest);
    });
  }

  /** Serves a connection from its first byte. */
  serve(socket: Socket): void {
    this.#http.emit("connection", socket);
  }

  close(): void {
    this.#http.closeAllConnections();
    this.#http.close();
  }

  /** Responds to an invalid or timed-out request as node:http does, and counts it. */
  #onClientError({ code }: NodeJS.ErrnoException, socket: Duplex): void {
    if (socket.writable && code !== "ECONNRESET") {
      const status = UNREADABLE[code ?? ""] ?? "400 Bad Request";
      this.#options.onRefused(Number.parseInt(status, 10));
      socket.write(`HTTP/1.1 ${status}\r\nConnection: close\r\n\r\n`);
    }
    socket.destroy();
  }

  async #respond(request: IncomingMessage, response: ServerResponse): Promise<void> {
    for (const [name, value] of Object.entries(PAGE_HEADERS)) response.setHeader(name, value);
    response.once("finish", () => {
      if (response.statusCode >= 400) this.#options.onRefused(response.statusCode);
    });
    try {
      const rejection = this.#options.rejectForeignOrigin(headOf(request));
      if (rejection) send(response, rejection.status, rejection.body);
      else await this.#route(request, response);
    } catch (error) {
      // Never log the request itself, because it may contain a token.
      this.#options.log(error instanceof Error ? error.message : "request failed");
      if (!response.headersSent) response.writeHead(500);
      response.end();
    }
  }

  async #route(request: IncomingMessage, response: ServerResponse): Promise<void> {
    const [path = "/"] = (request.url ?? "/").split("?", 1);
    switch (path) {
      case "/api/sign-in":
        return this.#requireMethod("POST", request, response, () => this.#signIn(request, response));
      case "/api/sign-out":
        return this.#requireMethod("POST", request, response, () => this.#signOut(request, response));
      case "/api/me":
        return this.#requireMethod("GET", request, response, () => this.#me(request, response));
      case "/metrics":
        return this.#requireMethod("GET", request, response, () => this.#metrics(request, response));
      case "/healthz":
      case "/readyz":
        return this.#requireMethod("GET", request, response, () => {
          const { status, body, type } = this.#options.health();
          send(response, status, path === "/readyz" ? "" : body, type);
        });
    }
    if (await this.#jobs(request, response)) return;
    const file = this.#options.files?.find(path);
    if (!file) return send(response, 404, "not found\n");
    return this.#requireMethod("GET", request, response, () => sendFile(request, response, file));
  }

  async #requireMethod(
    method: "GET" | "POST",
    request: IncomingMessage,
    response: ServerResponse,
    act: () => void | Promise<void>,
  ): Promise<void> {
    if (request.method === method || (method === "GET" && request.method === "HEAD")) return act();
    response.setHeader("allow", method === "GET" ? "GET, HEAD" : method);
    send(response, 405, `method not allowed; use ${method}\n`);
  }

  async #signIn(request: IncomingMessage, response: ServerResponse): Promise<void> {
    const token = tokenOf(await bodyOf(request));
    if (token === null) return send(response, 400, 'the body must be {"token": "…"}\n');
    const cookie = await this.#options.access.signIn(token, this.#options.auth);
    if (cookie === null) {
      await sleep(systemClock, INVALID_TOKEN_DELAY_MS);
      return send(
        response,
        401,
        "the token is invalid, already used or expired; restart the server to print a new login URL\n",
      );
    }
    response.setHeader("set-cookie", this.#cookie(cookie, COOKIE_VALID_MS / 1000));
    send(response, 204, "");
  }

  #signOut(request: IncomingMessage, response: ServerResponse): void {
    const cookie = readCookie(request.headers.cookie, this.#options.cookieName);
    if (cookie !== undefined) this.#options.access.signOut(cookie);
    response.setHeader("set-cookie", this.#cookie("", 0));
    send(response, 204, "");
  }

  #me(request: IncomingMessage, response: ServerResponse): void {
    const principal = this.#principalOf(request);
    if (principal) send(response, 200, JSON.stringify(principal), "application/json");
    else send(response, 401, "sign in first\n");
  }

  async #metrics(request: IncomingMessage, response: ServerResponse): Promise<void> {
    const { metrics, isOperator } = this.#options;
    if (!metrics) return send(response, 404, "metrics are disabled; start the server with `--metrics`\n");
    // Without authentication, every client can already do more than read metrics.
    const isAllowed =
      this.#options.auth.type === "none" ||
      this.#principalOf(request)?.role === "operator" ||
      (await isOperator(request.headers.authorization));
    if (!isAllowed) return send(response, 401, "metrics require an operator token\n");
    send(response, 200, metrics(), "text/plain; version=0.0.4; charset=utf-8");
  }

  async #jobs(request: IncomingMessage, response: ServerResponse): Promise<boolean> {
    const reply = await handleJobsRequest(this.#options.jobs, this.#principalOf(request), {
      method: request.method === "HEAD" ? "GET" : (request.method ?? "GET"),
      target: request.url ?? "/",
      body: () => bodyOf(request),
    });
    if (reply) send(response, reply.status, reply.body, reply.isJson ? "application/json" : undefined);
    return reply !== null;
  }

  #principalOf(request: IncomingMessage): Principal | null {
    const { access, cookieName } = this.#options;
    return access.principalOf(readCookie(request.headers.cookie, cookieName));
  }

  #cookie(value: string, maxAgeSeconds: number): string {
    return `${this.#options.cookieName}=${value}; Path=/; HttpOnly; SameSite=Strict; Max-Age=${maxAgeSeconds}`;
  }
}

function headOf(request: IncomingMessage): RequestHead {
  const headers = new Map<string, string>();
  for (const [name, values] of Object.entries(request.headersDistinct)) {
    if (values) headers.set(name, values.join(", "));
  }
  const [path = "/"] = (request.url ?? "/").split("?", 1);
  return { method: request.method ?? "GET", path, headers };
}

function send(response: ServerResponse, status: number, body: string, type = "text/plain; charset=utf-8"): void {
  if (body !== "") response.setHeader("content-type", type);
  response.setHeader("cache-control", "no-store");
  response.setHeader("content-length", Buffer.byteLength(body));
  response.writeHead(status);
  response.end(body);
}

function sendFile(request: IncomingMessage, response: ServerResponse, file: StaticFile): void {
  response.setHeader("etag", file.etag);
  response.setHeader("cache-control", "no-cache");
  if (request.headers["if-none-match"] === file.etag) {
    response.writeHead(304);
    response.end();
    return;
  }
  const gzip = file.gzip !== null && /\bgzip\b/.test(String(request.headers["accept-encoding"] ?? ""));
  const body = gzip && file.gzip ? file.gzip : file.bytes;
  response.setHeader("vary", "accept-encoding");
  if (gzip) response.setHeader("content-encoding", "gzip");
  response.setHeader("content-type", file.type);
  response.setHeader("content-length", body.length);
  response.writeHead(200);
  response.end(body);
}

async function bodyOf(request: IncomingMessage): Promise<string | null> {
  const chunks: Buffer[] = [];
  let bytes = 0;
  for await (const chunk of request) {
    if (!(chunk instanceof Buffer)) return null;
    bytes += chunk.length;
    if (bytes > MAX_BODY_BYTES) return null;
    chunks.push(chunk);
  }
  return Buffer.concat(chunks).toString("utf8");
}

function tokenOf(body: string | null): string | null {
  const token = parseObject(body ?? "")?.token;
  return typeof token === "string" && token !== "" ? token : null;
}
