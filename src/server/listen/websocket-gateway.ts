import type { Socket } from "node:net";
import { type Clock, systemClock } from "../../async/clock.ts";
import { messageOf } from "../../base/error-message.ts";
import type { AcceptedSocket, Listener } from "../../connection/accepted-socket.ts";
import type { ByteCodec } from "../../connection/byte-codec.ts";
import { nodeSocket } from "../../connection/node-socket-listener.ts";
import { acceptKey } from "../../connection/websocket-accept-key.ts";
import { WebSocketConnection } from "../../connection/websocket-connection.ts";
import { isShareToken } from "../auth/share-tokens.ts";
import {
  authorize,
  bearerOf,
  type Verdict,
  type WebSocketAuth,
  WRONG_TOKEN_DELAY_MS,
} from "../auth/websocket-auth.ts";
import { SUBPROTOCOL, subprotocolsOf } from "../console/console-auth.ts";
import { WebDoor, type WebOptions } from "../console/console-gateway.ts";
import type { HttpTimeouts } from "../console/console-http-server.ts";
import { type DescriptorShares, shareDescriptors } from "../descriptor-shares.ts";
import type { ExecServer } from "../exec-server.ts";
import { LOCAL, type Principal } from "../principal.ts";
import { MAX_QUEUED_BYTES } from "../server-config.ts";
import { FOREIGN_HOST, isOwnHost } from "./host-header.ts";
import { hasWord, MAX_HEAD_BYTES, parseHead, type RequestHead } from "./http-request-head.ts";

/** A socket that never finishes its request head must not stay for ever. */
const HEAD_WITHIN_MS = 10_000;
/** After an answer, how long the peer has to close its side before the socket is dropped. */
const CLOSE_WITHIN_MS = 1_000;

/** Whom a door lets in, and as whom. */
export interface Admission {
  auth: WebSocketAuth;
  /** The principal of a connection that is not asked for a token. */
  unasked(socket: AcceptedSocket): Principal;
  /** Names this server may be asked for by, beside addresses and localhost; null: by any, on a unix socket. */
  hosts: ReadonlySet<string> | null;
  /** The web console; absent: pages are refused, and HTTP gets a few fixed answers. */
  web?: WebOptions | undefined;
  /** How long connections to it have; absent: as long as usual. */
  httpTimeouts?: HttpTimeouts | undefined;
}

/** What came behind a request head that is being judged. */
interface Early {
  /** The head itself. */
  head: Buffer;
  bytes: Buffer[];
  isKept: boolean;
  /** The peer sends nothing more; an upgraded socket would not be told again. */
  isOver: boolean;
}

/** A server that takes connections until it is closed. */
export interface Listening {
  /** Where clients connect, with the real port. */
  readonly url: string;
  /** Where a person opens the web console, with a new token that works once; null without one. */
  loginUrl(): string | null;
  /** Stops accepting; connections that are open stay. Resolves once they too are gone. */
  close(reason?: "replaced"): Promise<void>;
  /** Reads certificate and key again, for connections from now on; absent without TLS. Throws when they cannot be used. */
  renewTls?: () => void;
  /** Drops what is left of plain HTTP, such as a request whose head never ends. */
  drop(): void;
}

/** Takes every connection, reads what it wants, and lets it in as a WebSocket or answers it. One request a connection. */
export class FrontDoor {
  readonly #server: ExecServer;
  readonly #admission: Admission;
  readonly #codec: ByteCodec;
  readonly #clock: Clock;
  /** All that are open, also those that were let in. */
  readonly #open = new Set<AcceptedSocket>();
  /** Those that have not said what they want, or are being answered, the oldest first. */
  readonly #outside = new Set<AcceptedSocket>();
  readonly #shares: DescriptorShares;
  readonly #web: WebDoor | null;
  #ownPort = 0;

  constructor(
    server: ExecServer,
    admission: Admission,
    codec: ByteCodec,
    clock: Clock = systemClock,
    shares: DescriptorShares = shareDescriptors(Number.POSITIVE_INFINITY),
  ) {
    this.#server = server;
    this.#admission = admission;
    this.#codec = codec;
    this.#clock = clock;
    this.#shares = shares;
    const { web, auth } = admission;
    this.#web = web
      ? new WebDoor(web, {
          auth,
          health: () => health(server),
          share: (token) => this.#shareVerdict(token),
          refuse: (head) => refuseForeign(head, admission.hosts, this.#web),
          metrics: server.figures ? () => server.metrics() ?? "" : undefined,
          upgrade: (...args) => this.#upgradeLater(...args),
          onRefused: (status) => server.figures?.refusedAtDoor(status),
          timeouts: admission.httpTimeouts,
          log: (message) => server.log("warn", message),
        })
      : null;
  }

  behind(listener: Listener, url: string): Listening {
    this.#ownPort = listener.port;
    this.#web?.listensOn(listener.port);
    return {
      url,
      loginUrl: () => this.#web?.loginUrl(url.replace(/^ws/, "http"), LOCAL) ?? null,
      close: async (reason) => {
        listener.close(reason);
        await Promise.all([...this.#open].map((socket) => socket.closed));
      },
      drop: () => {
        for (const socket of this.#outside) socket.destroy();
        this.#web?.close();
      },
    };
  }

  take(socket: AcceptedSocket): void {
    this.#makeRoom();
    this.#open.add(socket);
    this.#outside.add(socket);
    let received: Buffer = Buffer.alloc(0);
    let decided = false;
    const early: Early = { head: received, bytes: [], isKept: false, isOver: false };
    const giveUp = () => {
      decided = true;
      this.#answer(socket, httpAnswer(408));
    };
    const late = this.#clock.after(HEAD_WITHIN_MS, giveUp, { keepAlive: false });
    void socket.closed.then(() => {
      late.cancel();
      this.#open.delete(socket);
      this.#outside.delete(socket);
    });
    socket.start({
      bytes: (chunk) => {
        if (decided) {
          if (early.isKept) keepEarly(socket, early, chunk);
          return;
        }
        received = received.length === 0 ? chunk : Buffer.concat([received, chunk]);
        const parsed = parseHead(received);
        if (parsed.type === "incomplete") return;
        decided = true;
        late.cancel();
        if (parsed.type === "refused") this.#answer(socket, httpAnswer(parsed.status, parsed.reason));
        else {
          early.head = received.subarray(0, received.length - parsed.rest.length);
          early.bytes.push(parsed.rest);
          this.#askWhoseSocket(socket, early, () => this.#decide(socket, parsed.head, early));
        }
      },
      end: () => {
        // One that sent its request whole may close its side and still be answered.
        if (!decided) socket.destroy();
        early.isOver = true;
      },
    });
  }

  /** A client that sends its request at once gets in, however many connections are open and silent. */
  #makeRoom(): void {
    const [oldest] = this.#outside;
    if (oldest === undefined || this.#outside.size < this.#shares.outside) return;
    this.#outside.delete(oldest);
    oldest.destroy();
  }

  /** A command behind walls that this server raised must not ask this server for what the walls refuse. */
  #askWhoseSocket(socket: AcceptedSocket, early: Early, decide: () => void): void {
    const walled = this.#server.isWalledPeer({ peerName: socket.peerName, ownPort: this.#ownPort });
    if (walled === false) {
      decide();
      return;
    }
    early.isKept = true;
    // What cannot be found out is refused.
    void walled
      .catch(() => true)
      .then((inside) => {
        early.isKept = false;
        if (!this.#open.has(socket)) return;
        if (inside) this.#answer(socket, httpAnswer(403, "connections from behind a sandbox are refused"));
        else decide();
      });
  }

  #decide(socket: AcceptedSocket, head: RequestHead, early: Early): void {
    const foreign = refuseForeign(head, this.#admission.hosts, this.#web);
    const isUpgrade = hasWord(head, "connection", "upgrade") && head.headers.has("upgrade");
    if (this.#web && !foreign && !isUpgrade) {
      early.isKept = true;
      this.#web
        .serve(socket, () => Buffer.concat([early.head, ...early.bytes]))
        .catch((error: unknown) => {
          this.#server.log("error", messageOf(error));
          this.#answer(socket, httpAnswer(503, "the web console cannot be served; see the server's log"));
        });
      return;
    }
    if (foreign || !isUpgrade) {
      this.#answer(socket, foreign ?? plainAnswer(this.#server, head), head.method === "HEAD");
      return;
    }
    const problem = refuseUpgrade(head);
    if (problem) this.#answer(socket, problem);
    // A judgement never rejects.
    else void this.#judge(socket, head, early);
  }

  /** The socket waits until it is known who is there. */
  async #judge(socket: AcceptedSocket, head: RequestHead, early: Early): Promise<void> {
    const { auth, unasked } = this.#admission;
    early.isKept = true;
    const verdict = await this.#verdictOf(head);
    early.isKept = false;
    if (!this.#open.has(socket)) return;
    if (verdict.type === "refused") {
      const answer = () => this.#answer(socket, httpAnswer(401, verdict.reason));
      if (verdict.isGuess) this.#later(socket, WRONG_TOKEN_DELAY_MS, answer);
      else answer();
      return;
    }
    if (early.isOver) {
      socket.destroy();
      return;
    }
    const maxConnections = Math.min(this.#server.config.maxConnections, this.#shares.connections);
    if (this.#server.connectionCount >= maxConnections) {
      const reason = `too many connections: this server takes ${maxConnections} at once`;
      this.#answer(socket, httpAnswer(503, reason));
      return;
    }
    const isUnasked = auth.type === "none" && !(this.#web?.hasPage && head.headers.has("origin"));
    const isShared = verdict.principal.share !== undefined;
    const principal = isUnasked && !isShared ? unasked(socket) : verdict.principal;
    this.#letIn(socket, head, Buffer.concat(early.bytes), principal);
  }

  /** Pages have passes of their own where there is a console; everybody else brings a token, where one is asked for. */
  #verdictOf(head: RequestHead): Promise<Verdict> {
    const { auth } = this.#admission;
    const { headers } = head;
    if (this.#web?.hasPage && headers.has("origin")) return this.#web.judge(head, isOwnPage(head));
    const share = this.#shareVerdict(bearerOf(headers.get("authorization")));
    if (share) return Promise.resolve(share);
    return authorize(auth, headers.get("authorization"), Date.now());
  }

  /** Null for what is no share token. One that is none any more opens nothing, also where nobody is asked for a token. */
  #shareVerdict(token: string | undefined): Verdict | null {
    if (token === undefined || !isShareToken(token)) return null;
    const principal = this.#server.sharePrincipal(token);
    if (principal) return { type: "admitted", principal };
    const reason = "this share link is unknown, has expired, or its process has ended";
    return { type: "refused", reason, isGuess: true };
  }

  /** A connection that carried HTTP requests asks for a WebSocket: the same is asked of it as of any other. */
  #upgradeLater(head: RequestHead, stream: Socket, rest: Buffer, accepted: AcceptedSocket): void {
    const socket = nodeSocket(stream, this.#codec, accepted);
    this.#outside.delete(accepted);
    this.#open.add(socket);
    this.#outside.add(socket);
    void socket.closed.then(() => {
      this.#open.delete(socket);
      this.#outside.delete(socket);
    });
    this.#decide(socket, head, { head: Buffer.alloc(0), bytes: [rest], isKept: false, isOver: false });
  }

  #letIn(accepted: AcceptedSocket, head: RequestHead, received: Buffer, principal: Principal): void {
    this.#outside.delete(accepted);
    const { maxMessageBytes } = this.#server.config;
    const key = head.headers.get("sec-websocket-key") ?? "";
    const chosen = subprotocolsOf(head).includes(SUBPROTOCOL)
      ? `sec-websocket-protocol: ${SUBPROTOCOL}\r\n`
      : "";
    accepted.send(
      Buffer.from(
        `HTTP/1.1 101 Switching Protocols\r\nconnection: upgrade\r\nupgrade: websocket\r\nsec-websocket-accept: ${acceptKey(key)}\r\n${chosen}\r\n`,
      ),
    );
    const maxQueuedBytes = MAX_QUEUED_BYTES;
    const socket = accepted.upgrade({ maxMessageBytes, maxQueuedBytes, received });
    const connection = new WebSocketConnection(socket, {
      label: `exec-server websocket ${accepted.peerName}`,
      role: "server",
      maxMessageBytes,
      maxQueuedBytes,
      turns: this.#server.room.incoming,
      keepAlive: true,
      codec: this.#codec,
    });
    // The server's own task set owns the run and reports its failure.
    void this.#server.accept(connection, principal);
  }

  #answer(socket: AcceptedSocket, answer: HttpAnswer, headOnly = false): void {
    const { status, body, type, allow } = answer;
    if (status >= 400) this.#server.figures?.refusedAtDoor(status);
    const lines = [
      `HTTP/1.1 ${status} ${REASONS[status] ?? ""}`,
      ...(type ? [`content-type: ${type}`] : []),
      ...(allow ? [`allow: ${allow}`] : []),
      `content-length: ${Buffer.byteLength(body)}`,
      "connection: close",
    ];
    socket.send(Buffer.from(`${lines.join("\r\n")}\r\n\r\n${headOnly ? "" : body}`));
    socket.end();
    this.#later(socket, CLOSE_WITHIN_MS, () => socket.destroy());
  }

  /** Unless it is closed before. */
  #later(socket: AcceptedSocket, delayMs: number, act: () => void): void {
    const timer = this.#clock.after(delayMs, act, { keepAlive: false });
    void socket.closed.then(() => timer.cancel());
  }
}

/** Who sends much before the answer to its handshake does not speak the protocol. */
function keepEarly(socket: AcceptedSocket, early: Early, chunk: Buffer): void {
  early.bytes.push(chunk);
  if (early.bytes.reduce((sum, { length }) => sum + length, 0) > MAX_HEAD_BYTES) socket.destroy();
}

interface HttpAnswer {
  status: number;
  body: string;
  type?: string;
  allow?: string;
}

const REASONS: Record<number, string> = {
  200: "OK",
  400: "Bad Request",
  401: "Unauthorized",
  403: "Forbidden",
  404: "Not Found",
  405: "Method Not Allowed",
  408: "Request Timeout",
  431: "Request Header Fields Too Large",
  503: "Service Unavailable",
  505: "HTTP Version Not Supported",
};

const TEXT = "text/plain; charset=utf-8";

function httpAnswer(status: number, body = ""): HttpAnswer {
  return body === "" ? { status, body } : { status, body, type: TEXT };
}

function refuseUpgrade(head: RequestHead): HttpAnswer | null {
  const { headers } = head;
  if (head.path !== "/") return httpAnswer(404);
  if (head.method !== "GET") return httpAnswer(405, "Request method must be `GET`");
  if (headers.get("upgrade")?.toLowerCase() !== "websocket") {
    return httpAnswer(400, "`Upgrade` header did not include 'websocket'");
  }
  if (headers.get("sec-websocket-version") !== "13") {
    return httpAnswer(400, "`Sec-WebSocket-Version` header did not include '13'");
  }
  if (!headers.get("sec-websocket-key")) return httpAnswer(400, "`Sec-WebSocket-Key` header missing");
  return null;
}

function plainAnswer(server: ExecServer, head: RequestHead): HttpAnswer {
  const looking = head.method === "GET" || head.method === "HEAD";
  switch (head.path) {
    case "/readyz":
      return looking ? httpAnswer(200) : { ...httpAnswer(405), allow: "GET,HEAD" };
    case "/healthz":
      return looking ? health(server) : { ...httpAnswer(405), allow: "GET,HEAD" };
    case "/":
      return looking
        ? httpAnswer(400, "Connection header did not include 'upgrade'")
        : httpAnswer(405, "Request method must be `GET`");
    default:
      return httpAnswer(404);
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
 * A page of another site must not reach a server on this machine, neither by its own origin nor by a name that was pointed
 * here. The server's own page may: its origin is the host it was asked by.
 */
function refuseForeign(head: RequestHead, hosts: Admission["hosts"], web: WebDoor | null): HttpAnswer | null {
  const origin = head.headers.get("origin");
  const host = head.headers.get("host");
  const isAllowed =
    origin === undefined ||
    (isOwnPage(head) && isOwnHost(host, hosts ?? NO_NAMES)) ||
    web?.mayConnect(origin) === true;
  if (!isAllowed) return web ? httpAnswer(403, FOREIGN_ORIGIN) : httpAnswer(403);
  return hosts !== null && !isOwnHost(host, hosts) ? httpAnswer(403, FOREIGN_HOST) : null;
}

/** By https where something in front of this server speaks TLS. */
function isOwnPage({ headers }: RequestHead): boolean {
  const host = headers.get("host");
  const origin = headers.get("origin");
  return origin === `http://${host}` || origin === `https://${host}`;
}

const FOREIGN_ORIGIN =
  "pages of this origin may not connect; start the server with `--allow-origin ORIGIN` to let them";

const NO_NAMES: ReadonlySet<string> = new Set();
