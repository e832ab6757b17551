import { chmodSync, lstatSync, unlinkSync } from "node:fs";
import { createServer, type IncomingMessage, type Server, type ServerResponse } from "node:http";
import { connect, isIP, type Socket } from "node:net";
import type { Duplex, Readable, Writable } from "node:stream";
import { acceptKey } from "../connection/accept-key.ts";
import { plainByteCodec } from "../connection/byte-codec.ts";
import { LineConnection } from "../connection/line-connection.ts";
import { NativeSocket } from "../connection/native-socket.ts";
import { StreamSocket } from "../connection/stream-socket.ts";
import { WebSocketConnection } from "../connection/websocket-connection.ts";
import type { WireTuning } from "../connection/wire-tuning.ts";
import { refusal, type WebSocketAuth } from "./auth.ts";
import type { ExecServer } from "./exec-server.ts";
import { ExecServerTransport, isLoopback } from "./transport.ts";

export interface ListenOptions {
  auth?: WebSocketAuth;
  tuning?: WireTuning;
}

/** A server that takes connections until it is closed. */
export interface Listening {
  /** Where clients connect, with the real port. */
  readonly url: string;
  /** Stops accepting; connections that are open stay. Resolves once they too are gone. */
  close(): Promise<void>;
  /** Drops what is left of plain HTTP, such as a request whose head never ends. */
  drop(): void;
}

/** Only the owner may connect to a unix socket. */
const UNIX_SOCKET_MODE = 0o600;

/** WebSocket and HTTP on a TCP port or a unix socket. Rejects when the address cannot be used. */
export async function listen(
  server: ExecServer,
  transport: Extract<ExecServerTransport, { type: "websocket" | "unix" }>,
  options: ListenOptions = {},
): Promise<Listening> {
  const auth = options.auth ?? { type: "none" };
  if (transport.type === "websocket" && auth.type === "none" && !isLoopback(transport.host)) {
    throw new Error(
      `refusing to listen on ${ExecServerTransport.toUrl(transport)} without authentication: anyone who can reach it could run commands; add \`--ws-auth capability-token --ws-token-file PATH\`, or listen on a loopback address`,
    );
  }
  const http = createServer((request, response) => answerHttp(server, request, response));
  // A socket that never finishes its request head must not stay for ever.
  http.headersTimeout = 10_000;
  http.on("upgrade", (request: IncomingMessage, socket: Duplex, head: Buffer) => {
    socket.on("error", () => socket.destroy());
    const problem = refuseUpgrade(server, auth, request);
    if (problem) return refuse(socket, problem);
    accept(server, request, socket, head, options.tuning);
  });
  const closed =
    transport.type === "unix" ? await bindUnix(http, transport.path) : await bindTcp(http, transport);
  return { url: closed.url, close: () => closeServer(http), drop: () => http.closeAllConnections() };
}

/** One connection over a pair of streams; resolves when its input has ended. */
export function serveStdio(
  server: ExecServer,
  input: Readable,
  output: Writable,
  tuning?: WireTuning,
): Promise<void> {
  const { maxMessageBytes } = server.config;
  return server.accept(
    new LineConnection(input, output, {
      label: "exec-server stdio",
      maxMessageBytes,
      ...tuning,
    }),
  );
}

async function bindTcp(
  http: Server,
  transport: Extract<ExecServerTransport, { type: "websocket" }>,
): Promise<{ url: string }> {
  await listening(http, () => http.listen({ host: transport.host, port: transport.port, backlog: 1024 }));
  const address = http.address();
  const port = typeof address === "object" && address !== null ? address.port : transport.port;
  return { url: ExecServerTransport.toUrl({ ...transport, port }) };
}

async function bindUnix(http: Server, path: string): Promise<{ url: string }> {
  await removeStaleSocket(path);
  // Nobody else may connect in the moment between bind and chmod.
  const mask = process.umask(0o177);
  try {
    await listening(http, () => http.listen({ path, backlog: 1024 }));
    chmodSync(path, UNIX_SOCKET_MODE);
  } finally {
    process.umask(mask);
  }
  return { url: ExecServerTransport.toUrl({ type: "unix", path }) };
}

/** A socket file whose server is gone is in the way; one that answers, or a file that is no socket, is not ours to remove. */
async function removeStaleSocket(path: string): Promise<void> {
  try {
    if (!lstatSync(path).isSocket())
      throw new Error(`cannot listen on unix://${path}: a file that is no socket is there`);
  } catch (error) {
    if (error instanceof Error && "code" in error && error.code === "ENOENT") return;
    throw error;
  }
  const answers = await new Promise<boolean>((resolve) => {
    const probe = connect(path);
    probe.on("connect", () => {
      probe.destroy();
      resolve(true);
    });
    probe.on("error", () => resolve(false));
  });
  if (answers) throw new Error(`cannot listen on unix://${path}: another server is listening there`);
  unlinkSync(path);
}

function listening(http: Server, start: () => void): Promise<void> {
  return new Promise((resolve, reject) => {
    http.once("error", reject);
    http.once("listening", () => {
      http.removeListener("error", reject);
      resolve();
    });
    start();
  });
}

function closeServer(http: Server): Promise<void> {
  return new Promise((resolve) => {
    http.close(() => resolve());
    http.closeIdleConnections();
  });
}

interface HttpRefusal {
  status: number;
  reason: string;
  body: string;
}

const REASONS: Record<number, string> = {
  400: "Bad Request",
  401: "Unauthorized",
  403: "Forbidden",
  404: "Not Found",
  405: "Method Not Allowed",
  503: "Service Unavailable",
};

const httpRefusal = (status: number, body = ""): HttpRefusal => ({
  status,
  reason: REASONS[status] ?? "",
  body,
});

function refuseUpgrade(
  server: ExecServer,
  auth: WebSocketAuth,
  request: IncomingMessage,
): HttpRefusal | null {
  if (isForeignOrigin(request)) return httpRefusal(403);
  if (pathOf(request) !== "/") return httpRefusal(404);
  if (request.method !== "GET") return httpRefusal(405, "Request method must be `GET`");
  if (request.headers.upgrade?.toLowerCase() !== "websocket") {
    return httpRefusal(400, "`Upgrade` header did not include 'websocket'");
  }
  if (request.headers["sec-websocket-version"] !== "13") {
    return httpRefusal(400, "`Sec-WebSocket-Version` header did not include '13'");
  }
  if (!request.headers["sec-websocket-key"]) return httpRefusal(400, "`Sec-WebSocket-Key` header missing");
  const unauthorized = refusal(auth, request.headers.authorization, Date.now());
  if (unauthorized !== null) return httpRefusal(401, unauthorized);
  const { maxConnections } = server.config;
  if (server.connectionCount >= maxConnections) {
    return httpRefusal(503, `too many connections: this server takes ${maxConnections} at once`);
  }
  return null;
}

function refuse(socket: Duplex, { status, reason, body }: HttpRefusal): void {
  const type = body === "" ? "" : "content-type: text/plain; charset=utf-8\r\n";
  socket.end(
    `HTTP/1.1 ${status} ${reason}\r\n${type}content-length: ${Buffer.byteLength(body)}\r\nconnection: close\r\n\r\n${body}`,
  );
}

function accept(
  server: ExecServer,
  request: IncomingMessage,
  stream: Duplex,
  head: Buffer,
  tuning: WireTuning = {},
): void {
  const key = request.headers["sec-websocket-key"] ?? "";
  request.socket.setNoDelay(true);
  request.socket.setTimeout(0);
  const { maxMessageBytes } = server.config;
  const label = `exec-server websocket ${peerName(request.socket)}`;
  const codec = tuning.codec ?? plainByteCodec;
  const socket =
    (tuning.sockets && NativeSocket.adopt(tuning.sockets, request.socket, maxMessageBytes, head)) ??
    new StreamSocket(stream, "server", codec, head);
  socket.sendFrame(
    Buffer.from(
      `HTTP/1.1 101 Switching Protocols\r\nconnection: upgrade\r\nupgrade: websocket\r\nsec-websocket-accept: ${acceptKey(key)}\r\n\r\n`,
    ),
  );
  const connection = new WebSocketConnection(socket, {
    label,
    role: "server",
    maxMessageBytes,
    keepAlive: true,
    codec,
  });
  // The server's own task set owns the run and reports its failure.
  void server.accept(connection);
}

function answerHttp(server: ExecServer, request: IncomingMessage, response: ServerResponse): void {
  const { status, body, type, allow } = httpAnswer(server, request);
  response.writeHead(status, {
    ...(type && { "content-type": type }),
    ...(allow && { allow }),
    "content-length": Buffer.byteLength(body),
  });
  response.end(request.method === "HEAD" ? undefined : body);
}

interface HttpAnswer {
  status: number;
  body: string;
  type?: string;
  allow?: string;
}

function httpAnswer(server: ExecServer, request: IncomingMessage): HttpAnswer {
  if (isForeignOrigin(request)) return { status: 403, body: "" };
  const path = pathOf(request);
  const looking = request.method === "GET" || request.method === "HEAD";
  const text = "text/plain; charset=utf-8";
  switch (path) {
    case "/readyz":
      return looking ? { status: 200, body: "" } : { status: 405, body: "", allow: "GET,HEAD" };
    case "/healthz":
      return looking ? health(server) : { status: 405, body: "", allow: "GET,HEAD" };
    case "/":
      return looking
        ? { status: 400, body: "Connection header did not include 'upgrade'", type: text }
        : { status: 405, body: "Request method must be `GET`", type: text };
    default:
      return { status: 404, body: "" };
  }
}

/** Degraded is not dead: it is told, and still 200. */
function health(server: ExecServer): HttpAnswer {
  const degraded = server.degraded();
  const status = degraded.length === 0 ? "ok" : "degraded";
  const { connectionCount: connections, sessionCount: sessions } = server;
  return {
    status: 200,
    body: `${JSON.stringify({ status, degraded, connections, sessions })}\n`,
    type: "application/json",
  };
}

/**
 * A page of another site must not reach a server on this machine. The server's own page may: its origin is the host it
 * was asked by, and that host is an address or localhost, not a name somebody else can point here.
 */
function isForeignOrigin(request: IncomingMessage): boolean {
  const { origin, host } = request.headers;
  if (origin === undefined) return false;
  if (host === undefined || origin !== `http://${host}`) return true;
  const name = host.replace(/:\d+$/, "").replace(/^\[|\]$/g, "");
  return name !== "localhost" && isIP(name) === 0;
}

function pathOf(request: IncomingMessage): string {
  return (request.url ?? "/").split("?", 1)[0] ?? "/";
}

function peerName(socket: Socket): string {
  return socket.remoteAddress === undefined ? "unix" : `${socket.remoteAddress}:${socket.remotePort}`;
}
