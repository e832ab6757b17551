import type { IncomingMessage, Server, ServerResponse } from "node:http";
import type { Socket } from "node:net";
import { blockedResponse } from "./blocked-response.ts";
import { readConnectHead } from "./connect-head.ts";
import type { ProcessCredentials } from "./credentials/process-credentials.ts";
import type { TlsTerminator } from "./credentials/tls-terminator.ts";
import type { HeadDeadlines } from "./head-deadlines.ts";
import { forwardRequest, requirePlainBody } from "./http-forwarder.ts";
import { BadTargetError, type HttpTarget, parseConnectTarget, parseHttpTarget } from "./http-target.ts";
import { type Outgoing, OwnListenerError } from "./outgoing.ts";
import { createProxyServer } from "./proxy-server.ts";
import type { Blocked, ProxiedRequest, RequestJudge } from "./request-judge.ts";
import { joinSockets } from "./tunnel.ts";

export interface HttpListenerDeps {
  judge: RequestJudge;
  outgoing: Outgoing;
  deadlines: HeadDeadlines;
  /** Null for a process without credentials. */
  credentials: ProcessCredentials | null;
  terminator: TlsTerminator | null;
}

/** The HTTP/1.1 side of a network proxy: forwards requests, and opens tunnels for CONNECT. */
export class HttpListener {
  readonly #deps: HttpListenerDeps;
  readonly #server: Server;
  /** Requests in progress per connection: a client may send the next one before the response. */
  readonly #open = new Map<Socket, number>();

  constructor(deps: HttpListenerDeps) {
    this.#deps = deps;
    this.#server = createProxyServer((request, response) => void this.#onRequest(request, response));
    this.#server.on("connect", (request: IncomingMessage, socket: Socket, head: Buffer) =>
      this.#onConnect(request.url ?? "", socket, head),
    );
  }

  /** Serves an accepted connection. */
  accept(socket: Socket): void {
    this.#deps.deadlines.start(socket);
    const onData = (chunk: Buffer) => {
      socket.removeListener("data", onData);
      socket.removeListener("end", onEnd);
      socket.pause();
      const head = readConnectHead(chunk);
      if (head !== null) {
        this.#onConnect(head.target, socket, chunk.subarray(head.length));
        return;
      }
      socket.unshift(chunk);
      this.#server.emit("connection", socket);
      socket.resume();
    };
    const onEnd = () => socket.destroy();
    socket.on("data", onData);
    socket.on("end", onEnd);
  }

  async #onRequest(request: IncomingMessage, response: ServerResponse): Promise<void> {
    const { judge, outgoing, deadlines, credentials } = this.#deps;
    const { socket } = request;
    deadlines.complete(socket);
    this.#open.set(socket, (this.#open.get(socket) ?? 0) + 1);
    const ended = new AbortController();
    response.once("close", () => {
      ended.abort();
      this.#onResponseEnd(socket);
    });
    const proxied: ProxiedRequest = {
      ...{ protocol: "http", host: "unix-socket", port: 0 },
      method: request.method ?? "GET",
      client: clientOf(socket),
    };
    try {
      if (request.headers["x-unix-socket"] !== undefined) {
        judge.block(proxied, "unix_socket_unsupported", "proxy_state");
        sendText(response, 501, "unix sockets unsupported");
        return;
      }
      const target: HttpTarget = parseHttpTarget(request);
      requirePlainBody(request);
      const allowed = await judge.judge({ ...proxied, host: target.host, port: target.port }, ended.signal);
      if (ended.signal.aborted) return;
      if (!allowed.isAllowed) {
        sendBlocked(response, allowed);
        return;
      }
      const isEncrypted = target.scheme === "https";
      const secrets = (await credentials?.open(allowed.host, { isEncrypted })) ?? null;
      await forwardRequest(outgoing, target, allowed, { request, response, signal: ended.signal }, secrets);
    } catch (error) {
      if (response.headersSent || ended.signal.aborted) response.destroy();
      else if (error instanceof OwnListenerError) sendBlocked(response, ownListener(error));
      else if (error instanceof BadTargetError) {
        // The parser and the client may disagree about the end of this request.
        response.shouldKeepAlive = false;
        sendText(response, 400, error.message);
      } else sendText(response, 502, "upstream failure");
    }
  }

  /** The connection may send another request. */
  #onResponseEnd(socket: Socket): void {
    const open = (this.#open.get(socket) ?? 1) - 1;
    if (open > 0) {
      this.#open.set(socket, open);
      return;
    }
    this.#open.delete(socket);
    if (!socket.destroyed) this.#deps.deadlines.start(socket);
  }

  #onConnect(authority: string, socket: Socket, head: Buffer): void {
    this.#deps.deadlines.complete(socket);
    socket.on("error", () => undefined);
    if (head.length > 0) socket.unshift(head);
    void this.#tunnel(authority, socket).catch(() => socket.destroy());
  }

  async #tunnel(authority: string, socket: Socket): Promise<void> {
    const { judge, outgoing, terminator } = this.#deps;
    const ended = new AbortController();
    socket.once("close", () => ended.abort());
    let target: { host: string; port: number };
    try {
      target = parseConnectTarget(authority);
    } catch (error) {
      if (!(error instanceof BadTargetError)) throw error;
      endWith(socket, "400 Bad Request", { "content-type": "text/plain" }, error.message);
      return;
    }
    const proxied: ProxiedRequest = {
      ...{ protocol: "https_connect", ...target },
      method: "CONNECT",
      client: clientOf(socket),
    };
    const judged = await judge.judge(proxied, ended.signal);
    if (!judged.isAllowed) {
      const { headers, body } = blockedResponse(judged, "https_connect");
      endWith(socket, "403 Forbidden", headers, body);
      return;
    }
    // Before the connection to the destination exists, as Codex does.
    socket.write(`HTTP/1.1 200 OK\r\ndate: ${new Date().toUTCString()}\r\n\r\n`);
    if (terminator?.covers(judged.host)) await terminator.serve(socket, judged, ended.signal);
    else joinSockets(socket, await outgoing.tunnel(judged, ended.signal));
  }
}

function clientOf({ remoteAddress = "127.0.0.1", remotePort = 0 }: Socket): string {
  return `${remoteAddress}:${remotePort}`;
}

function sendBlocked(response: ServerResponse, blocked: Blocked): void {
  const { headers, body } = blockedResponse(blocked, "http");
  response.writeHead(403, { ...headers, "content-length": Buffer.byteLength(body) }).end(body);
}

/** The destination is known to be local only after its lookup. */
function ownListener({ host, port }: OwnListenerError): Blocked {
  return { isAllowed: false, host, port, reason: "not_allowed_local", decision: "deny", source: "baseline_policy" };
}

function sendText(response: ServerResponse, status: number, text: string): void {
  response.writeHead(status, { "content-type": "text/plain", "content-length": Buffer.byteLength(text) }).end(text);
}

/** Sends a complete response and closes the connection. */
function endWith(socket: Socket, status: string, headers: Record<string, string>, body: string): void {
  const lines = Object.entries(headers).map(([name, value]) => `${name}: ${value}\r\n`);
  const length = `content-length: ${Buffer.byteLength(body)}\r\n`;
  socket.end(`HTTP/1.1 ${status}\r\n${lines.join("")}${length}date: ${new Date().toUTCString()}\r\n\r\n${body}`);
}
