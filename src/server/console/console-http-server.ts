import type { IncomingMessage, Server, ServerResponse } from "node:http";
import type { Socket } from "node:net";
import type { Duplex } from "node:stream";
import { sleep, systemClock } from "../../async/clock.ts";
import { type WebSocketAuth, WRONG_TOKEN_DELAY_MS } from "../auth/websocket-auth.ts";
import type { RequestHead } from "../listen/http-request-head.ts";
import type { Principal } from "../principal.ts";
import { COOKIE_VALID_MS, cookieOf, type WebAccess } from "./console-auth.ts";
import { type AskJobs, answerJobs } from "./jobs-http-api.ts";
import type { WebFile, WebFiles } from "./static-files.ts";

export interface WebServerOptions {
  access: WebAccess;
  auth: WebSocketAuth;
  /** Null: there is no page. */
  files: WebFiles | null;
  cookieName: string;
  /** Tells of fan-out jobs; absent: nobody here knows any. */
  jobs?: AskJobs | undefined;
  /** Prometheus text; absent: there is no `/metrics`. */
  metrics?: (() => string) | undefined;
  /** Whether the bearer of this `authorization` header is an operator. */
  isOperator: (authorization: string | undefined) => Promise<boolean>;
  /** Why a request is refused for the name or the page it comes by; null: it is not. Asked for each request of a connection. */
  refuse: (head: RequestHead) => { status: number; body: string } | null;
  health: () => { status: number; body: string; type?: string };
  /** A WebSocket that is asked for on a connection which carried requests before. */
  upgrade: (head: RequestHead, socket: Socket, rest: Buffer) => void;
  /** A request was answered with a status of 400 or more. */
  onRefused: (status: number) => void;
  /** Absent: the usual ones. */
  timeouts?: HttpTimeouts | undefined;
  log: (message: string) => void;
}

/** How long a connection that carries HTTP has for what. */
export interface HttpTimeouts {
  /** For the head of a request, from its first byte on. */
  headMs: number;
  /** For a whole request. */
  requestMs: number;
  /** Between an answer and the next request. */
  keepAliveMs: number;
  /** Without a byte either way while an answer is being made or taken. */
  stalledMs: number;
  /** Between two looks for requests that take too long. */
  lookEveryMs: number;
}

export const HTTP_TIMEOUTS: HttpTimeouts = {
  headMs: 10_000,
  requestMs: 30_000,
  keepAliveMs: 5_000,
  stalledMs: 60_000,
  lookEveryMs: 5_000,
};
const UNREADABLE: Readonly<Record<string, string>> = {
  HPE_HEADER_OVERFLOW: "431 Request Header Fields Too Large",
  HPE_CHUNK_EXTENSIONS_OVERFLOW: "413 Payload Too Large",
  ERR_HTTP_REQUEST_TIMEOUT: "408 Request Timeout",
};
/** A token and little else. */
const MAX_BODY_BYTES = 16 * 1024;

/**
 * Nothing from another host, nothing inline but the styles that the terminal makes for itself, nothing in a frame. A page
 * that shows what commands print must not run any of it.
 */
const PAGE_HEADERS = {
  "content-security-policy":
    "default-src 'none'; script-src 'self'; style-src 'self' 'unsafe-inline'; img-src 'self' data:; font-src 'self'; connect-src 'self'; manifest-src 'self'; base-uri 'none'; form-action 'none'; frame-ancestors 'none'",
  "x-content-type-options": "nosniff",
  "referrer-policy": "no-referrer",
  "cross-origin-opener-policy": "same-origin",
  "cross-origin-resource-policy": "same-origin",
} as const;

/** The web console's HTTP, by node:http. Connections are handed to it once their first request is no WebSocket. */
export class WebServer {
  readonly #options: WebServerOptions;
  readonly #http: Server;

  constructor(options: WebServerOptions) {
    this.#options = options;
    const { timeouts = HTTP_TIMEOUTS } = options;
    const { createServer } = process.getBuiltinModule("node:http");
    this.#http = createServer(
      {
        headersTimeout: timeouts.headMs,
        requestTimeout: timeouts.requestMs,
        keepAliveTimeout: timeouts.keepAliveMs,
        // Node adds a second to that time unless told otherwise.
        keepAliveTimeoutBuffer: 0,
        connectionsCheckingInterval: timeouts.lookEveryMs,
        maxHeaderSize: 16 * 1024,
      },
      (request, response) => void this.#answer(request, response),
    );
    this.#http.timeout = timeouts.stalledMs;
    // It never listens itself, and would not look after requests that take too long before it is told that it does.
    this.#http.emit("listening");
    this.#http.on("clientError", (error: NodeJS.ErrnoException, socket) => this.#unreadable(error, socket));
    this.#http.on("upgrade", (request: IncomingMessage, socket: Duplex, rest: Buffer) => {
      // node:http gives what it was given: a socket of node:net.
      options.upgrade(headOf(request), socket as Socket, rest);
    });
  }

  /** Serves a connection whose first bytes are to be read yet. */
  serve(socket: Socket): void {
    this.#http.emit("connection", socket);
  }

  close(): void {
    this.#http.closeAllConnections();
    this.#http.close();
  }

  /** What is no request, or takes too long: answered as node:http does, and counted. */
  #unreadable({ code }: NodeJS.ErrnoException, socket: Duplex): void {
    if (socket.writable && code !== "ECONNRESET") {
      const status = UNREADABLE[code ?? ""] ?? "400 Bad Request";
      this.#options.onRefused(Number.parseInt(status, 10));
      socket.write(`HTTP/1.1 ${status}\r\nConnection: close\r\n\r\n`);
    }
    socket.destroy();
  }

  async #answer(request: IncomingMessage, response: ServerResponse): Promise<void> {
    for (const [name, value] of Object.entries(PAGE_HEADERS)) response.setHeader(name, value);
    response.once("finish", () => {
      if (response.statusCode >= 400) this.#options.onRefused(response.statusCode);
    });
    try {
      const refused = this.#options.refuse(headOf(request));
      if (refused) send(response, refused.status, refused.body);
      else await this.#route(request, response);
    } catch (error) {
      // The request's text is nobody's business, and may hold a token.
      this.#options.log(error instanceof Error ? error.message : "a request failed");
      if (!response.headersSent) response.writeHead(500);
      response.end();
    }
  }

  async #route(request: IncomingMessage, response: ServerResponse): Promise<void> {
    const [path = "/"] = (request.url ?? "/").split("?", 1);
    switch (path) {
      case "/api/sign-in":
        return this.#only("POST", request, response, () => this.#signIn(request, response));
      case "/api/sign-out":
        return this.#only("POST", request, response, () => this.#signOut(request, response));
      case "/api/me":
        return this.#only("GET", request, response, () => this.#me(request, response));
      case "/metrics":
        return this.#only("GET", request, response, () => this.#metrics(request, response));
      case "/healthz":
      case "/readyz":
        return this.#only("GET", request, response, () => {
          const { status, body, type } = this.#options.health();
          send(response, status, path === "/readyz" ? "" : body, type);
        });
    }
    if (await this.#jobs(request, response)) return;
    const file = this.#options.files?.find(path);
    if (!file) return send(response, 404, "there is no such page\n");
    return this.#only("GET", request, response, () => sendFile(request, response, file));
  }

  async #only(
    method: "GET" | "POST",
    request: IncomingMessage,
    response: ServerResponse,
    act: () => void | Promise<void>,
  ): Promise<void> {
    if (request.method === method || (method === "GET" && request.method === "HEAD")) return act();
    response.setHeader("allow", method === "GET" ? "GET, HEAD" : method);
    send(response, 405, `only ${method} is answered here\n`);
  }

  async #signIn(request: IncomingMessage, response: ServerResponse): Promise<void> {
    const token = tokenOf(await bodyOf(request));
    if (token === null) return send(response, 400, 'the body has to be {"token": "…"}\n');
    const cookie = await this.#options.access.signIn(token, this.#options.auth);
    if (cookie === null) {
      await sleep(systemClock, WRONG_TOKEN_DELAY_MS);
      return send(
        response,
        401,
        "this token is wrong, was used before or is too old; the server prints a new address when it starts\n",
      );
    }
    response.setHeader("set-cookie", this.#cookie(cookie, COOKIE_VALID_MS / 1000));
    send(response, 204, "");
  }

  #signOut(request: IncomingMessage, response: ServerResponse): void {
    const cookie = cookieOf(request.headers.cookie, this.#options.cookieName);
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
    if (!metrics) return send(response, 404, "start the server with `--metrics` to have figures here\n");
    // Where nobody is asked who they are, everybody may already do more than look.
    const isAllowed =
      this.#options.auth.type === "none" ||
      this.#principalOf(request)?.role === "operator" ||
      (await isOperator(request.headers.authorization));
    if (!isAllowed) return send(response, 401, "the figures are for operators\n");
    send(response, 200, metrics(), "text/plain; version=0.0.4; charset=utf-8");
  }

  async #jobs(request: IncomingMessage, response: ServerResponse): Promise<boolean> {
    const reply = await answerJobs(this.#options.jobs, this.#principalOf(request), {
      method: request.method === "HEAD" ? "GET" : (request.method ?? "GET"),
      target: request.url ?? "/",
      body: () => bodyOf(request),
    });
    if (reply) send(response, reply.status, reply.body, reply.isJson ? "application/json" : undefined);
    return reply !== null;
  }

  #principalOf(request: IncomingMessage): Principal | null {
    const { access, cookieName } = this.#options;
    return access.principalOf(cookieOf(request.headers.cookie, cookieName));
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

function send(
  response: ServerResponse,
  status: number,
  body: string,
  type = "text/plain; charset=utf-8",
): void {
  if (body !== "") response.setHeader("content-type", type);
  response.setHeader("cache-control", "no-store");
  response.setHeader("content-length", Buffer.byteLength(body));
  response.writeHead(status);
  response.end(body);
}

function sendFile(request: IncomingMessage, response: ServerResponse, file: WebFile): void {
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
  const parts: Buffer[] = [];
  let bytes = 0;
  for await (const part of request) {
    if (!(part instanceof Buffer)) return null;
    bytes += part.length;
    if (bytes > MAX_BODY_BYTES) return null;
    parts.push(part);
  }
  return Buffer.concat(parts).toString("utf8");
}

function tokenOf(body: string | null): string | null {
  if (body === null) return null;
  try {
    const parsed: unknown = JSON.parse(body);
    if (typeof parsed !== "object" || parsed === null || !("token" in parsed)) return null;
    return typeof parsed.token === "string" && parsed.token !== "" ? parsed.token : null;
  } catch {
    return null;
  }
}
