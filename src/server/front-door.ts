import { type Clock, systemClock } from "../async/clock.ts";
import { acceptKey } from "../connection/accept-key.ts";
import type { AcceptedSocket, Listener } from "../connection/accepted-socket.ts";
import type { ByteCodec } from "../connection/byte-codec.ts";
import { WebSocketConnection } from "../connection/websocket-connection.ts";
import { refusal, type WebSocketAuth } from "./auth.ts";
import { type DescriptorShares, shareDescriptors } from "./descriptors.ts";
import type { ExecServer } from "./exec-server.ts";
import { hasWord, parseHead, type RequestHead } from "./http-head.ts";
import { ipVersion } from "./ip-address.ts";

/** A socket that never finishes its request head must not stay for ever. */
const HEAD_WITHIN_MS = 10_000;
/** After an answer, how long the peer has to close its side before the socket is dropped. */
const CLOSE_WITHIN_MS = 1_000;

/** A server that takes connections until it is closed. */
export interface Listening {
  /** Where clients connect, with the real port. */
  readonly url: string;
  /** Stops accepting; connections that are open stay. Resolves once they too are gone. */
  close(): Promise<void>;
  /** Drops what is left of plain HTTP, such as a request whose head never ends. */
  drop(): void;
}

/** Takes every connection, reads what it wants, and lets it in as a WebSocket or answers it. One request a connection. */
export class FrontDoor {
  readonly #server: ExecServer;
  readonly #auth: WebSocketAuth;
  readonly #codec: ByteCodec;
  readonly #clock: Clock;
  /** All that are open, also those that were let in. */
  readonly #open = new Set<AcceptedSocket>();
  /** Those that have not said what they want, or are being answered, the oldest first. */
  readonly #outside = new Set<AcceptedSocket>();
  readonly #shares: DescriptorShares;

  constructor(
    server: ExecServer,
    auth: WebSocketAuth,
    codec: ByteCodec,
    clock: Clock = systemClock,
    shares: DescriptorShares = shareDescriptors(Number.POSITIVE_INFINITY),
  ) {
    this.#server = server;
    this.#auth = auth;
    this.#codec = codec;
    this.#clock = clock;
    this.#shares = shares;
  }

  behind(listener: Listener, url: string): Listening {
    return {
      url,
      close: async () => {
        listener.close();
        await Promise.all([...this.#open].map((socket) => socket.closed));
      },
      drop: () => {
        for (const socket of this.#outside) socket.destroy();
      },
    };
  }

  take(socket: AcceptedSocket): void {
    this.#makeRoom();
    this.#open.add(socket);
    this.#outside.add(socket);
    let received: Buffer = Buffer.alloc(0);
    let decided = false;
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
        if (decided) return;
        received = received.length === 0 ? chunk : Buffer.concat([received, chunk]);
        const parsed = parseHead(received);
        if (parsed.type === "incomplete") return;
        decided = true;
        late.cancel();
        if (parsed.type === "refused") this.#answer(socket, httpAnswer(parsed.status, parsed.reason));
        else this.#decide(socket, parsed.head, parsed.rest);
      },
      end: () => {
        // One that sent its request whole may close its side and still be answered.
        if (!decided) socket.destroy();
      },
    });
  }

  /** Whoever says at once what he wants gets in, however many stand there and say nothing. */
  #makeRoom(): void {
    const [oldest] = this.#outside;
    if (oldest === undefined || this.#outside.size < this.#shares.outside) return;
    this.#outside.delete(oldest);
    oldest.destroy();
  }

  #decide(socket: AcceptedSocket, head: RequestHead, rest: Buffer): void {
    if (!hasWord(head, "connection", "upgrade") || !head.headers.has("upgrade")) {
      this.#answer(socket, plainAnswer(this.#server, head), head.method === "HEAD");
      return;
    }
    const problem = refuseUpgrade(this.#server, this.#auth, this.#shares.connections, head);
    if (problem) this.#answer(socket, problem);
    else this.#letIn(socket, head, rest);
  }

  #letIn(accepted: AcceptedSocket, head: RequestHead, received: Buffer): void {
    this.#outside.delete(accepted);
    const { maxMessageBytes } = this.#server.config;
    const key = head.headers.get("sec-websocket-key") ?? "";
    accepted.send(
      Buffer.from(
        `HTTP/1.1 101 Switching Protocols\r\nconnection: upgrade\r\nupgrade: websocket\r\nsec-websocket-accept: ${acceptKey(key)}\r\n\r\n`,
      ),
    );
    const connection = new WebSocketConnection(accepted.upgrade({ maxMessageBytes, received }), {
      label: `exec-server websocket ${accepted.peerName}`,
      role: "server",
      maxMessageBytes,
      keepAlive: true,
      codec: this.#codec,
    });
    // The server's own task set owns the run and reports its failure.
    void this.#server.accept(connection);
  }

  #answer(socket: AcceptedSocket, answer: HttpAnswer, headOnly = false): void {
    const { status, body, type, allow } = answer;
    const lines = [
      `HTTP/1.1 ${status} ${REASONS[status] ?? ""}`,
      ...(type ? [`content-type: ${type}`] : []),
      ...(allow ? [`allow: ${allow}`] : []),
      `content-length: ${Buffer.byteLength(body)}`,
      "connection: close",
    ];
    socket.send(Buffer.from(`${lines.join("\r\n")}\r\n\r\n${headOnly ? "" : body}`));
    socket.end();
    const drop = this.#clock.after(CLOSE_WITHIN_MS, () => socket.destroy(), { keepAlive: false });
    void socket.closed.then(() => drop.cancel());
  }
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

function refuseUpgrade(
  server: ExecServer,
  auth: WebSocketAuth,
  share: number,
  head: RequestHead,
): HttpAnswer | null {
  const { headers } = head;
  if (isForeignOrigin(head)) return httpAnswer(403);
  if (head.path !== "/") return httpAnswer(404);
  if (head.method !== "GET") return httpAnswer(405, "Request method must be `GET`");
  if (headers.get("upgrade")?.toLowerCase() !== "websocket") {
    return httpAnswer(400, "`Upgrade` header did not include 'websocket'");
  }
  if (headers.get("sec-websocket-version") !== "13") {
    return httpAnswer(400, "`Sec-WebSocket-Version` header did not include '13'");
  }
  if (!headers.get("sec-websocket-key")) return httpAnswer(400, "`Sec-WebSocket-Key` header missing");
  const unauthorized = refusal(auth, headers.get("authorization"), Date.now());
  if (unauthorized !== null) return httpAnswer(401, unauthorized);
  const maxConnections = Math.min(server.config.maxConnections, share);
  if (server.connectionCount >= maxConnections) {
    return httpAnswer(503, `too many connections: this server takes ${maxConnections} at once`);
  }
  return null;
}

function plainAnswer(server: ExecServer, head: RequestHead): HttpAnswer {
  if (isForeignOrigin(head)) return httpAnswer(403);
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
 * A page of another site must not reach a server on this machine. The server's own page may: its origin is the host it
 * was asked by, and that host is an address or localhost, not a name somebody else can point here.
 */
function isForeignOrigin({ headers }: RequestHead): boolean {
  const origin = headers.get("origin");
  const host = headers.get("host");
  if (origin === undefined) return false;
  if (host === undefined || origin !== `http://${host}`) return true;
  const name = host.replace(/:\d+$/, "").replace(/^\[|\]$/g, "");
  return name !== "localhost" && ipVersion(name) === 0;
}
