import { chmodSync, lstatSync, unlinkSync } from "node:fs";
import type { Readable, Writable } from "node:stream";
import { systemClock } from "../../async/clock.ts";
import { messageOf } from "../../base/error-message.ts";
import type { AcceptedSocket, ListenAt, Listener } from "../../connection/accepted-socket.ts";
import { LineConnection } from "../../connection/line-connection.ts";
import type { TlsMaterial } from "../../connection/tls-listener.ts";
import type { WebSocketAuth } from "../auth/websocket-auth.ts";
import type { WebOptions } from "../console/console-gateway.ts";
import { descriptorLimit, shareDescriptors } from "../descriptor-shares.ts";
import type { ExecServer } from "../exec-server.ts";
import { LOCAL, type Principal } from "../principal.ts";
import { MAX_QUEUED_BYTES } from "../server-config.ts";
import { ExecServerTransport, isLoopback } from "./listen-url.ts";
import { FrontDoor, type Listening } from "./websocket-gateway.ts";

export interface ListenOptions {
  auth?: WebSocketAuth | undefined;
  /** Users who are operators on a unix socket. */
  operatorUids?: readonly number[] | undefined;
  /** Names a TCP server may be asked for by, beside addresses and localhost. */
  allowHosts?: readonly string[] | undefined;
  /** Serves the web console beside the WebSockets. */
  web?: WebOptions | undefined;
  /** A socket that listens already, of the server before this one. */
  inherited?: number | undefined;
  /** Speaks TLS on a TCP port, with what this gives; asked again by `renewTls`. */
  tls?: (() => TlsMaterial) | undefined;
}

/** Only the owner may connect to a unix socket. */
const UNIX_SOCKET_MODE = 0o600;

/** WebSocket and HTTP on a TCP port or a unix socket. Rejects when the address cannot be used. */
export async function listen(
  server: ExecServer,
  transport: Extract<ExecServerTransport, { type: "websocket" | "unix" }>,
  options: ListenOptions = {},
): Promise<Listening> {
  const { auth = { type: "none" }, operatorUids = [], allowHosts = [], web, inherited } = options;
  if (transport.type === "websocket" && auth.type === "none" && !isLoopback(transport.host)) {
    throw new Error(
      `refusing to listen on ${ExecServerTransport.toUrl(transport)} without authentication: anyone who can reach it could run commands; add \`--ws-auth capability-token --ws-token-file PATH\`, or listen on a loopback address`,
    );
  }
  if (operatorUids.length > 0) refuseUnknownUids(server, transport, auth);
  // Now rather than for the first who connects: where it cannot be loaded, nobody could come in.
  if (auth.type === "signed-bearer-token") await import("../auth/jwt.ts");
  const url = ExecServerTransport.toUrl(transport);
  if (options.tls && transport.type === "unix")
    throw new Error(`${url} needs no TLS: --tls-cert and --tls-key are for a ws:// address`);
  const { codec, listenAt, listenOn } = server.wire;
  const isUnix = transport.type === "unix";
  const door = new FrontDoor(
    server,
    {
      auth,
      unasked: ({ peerUid }) => (isUnix ? userOf(peerUid, operatorUids) : LOCAL),
      hosts: isUnix ? null : new Set(allowHosts.map((name) => name.toLowerCase())),
      web,
    },
    codec,
    systemClock,
    shareDescriptors(descriptorLimit()),
  );
  const onConnection = (socket: AcceptedSocket) => door.take(socket);
  const takeOn = (descriptor: number) => {
    if (!listenOn) throw new Error("a socket that was handed over needs the native addon, which is missing");
    return listenOn(descriptor, onConnection);
  };
  if (transport.type === "unix") {
    const { path } = transport;
    const bound = inherited === undefined ? bindUnix(listenAt, path, onConnection) : takeOn(inherited);
    return door.behind(removing(await bound, path), url);
  }
  if (!options.tls) {
    const bind = () => (inherited === undefined ? listenAt(transport, onConnection) : takeOn(inherited));
    const listener = await named(url, async () => bind());
    return door.behind(listener, ExecServerTransport.toUrl({ ...transport, port: listener.port }));
  }
  // Its sockets are Node's, which take no socket of the addon's.
  if (inherited !== undefined)
    throw new Error("a server that speaks TLS cannot take over another one's socket");
  const { tls } = options;
  const { listenTls } = await import("../../connection/tls-listener.ts");
  const listener = await named(url, () => listenTls(transport, tls(), codec, onConnection));
  const secureUrl = ExecServerTransport.toUrl({ ...transport, port: listener.port }).replace(/^ws:/, "wss:");
  return { ...door.behind(listener, secureUrl), renewTls: () => listener.renew(tls()) };
}

/** An error of the system says what is wrong, but not with which address. */
async function named<T>(url: string, bind: () => Promise<T>): Promise<T> {
  try {
    return await bind();
  } catch (cause) {
    const code = cause instanceof Error && "code" in cause ? cause.code : undefined;
    if (typeof code !== "string" || !/^E[A-Z]+$/.test(code)) throw cause;
    const why = code === "EADDRINUSE" ? "something else listens there already" : messageOf(cause);
    throw Object.assign(new Error(`cannot listen on ${url}: ${why} (${code})`, { cause }), { code });
  }
}

/** Where the peer's uid is not told it can only be this program's own: the socket's mode lets nobody else connect. */
function userOf(peerUid: number | null, operatorUids: readonly number[]): Principal {
  const uid = peerUid ?? process.geteuid?.() ?? 0;
  return { id: `uid:${uid}`, role: operatorUids.includes(uid) ? "operator" : "user" };
}

function refuseUnknownUids(server: ExecServer, transport: ExecServerTransport, auth: WebSocketAuth): void {
  if (transport.type !== "unix" || auth.type !== "none") {
    throw new Error(
      "--operator-uid names users of a unix socket without `--ws-auth`; use `--operator-token-file` or `--operator-claim`",
    );
  }
  if (!server.wire.tellsPeerUid) {
    throw new Error(
      "--operator-uid needs the native addon, which is missing: nothing else tells who connects",
    );
  }
}

/** One connection over a pair of streams; resolves when its input has ended. */
export function serveStdio(server: ExecServer, input: Readable, output: Writable): Promise<void> {
  const { maxMessageBytes } = server.config;
  const { codec } = server.wire;
  return server.accept(
    new LineConnection(input, output, {
      label: "exec-server stdio",
      maxMessageBytes,
      codec,
      maxQueuedBytes: MAX_QUEUED_BYTES,
    }),
  );
}

async function bindUnix(
  listenAt: ListenAt,
  path: string,
  onConnection: (socket: AcceptedSocket) => void,
): Promise<Listener> {
  await removeStaleSocket(path);
  // Nobody else may connect in the moment between bind and chmod.
  const mask = process.umask(0o177);
  try {
    const listener = await listenAt({ path }, onConnection);
    chmodSync(path, UNIX_SOCKET_MODE);
    return listener;
  } finally {
    process.umask(mask);
  }
}

/** Its file goes with it, unless another server has taken this one's place. */
function removing(listener: Listener, path: string): Listener {
  const { ino } = lstatSync(path);
  return {
    port: 0,
    close(reason) {
      // First, and only its own: once it is refused there, another server may take its place.
      const isOwn = lstatSync(path, { throwIfNoEntry: false })?.ino === ino;
      if (reason !== "replaced" && isOwn) removeSocket(path);
      listener.close();
    },
  };
}

/** A socket file whose server is gone is in the way; one that answers, or a file that is no socket, is not ours to remove. */
async function removeStaleSocket(path: string): Promise<void> {
  try {
    if (!lstatSync(path).isSocket())
      throw new Error(`cannot listen on unix://${path}: there is a file that is not a socket`);
  } catch (error) {
    if (isMissing(error)) return;
    throw error;
  }
  const outcome = await probe(path);
  switch (outcome) {
    case "ECONNREFUSED":
      removeSocket(path);
      return;
    case "ENOENT":
      return;
    case "connected":
    case "EAGAIN":
      // Again: somebody listens, and so many wait already that one more cannot.
      throw new Error(`cannot listen on unix://${path}: another server is listening there`);
    default:
      throw new Error(
        `cannot listen on unix://${path}: it is not known whether another server is listening there (${outcome})`,
      );
  }
}

/** What connecting comes to: `connected`, or the error's code. */
function probe(path: string): Promise<string> {
  const { connect } = process.getBuiltinModule("node:net");
  return new Promise((resolve) => {
    const socket = connect(path);
    socket.on("connect", () => {
      socket.destroy();
      resolve("connected");
    });
    socket.on("error", (error) => resolve("code" in error ? String(error.code) : error.message));
  });
}

function removeSocket(path: string): void {
  try {
    unlinkSync(path);
  } catch (error) {
    // The listener may have removed it already.
    if (!isMissing(error)) throw error;
  }
}

function isMissing(error: unknown): boolean {
  return error instanceof Error && "code" in error && error.code === "ENOENT";
}
