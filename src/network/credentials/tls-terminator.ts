import type { ClientRequest, IncomingMessage, ServerResponse } from "node:http";
import { Agent, request as sendRequest } from "node:http";
import type { Socket } from "node:net";
import type { Duplex } from "node:stream";
import { type SecureContext, TLSSocket } from "node:tls";
import type { HeadDeadlines } from "../head-deadlines.ts";
import { relay, requestHeaders, requirePlainBody } from "../http-forwarder.ts";
import { BadTargetError, type HttpTarget, hostHeader, parseHttpTarget } from "../http-target.ts";
import type { Outgoing } from "../outgoing.ts";
import { createProxyServer } from "../proxy-server.ts";
import type { Allowed } from "../request-judge.ts";
import { joinSockets } from "../tunnel.ts";
import type { ProcessCredentials } from "./process-credentials.ts";
import type { RequestSecrets } from "./request-secrets.ts";

export interface TlsTerminatorDeps {
  credentials: ProcessCredentials;
  /** Returns a TLS context with a certificate for this host. */
  contextFor: (host: string) => SecureContext;
  /** Verifies the destinations. */
  originContext: SecureContext;
  outgoing: Outgoing;
  deadlines: HeadDeadlines;
}

/** A decrypted connection of a process to one host. */
interface TerminatedConnection {
  allowed: Allowed;
  secrets: RequestSecrets;
  /** Connects to the host, and keeps one connection alive. */
  agent: Agent;
  signal: AbortSignal;
}

/** First byte of a TLS handshake. */
const TLS_HANDSHAKE = 0x16;

/**
 * Terminates TLS for the hosts of credentials: decrypts requests, puts the secrets into them, and sends them over a verified
 * TLS connection. It speaks HTTP/1.1 only, without upgrades: after an upgrade it could not remove a secret from the messages
 * of the destination.
 */
export class TlsTerminator {
  readonly #deps: TlsTerminatorDeps;
  readonly #server = createProxyServer((request, response) => this.#onRequest(request, response));
  readonly #connections = new WeakMap<Duplex, TerminatedConnection>();

  constructor(deps: TlsTerminatorDeps) {
    this.#deps = deps;
  }

  /** Reports whether tunnels to this host are terminated. */
  covers(host: string): boolean {
    return this.#deps.credentials.covers(host);
  }

  /** Serves a tunnel of the process. Other protocols than TLS pass unchanged. Rejects if a secret cannot be read. */
  async serve(socket: Socket, allowed: Allowed, signal: AbortSignal): Promise<void> {
    const { credentials, contextFor, originContext, outgoing, deadlines } = this.#deps;
    deadlines.start(socket);
    const isTls = await startsWithTls(socket);
    deadlines.complete(socket);
    if (!isTls) {
      joinSockets(socket, await outgoing.tunnel(allowed, signal));
      return;
    }
    const secrets = await credentials.open(allowed.host, { isEncrypted: true });
    if (secrets === null || socket.destroyed) {
      socket.destroy();
      return;
    }
    const secure = new TLSSocket(socket, {
      isServer: true,
      secureContext: contextFor(allowed.host),
      ALPNProtocols: ["http/1.1"],
    });
    secure.on("error", () => secure.destroy());
    const agent = new Agent({ keepAlive: true, maxSockets: 1, maxFreeSockets: 1 });
    agent.createConnection = (_options, onCreated) => {
      outgoing.tls(allowed, signal, originContext).then(
        (target) => onCreated?.(null, target),
        (error: Error) => onCreated?.(error, socket),
      );
      return undefined;
    };
    secure.once("close", () => {
      agent.destroy();
      deadlines.complete(secure);
      socket.destroy();
    });
    this.#connections.set(secure, { allowed, secrets, agent, signal });
    deadlines.start(secure);
    this.#server.emit("connection", secure);
  }

  #onRequest(request: IncomingMessage, response: ServerResponse): void {
    const { deadlines } = this.#deps;
    const { socket } = request;
    deadlines.complete(socket);
    const ended = new AbortController();
    response.once("close", () => {
      ended.abort();
      if (!socket.destroyed) deadlines.start(socket);
    });
    void this.#forward(request, response, ended.signal);
  }

  async #forward(request: IncomingMessage, response: ServerResponse, signal: AbortSignal): Promise<void> {
    try {
      const connection = this.#connectionOf(request);
      const sent = send(request, connection);
      await relay(sent, { request, response, signal }, connection.secrets);
    } catch (error) {
      if (response.headersSent || response.destroyed) response.destroy();
      else sendError(response, error);
    }
  }

  /** Rejects a request that names another host than its connection: servers of many hosts decide by this name. */
  #connectionOf(request: IncomingMessage): TerminatedConnection & { target: HttpTarget } {
    const connection = this.#connections.get(request.socket);
    if (!connection) throw new Error("the connection is unknown");
    const target = parseHttpTarget(request, "https");
    requirePlainBody(request);
    const { host, port } = connection.allowed;
    if (target.scheme !== "https" || target.host.toLowerCase() !== host || target.port !== port)
      throw new BadTargetError("Host header does not match the host of the connection");
    return { ...connection, target };
  }
}

function send(
  request: IncomingMessage,
  { allowed: { host, port }, target, secrets, agent }: TerminatedConnection & { target: HttpTarget },
): ClientRequest {
  const headers = requestHeaders(request, hostHeader({ scheme: "https", host, port }), secrets);
  return sendRequest({
    ...{ method: request.method ?? "GET", path: target.path, agent, setHost: false },
    headers,
  });
}

function sendError(response: ServerResponse, error: unknown): void {
  const isBad = error instanceof BadTargetError;
  const text = isBad ? error.message : "upstream failure";
  response.writeHead(isBad ? 421 : 502, { "content-type": "text/plain", "content-length": text.length }).end(text);
}

/** Waits for the first bytes and leaves them in the socket. Returns false if they are not TLS. */
function startsWithTls(socket: Socket): Promise<boolean> {
  return new Promise((resolve, reject) => {
    const onReadable = () => {
      const chunk: Buffer | null = socket.read();
      if (chunk === null) return;
      finish();
      socket.unshift(chunk);
      resolve(chunk[0] === TLS_HANDSHAKE);
    };
    const onEnd = () => {
      finish();
      reject(new Error("the process closed its connection"));
    };
    const finish = () => {
      socket.removeListener("readable", onReadable);
      socket.removeListener("end", onEnd);
      socket.removeListener("close", onEnd);
    };
    socket.on("readable", onReadable);
    socket.once("end", onEnd);
    socket.once("close", onEnd);
    onReadable();
  });
}
