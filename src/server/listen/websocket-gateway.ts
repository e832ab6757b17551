import type { Socket } from "node:net";
import type { Clock } from "../../async/clock.ts";
import { errorMessage } from "../../base/error-message.ts";
import type { AcceptedSocket, Listener } from "../../connection/accepted-socket.ts";
import type { ByteCodec } from "../../connection/byte-codec.ts";
import { nodeSocket } from "../../connection/node-socket-listener.ts";
import { websocketAcceptKey } from "../../connection/websocket-accept-key.ts";
import { WebSocketConnection } from "../../connection/websocket-connection.ts";
import { checkArgument, oneOf, text } from "../../exec/options/option-schema.ts";
import type { Authenticator } from "../auth/authenticator.ts";
import type { CertificateAuth } from "../auth/certificate-auth.ts";
import { LOCAL_PRINCIPAL, type Principal, quotaOwner } from "../auth/principal.ts";
import { isShareToken } from "../auth/share-tokens.ts";
import type { AuthResult, CredentialEnd } from "../auth/websocket-auth.ts";
import { INVALID_TOKEN_DELAY_MS, parseBearerToken } from "../auth/websocket-auth.ts";
import { parseSubprotocols, SUBPROTOCOL } from "../console/console-auth.ts";
import { ConsoleGateway, type ConsoleOptions } from "../console/console-gateway.ts";
import type { HttpTimeouts } from "../console/console-http-server.ts";
import type { ExecServer } from "../exec-server.ts";
import { MAX_QUEUED_BYTES } from "../server-config.ts";
import { localBrowserUrl, withHost } from "./console-hosts.ts";
import { type FdQuota, fdQuotaFor } from "./fd-quota.ts";
import {
  encodeHttpResponse,
  type GatewayResponse,
  healthResponse,
  httpResponse,
  isSameOrigin,
  rejectForeignOrigin,
  routeHttp,
  validateUpgrade,
} from "./gateway-responses.ts";
import { headerHasToken, MAX_HEAD_BYTES, parseRequestHead, type RequestHead } from "./http-request-head.ts";

/** Maximum time to receive the request head, so that idle sockets cannot pile up. */
const HEAD_TIMEOUT_MS = 10_000;
/** Time that a peer has to close its side after a response. The server then destroys the socket. */
const CLOSE_TIMEOUT_MS = 1_000;

const UNIX_SCHEME = "unix://";

/** Access settings of the gateway: authentication, allowed hosts, principal of anonymous clients. */
export interface GatewayOptions {
  auth: Authenticator;
  /** Absent if the listener requests no client certificates. */
  certificates?: CertificateAuth | undefined;
  /** Returns the principal of a connection that needs no token. */
  anonymousPrincipal(socket: AcceptedSocket): Principal;
  /**
   * Host names that clients may use, in addition to IP addresses and localhost. Null allows every name (unix socket).
   */
  allowedHosts: ReadonlySet<string> | null;
  /** Web console. If absent, requests with an `Origin` are rejected and HTTP gets a few fixed responses. */
  web?: ConsoleOptions | undefined;
  /** Timeouts of HTTP connections. Default: those of the console. */
  httpTimeouts?: HttpTimeouts | undefined;
}

/** Bytes of a request, buffered until the gateway has decided on it. */
interface BufferedRequest {
  /** Request head. */
  head: Buffer;
  bytes: Buffer[];
  isBuffering: boolean;
  /** The peer has ended its side. An upgraded socket does not report that a second time. */
  hasEnded: boolean;
}

/** A server that accepts connections until it is closed. */
export interface ListeningServer {
  /** URL that clients connect to, with the actual port. */
  readonly url: string;
  /**
   * Returns the URL of the console with a new one-time token, or null without a console. Default host: an address that a
   * browser on this host can open.
   */
  loginUrl(host?: string): string | null;
  /** Stops accepting. Open connections stay; resolves when they have closed too. */
  close(reason?: "replaced"): Promise<void>;
  /** Reloads certificate and key for new connections. Absent without TLS. Throws if they are invalid. */
  reloadTls?: (() => void) | undefined;
  /** Reads token and secret files again. Absent without such files. */
  reloadAuth?: () => Promise<void>;
  /** Destroys pending sockets and HTTP connections, such as a request whose head never ends. */
  destroyPending(): void;
}

/** Accepts sockets and authenticates the HTTP request of each, then upgrades it or sends a response. */
export class WebSocketGateway {
  readonly #server: ExecServer;
  readonly #options: GatewayOptions;
  readonly #codec: ByteCodec;
  readonly #clock: Clock;
  /** All open sockets, upgraded ones included. */
  readonly #open = new Set<AcceptedSocket>();
  /** Sockets before their upgrade or response, oldest first. */
  readonly #pendingSockets = new Set<AcceptedSocket>();
  readonly #fdQuota: FdQuota;
  readonly #web: ConsoleGateway | null;
  #listenPort: number | null = null;

  constructor(
    server: ExecServer,
    options: GatewayOptions,
    codec: ByteCodec,
    clock: Clock,
    fdQuota: FdQuota = fdQuotaFor(null),
  ) {
    this.#server = server;
    this.#options = options;
    this.#codec = codec;
    this.#clock = clock;
    this.#fdQuota = fdQuota;
    if (fdQuota.connections !== null) server.quotas.lower("connections", fdQuota.connections);
    const { web, auth } = options;
    this.#web = web
      ? new ConsoleGateway(
          web,
          {
            auth,
            health: () => healthResponse(server),
            share: (token) => this.#shareAuthResult(token),
            rejectForeignOrigin: (head) => rejectForeignOrigin(head, options.allowedHosts, this.#web),
            metrics: server.metrics ? () => server.metricsText() ?? "" : undefined,
            upgrade: (...args) => this.#upgradeFromHttp(...args),
            onRefused: (status) => server.metrics?.connectionRejected(status),
            timeouts: options.httpTimeouts,
            audit: server.audit ?? undefined,
            log: (message) => server.log("warn", message),
          },
          clock,
          server.accesses,
        )
      : null;
  }

  attachListener(listener: Listener, url: string): ListeningServer {
    this.#listenPort = listener.port;
    const web = this.#web?.hasPage ? this.#web : null;
    const socketPath = url.startsWith(UNIX_SCHEME) ? url.slice(UNIX_SCHEME.length) : null;
    if (web) this.#server.setConsole({ socketPath, newLogin: (principal) => web.newLogin(principal) });
    return {
      url,
      // Browsers cannot open a Unix socket; `procwire console` forwards it.
      loginUrl: (host) => {
        if (host !== undefined) checkArgument("loginUrl", "host", host, text);
        if (!web || socketPath !== null) return null;
        const base = url.replace(/^ws/, "http");
        return web.loginUrl(host === undefined ? localBrowserUrl(base) : withHost(base, host), LOCAL_PRINCIPAL);
      },
      close: async (reason) => {
        if (reason !== undefined) checkArgument("close", "reason", reason, oneOf("replaced"));
        listener.close(reason);
        await Promise.all([...this.#open].map((socket) => socket.closed));
      },
      destroyPending: () => {
        for (const socket of this.#pendingSockets) socket.destroy();
        this.#web?.close();
      },
    };
  }

  handleSocket(socket: AcceptedSocket): void {
    this.#evictOldestPending();
    this.#track(socket);
    let received: Buffer = Buffer.alloc(0);
    let isDecided = false;
    const buffered: BufferedRequest = { head: received, bytes: [], isBuffering: false, hasEnded: false };
    const onHeadTimeout = () => {
      isDecided = true;
      this.#respond(socket, httpResponse(408));
    };
    const headTimer = this.#clock.after(HEAD_TIMEOUT_MS, onHeadTimeout, { keepAlive: false });
    void socket.closed.then(() => headTimer.cancel());
    socket.start({
      bytes: (chunk) => {
        if (isDecided) {
          if (buffered.isBuffering) bufferBytes(socket, buffered, chunk);
          return;
        }
        received = received.length === 0 ? chunk : Buffer.concat([received, chunk]);
        const parsed = parseRequestHead(received);
        if (parsed.type === "incomplete") return;
        isDecided = true;
        headTimer.cancel();
        if (parsed.type === "refused") this.#respond(socket, httpResponse(parsed.status, parsed.reason));
        else {
          buffered.head = received.subarray(0, received.length - parsed.rest.length);
          buffered.bytes.push(parsed.rest);
          this.#rejectSandboxedPeer(socket, buffered, () => this.#route(socket, parsed.head, buffered));
        }
      },
      end: () => {
        // A peer that has sent its whole request may close its side and still get a response.
        if (!isDecided) socket.destroy();
        buffered.hasEnded = true;
      },
    });
  }

  /** Adds a pending socket until it closes. */
  #track(socket: AcceptedSocket): void {
    this.#open.add(socket);
    this.#pendingSockets.add(socket);
    void socket.closed.then(() => {
      this.#open.delete(socket);
      this.#pendingSockets.delete(socket);
    });
  }

  /** Evicts the oldest pending socket at the quota, so that idle sockets cannot lock out other clients. */
  #evictOldestPending(): void {
    const [oldest] = this.#pendingSockets;
    if (oldest === undefined || this.#pendingSockets.size < this.#fdQuota.pendingSockets) return;
    this.#pendingSockets.delete(oldest);
    oldest.destroy();
  }

  /** Rejects sandboxed processes of this server: through it, they could do what their sandbox denies. */
  #rejectSandboxedPeer(socket: AcceptedSocket, buffered: BufferedRequest, decide: () => void): void {
    const isSandboxed = this.#server.isSandboxedPeer(
      this.#listenPort === null
        ? { type: "hiddenSocket" }
        : { type: "tcp", peerName: socket.peerName, localPort: this.#listenPort },
    );
    if (isSandboxed === false) {
      decide();
      return;
    }
    buffered.isBuffering = true;
    // If the check fails, the server rejects the peer.
    void isSandboxed
      .catch(() => true)
      .then((isInside) => {
        buffered.isBuffering = false;
        if (!this.#open.has(socket)) return;
        if (!isInside) return decide();
        const reason = "connections from sandboxed processes are refused";
        this.#auditRejection(socket, reason);
        this.#respond(socket, httpResponse(403, reason));
      });
  }

  #route(socket: AcceptedSocket, head: RequestHead, buffered: BufferedRequest): void {
    const problem = this.#options.certificates?.reject(socket.peerCertificate) ?? null;
    if (problem !== null) {
      // Probes have no certificate. The response closes the connection.
      const isProbe = head.path === "/healthz" || head.path === "/readyz";
      if (!isProbe) this.#auditRejection(socket, problem);
      this.#respond(socket, isProbe ? routeHttp(this.#server, head) : httpResponse(401, problem));
      return;
    }
    const foreign = rejectForeignOrigin(head, this.#options.allowedHosts, this.#web);
    const isUpgrade = headerHasToken(head, "connection", "upgrade") && head.headers.has("upgrade");
    if (this.#web && !foreign && !isUpgrade) {
      buffered.isBuffering = true;
      this.#web
        .serve(socket, () => Buffer.concat([buffered.head, ...buffered.bytes]))
        .catch((error: unknown) => {
          this.#server.log("error", errorMessage(error));
          this.#respond(socket, httpResponse(503, "cannot serve the web console; see the server's log"));
        });
      return;
    }
    if (foreign || !isUpgrade) {
      this.#respond(socket, foreign ?? routeHttp(this.#server, head), head.method === "HEAD");
      return;
    }
    const invalid = validateUpgrade(head);
    if (invalid) this.#respond(socket, invalid);
    // Authentication never rejects.
    else void this.#authenticate(socket, head, buffered);
  }

  /** Authenticates a WebSocket request, then upgrades or rejects it. Bytes that arrive meanwhile are buffered. */
  async #authenticate(socket: AcceptedSocket, head: RequestHead, buffered: BufferedRequest): Promise<void> {
    const { auth, anonymousPrincipal } = this.#options;
    buffered.isBuffering = true;
    const result = await this.#authResultOf(socket, head);
    buffered.isBuffering = false;
    if (!this.#open.has(socket)) return;
    if (result.type === "refused") {
      this.#auditRejection(socket, result.reason);
      const reject = () => this.#respond(socket, httpResponse(401, result.reason));
      if (result.isGuess) this.#schedule(socket, INVALID_TOKEN_DELAY_MS, reject);
      else reject();
      return;
    }
    if (buffered.hasEnded) {
      socket.destroy();
      return;
    }
    const { maxConnections: configured } = this.#server.config;
    const maxConnections = Math.min(configured, this.#fdQuota.connections ?? configured);
    if (this.#server.connectionCount >= maxConnections) {
      const reason = `too many connections: this server accepts at most ${maxConnections}`;
      this.#respond(socket, httpResponse(503, reason));
      return;
    }
    const isAnonymous =
      auth.type === "none" &&
      result.principal === LOCAL_PRINCIPAL &&
      !(this.#web?.hasPage && head.headers.has("origin"));
    const principal = isAnonymous ? anonymousPrincipal(socket) : result.principal;
    try {
      void socket.closed.then(this.#server.quotas.acquire(quotaOwner(principal), "connections"));
    } catch (error) {
      this.#respond(socket, httpResponse(503, errorMessage(error)));
      return;
    }
    const { credential } = principal;
    const onEnd = result.onEnd ?? (credential && ((close) => credential.onEnd(close)));
    this.#upgrade(socket, head, Buffer.concat(buffered.bytes), principal, onEnd);
  }

  #auditRejection({ peerName: peer }: AcceptedSocket, reason: string): void {
    this.#server.audit?.rejections.record({ event: "authentication", peer, reason });
  }

  /** Browsers authenticate by subprotocol; other clients by bearer token or certificate. A token has precedence. */
  #authResultOf({ peerCertificate }: AcceptedSocket, head: RequestHead): Promise<AuthResult> {
    const { auth, certificates } = this.#options;
    const { headers } = head;
    if (this.#web?.hasPage && headers.has("origin")) return this.#web.authenticate(head, isSameOrigin(head));
    const share = this.#shareAuthResult(parseBearerToken(headers.get("authorization")));
    if (share) return Promise.resolve(share);
    const sendsToken = auth.type !== "none" && headers.has("authorization");
    if (certificates && peerCertificate?.type === "valid" && !sendsToken)
      return Promise.resolve(certificates.authorize(peerCertificate));
    return auth.authorize(headers.get("authorization"));
  }

  /** Returns null if the token is not a share token. An expired one is rejected even without authentication. */
  #shareAuthResult(token: string | undefined): AuthResult | null {
    if (token === undefined || !isShareToken(token)) return null;
    const principal = this.#server.sharePrincipal(token);
    if (principal) return { type: "admitted", principal };
    const reason = "this share link is unknown, has expired, or its process has ended";
    return { type: "refused", reason, isGuess: true };
  }

  /** Upgrades a kept-alive HTTP connection to a WebSocket, with the same checks as for a new connection. */
  #upgradeFromHttp(head: RequestHead, stream: Socket, rest: Buffer, accepted: AcceptedSocket): void {
    const socket = nodeSocket(stream, this.#codec, accepted);
    this.#pendingSockets.delete(accepted);
    this.#track(socket);
    this.#route(socket, head, { head: Buffer.alloc(0), bytes: [rest], isBuffering: false, hasEnded: false });
  }

  #upgrade(
    accepted: AcceptedSocket,
    head: RequestHead,
    received: Buffer,
    principal: Principal,
    onCredentialEnd: CredentialEnd | undefined,
  ): void {
    this.#pendingSockets.delete(accepted);
    const { maxMessageBytes } = this.#server.config;
    const key = head.headers.get("sec-websocket-key") ?? "";
    const chosen = parseSubprotocols(head).includes(SUBPROTOCOL) ? `sec-websocket-protocol: ${SUBPROTOCOL}\r\n` : "";
    accepted.send(
      Buffer.from(
        `HTTP/1.1 101 Switching Protocols\r\nconnection: upgrade\r\nupgrade: websocket\r\nsec-websocket-accept: ${websocketAcceptKey(key)}\r\n${chosen}\r\n`,
      ),
    );
    const maxQueuedBytes = MAX_QUEUED_BYTES;
    const memory = this.#server.resources.openConnection(quotaOwner(principal));
    void accepted.closed.then(() => memory[Symbol.dispose]());
    const socket = accepted.upgrade({ maxMessageBytes, maxQueuedBytes, received });
    const connection = new WebSocketConnection(socket, {
      label: `exec-server websocket ${accepted.peerName}`,
      role: "server",
      maxMessageBytes,
      maxQueuedBytes,
      incomingLimits: memory.incomingBytes,
      keepAlive: true,
      codec: this.#codec,
    });
    // The server's own task set owns the run and reports its failure.
    const run = this.#server.accept(connection, principal, accepted.peerName);
    if (!onCredentialEnd) return;
    const stop = onCredentialEnd((reason) => connection.close(reason));
    if (stop) void run.finally(stop).catch(() => undefined);
    else connection.close("the token or console session has ended");
  }

  #respond(socket: AcceptedSocket, response: GatewayResponse, headOnly = false): void {
    if (response.status >= 400) this.#server.metrics?.connectionRejected(response.status);
    socket.send(encodeHttpResponse(response, headOnly));
    socket.end();
    this.#schedule(socket, CLOSE_TIMEOUT_MS, () => socket.destroy());
  }

  /** Calls `act` after the delay, unless the socket closes first. */
  #schedule(socket: AcceptedSocket, delayMs: number, act: () => void): void {
    const timer = this.#clock.after(delayMs, act, { keepAlive: false });
    void socket.closed.then(() => timer.cancel());
  }
}

/** Buffers bytes that arrive before the response. A peer that sends many does not speak the protocol. */
function bufferBytes(socket: AcceptedSocket, buffered: BufferedRequest, chunk: Buffer): void {
  buffered.bytes.push(chunk);
  if (buffered.bytes.reduce((sum, { length }) => sum + length, 0) > MAX_HEAD_BYTES) socket.destroy();
}
