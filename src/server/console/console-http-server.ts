import type { IncomingMessage, Server, ServerResponse } from "node:http";
import type { Socket } from "node:net";
import type { Duplex } from "node:stream";
import { errorMessage } from "../../base/error-message.ts";
import type { AuditLog } from "../audit/audit-log.ts";
import { auditJobs, auditSignIn } from "../audit/audited-console.ts";
import type { Authenticator } from "../auth/authenticator.ts";
import type { Principal } from "../auth/principal.ts";
import type { RequestHead } from "../listen/http-request-head.ts";
import { type ConsoleAuth, consoleSecretIn } from "./console-auth.ts";
import { handleJobsRequest, type JobsQueryHandler } from "./jobs-http-api.ts";
import { type ApiResponse, handleSignInRequest, type SignInRequest } from "./sign-in-http-api.ts";
import type { StaticFile, StaticFiles } from "./static-files.ts";

export interface ConsoleHttpOptions {
  access: ConsoleAuth;
  auth: Authenticator;
  /** Files of the console, or null if there is no console page. */
  files: StaticFiles | null;
  /** Handles queries about fan-out jobs. If absent, the server has no jobs. */
  jobs?: JobsQueryHandler | undefined;
  /** Returns Prometheus text. If absent, there is no `/metrics`. */
  metrics?: (() => string) | undefined;
  /** Returns the principal of the token in an `authorization` header, or null. */
  authorize: (authorization: string | undefined) => Promise<Principal | null>;
  /** Returns the rejection if the host or origin of a request is not allowed, or null. Called for each request. */
  rejectForeignOrigin: (head: RequestHead) => { status: number; body: string } | null;
  health: () => { status: number; body: string; type?: string };
  /** Called for a WebSocket upgrade on a kept-alive connection. */
  upgrade: (head: RequestHead, socket: Socket, rest: Buffer) => void;
  /** Called for every response with a status of 400 or more. */
  onRefused: (status: number) => void;
  /** Default: `HTTP_TIMEOUTS`. */
  timeouts?: HttpTimeouts | undefined;
  /** Records sign-ins, sign-outs and retries of jobs. If absent, the server has no audit log. */
  audit?: AuditLog | undefined;
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
/** Status of a request that node:http cannot read, by its error code. Default: 400. */
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
      this.#options.log(errorMessage(error));
      if (!response.headersSent) response.writeHead(500);
      response.end();
    }
  }

  async #route(request: IncomingMessage, response: ServerResponse): Promise<void> {
    const [path = "/"] = (request.url ?? "/").split("?", 1);
    switch (path) {
      case "/metrics":
        return this.#requireGet(request, response, () => this.#metrics(request, response));
      case "/healthz":
      case "/readyz":
        return this.#requireGet(request, response, () => {
          const { status, body, type } = this.#options.health();
          send(response, status, path === "/readyz" ? "" : body, type);
        });
    }
    const signedIn = this.#principalOf(request);
    if (signedIn) this.#cutAtSessionEnd(request, response);
    const reply = (await this.#signIn(request, path)) ?? (await this.#jobs(request));
    if (reply) return send(response, reply.status, reply.body, reply.isJson ? "application/json" : undefined);
    const file = this.#options.files?.find(path);
    if (!file) return send(response, 404, "not found\n");
    return this.#requireGet(request, response, () => sendFile(request, response, file));
  }

  async #requireGet(
    request: IncomingMessage,
    response: ServerResponse,
    act: () => void | Promise<void>,
  ): Promise<void> {
    if (methodOf(request) === "GET") return act();
    response.setHeader("allow", "GET, HEAD");
    send(response, 405, "method not allowed; use GET\n");
  }

  #signIn(request: IncomingMessage, path: string): Promise<ApiResponse | null> {
    const { access, auth, audit } = this.#options;
    const { authorization, "user-agent": userAgent } = request.headers;
    const body = () => bodyOf(request);
    const call: SignInRequest = { method: methodOf(request), path, authorization, userAgent, body };
    return auditSignIn(audit, access, call, () => handleSignInRequest(access, auth, call));
  }

  async #metrics(request: IncomingMessage, response: ServerResponse): Promise<void> {
    const { metrics, authorize } = this.#options;
    if (!metrics) return send(response, 404, "metrics are disabled; start the server with `--metrics`\n");
    // Without authentication, every client can already do more than read metrics.
    const principal = this.#principalOf(request) ?? (await authorize(request.headers.authorization));
    const isAllowed = this.#options.auth.type === "none" || principal?.role === "operator";
    if (principal) cutAtCredentialEnd(response, principal);
    if (!isAllowed) return send(response, 401, "metrics require an operator token\n");
    send(response, 200, metrics(), "text/plain; version=0.0.4; charset=utf-8");
  }

  #jobs(request: IncomingMessage): Promise<ApiResponse | null> {
    const { jobs, audit } = this.#options;
    const principal = this.#principalOf(request);
    const call = { method: methodOf(request), target: request.url ?? "/", body: () => bodyOf(request) };
    return auditJobs(audit, principal, call, () => handleJobsRequest(jobs, principal, call));
  }

  /** Ends a response that is still being sent when its console session ends. */
  #cutAtSessionEnd(request: IncomingMessage, response: ServerResponse): void {
    const secret = consoleSecretIn(request.headers.authorization);
    // A sign-out ends the session of the request, and its response must still arrive.
    if (secret === undefined || methodOf(request) !== "GET") return;
    const stop = this.#options.access.onEnd(secret, () => response.destroy());
    if (stop) response.once("close", stop);
  }

  #principalOf(request: IncomingMessage): Principal | null {
    return this.#options.access.principalOf(consoleSecretIn(request.headers.authorization));
  }
}

/** Ends a response that is still being sent when the token of its request ends. */
function cutAtCredentialEnd(response: ServerResponse, { credential }: Principal): void {
  const stop = credential?.onEnd(() => response.destroy());
  if (stop) response.once("close", stop);
}

/** HEAD counts as GET. */
function methodOf({ method = "GET" }: IncomingMessage): string {
  return method === "HEAD" ? "GET" : method;
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
