import { chmodSync, lstatSync, unlinkSync } from "node:fs";
import type { Readable, Writable } from "node:stream";
import type { Clock } from "../../async/clock.ts";
import { getErrorCode, hasErrorCode } from "../../base/error-code.ts";
import { errorMessage } from "../../base/error-message.ts";
import { FlagError } from "../../base/flag-error.ts";
import type { AcceptedSocket, Listener, ListenFunction } from "../../connection/accepted-socket.ts";
import { LineConnection } from "../../connection/line-connection.ts";
import type { TlsCredentials } from "../../connection/tls-listener.ts";
import { checkArgument, checkOptions } from "../../exec/options/option-schema.ts";
import type { AuthFiles } from "../auth/auth-config.ts";
import { AuthFileWatcher } from "../auth/auth-file-watcher.ts";
import { Authenticator } from "../auth/authenticator.ts";
import { CertificateAuth, type ClientCertificates } from "../auth/certificate-auth.ts";
import { LOCAL_PRINCIPAL, type Principal } from "../auth/principal.ts";
import { RevokedTokens } from "../auth/revoked-tokens.ts";
import type { WebSocketAuth } from "../auth/websocket-auth.ts";
import type { ConsoleOptions } from "../console/console-gateway.ts";
import type { ExecServer } from "../exec-server.ts";
import { MAX_QUEUED_BYTES } from "../server-config.ts";
import { listenOptions, serverKind, socketTransportKind } from "../server-options.ts";
import { fdQuotaFor, readFdLimit } from "./fd-quota.ts";
import { ExecServerTransport, isLoopback } from "./listen-url.ts";
import { type ListeningServer, WebSocketGateway } from "./websocket-gateway.ts";

export interface ListenOptions {
  auth?: WebSocketAuth | undefined;
  /** Token and secret files of `auth`, read again when they change. */
  authFiles?: AuthFiles | undefined;
  /** File with the ids of revoked tokens; created if it is missing. */
  revokedTokensFile?: string | undefined;
  /** Unix users that are operators on a unix socket. */
  operatorUids?: readonly number[] | undefined;
  /** Host names that clients of a TCP listener may use, in addition to IP addresses and localhost. */
  allowHosts?: readonly string[] | undefined;
  /** Serves the web console on the same listener. */
  web?: ConsoleOptions | undefined;
  /** Descriptor of a listening socket that this server inherits from its predecessor. */
  inherited?: number | undefined;
  /** Enables TLS on a TCP port. Called at startup and again by `reloadTls`. */
  tls?: (() => TlsCredentials) | undefined;
  /** Accepts clients by certificate, of the authority in `tls`. Without `auth`, every client needs one. */
  clientCertificates?: ClientCertificates | undefined;
}

/** Only the owner may connect to a unix socket. */
const UNIX_SOCKET_MODE = 0o600;

/** Serves WebSocket and HTTP on a TCP port or a unix socket. Rejects if the address cannot be used. */
export async function listen(
  server: ExecServer,
  transport: Extract<ExecServerTransport, { type: "websocket" | "unix" }>,
  options: ListenOptions = {},
): Promise<ListeningServer> {
  checkArgument("listen", "server", server, serverKind);
  checkArgument("listen", "transport", transport, socketTransportKind);
  checkOptions("listen", options, listenOptions);
  const { auth = { type: "none" }, operatorUids = [], allowHosts = [], web, clientCertificates } = options;
  if (transport.type === "websocket" && auth.type === "none" && !clientCertificates && !isLoopback(transport.host)) {
    throw new Error(
      `refusing to listen on ${ExecServerTransport.toUrl(transport)} without authentication: anyone who can reach it could run commands; add \`--ws-auth capability-token --ws-token-file PATH\`, or listen on a loopback address`,
    );
  }
  if (operatorUids.length > 0) rejectUnknownUids(server, transport, auth);
  await loadTokenValidation(auth);
  if (options.tls && transport.type === "unix")
    throw new Error(
      `cannot listen on ${ExecServerTransport.toUrl(transport)}: --tls-cert and --tls-key require a ws:// address`,
    );
  const isUnix = transport.type === "unix";
  const { authFiles: files, revokedTokensFile } = options;
  const { clock, log } = server;
  const revoked = revokedTokensFile === undefined ? undefined : openRevokedTokens(revokedTokensFile, clock);
  if (revoked && revoked.unwritableReason !== null)
    log(
      "warn",
      `tokens cannot be revoked: ${revoked.path}: ${revoked.unwritableReason}; set --revoked-tokens-file PATH`,
    );
  const authenticator = new Authenticator(auth, { clock, revoked });
  server.setAuthenticator(authenticator);
  // Stops the refresh of the key set if the address cannot be used.
  using undo = new DisposableStack();
  const keySet = undo.use(await openKeySet(auth, authenticator, server));
  const certificates = clientCertificates && new CertificateAuth(clock, clientCertificates, auth.type === "none");
  const gateway = new WebSocketGateway(
    server,
    {
      auth: authenticator,
      certificates,
      anonymousPrincipal: ({ peerUid }) => (isUnix ? principalOfUid(peerUid, operatorUids) : LOCAL_PRINCIPAL),
      allowedHosts: isUnix ? null : new Set(allowHosts.map((name) => name.toLowerCase())),
      web,
    },
    server.sockets.codec,
    clock,
    fdQuotaFor(readFdLimit()),
  );
  const onConnection = (socket: AcceptedSocket) => gateway.handleSocket(socket);
  const { listener, url, reloadTls } = await bind(server, transport, options, onConnection);
  undo.move();
  const reloadCertificates = () => {
    reloadTls?.();
    certificates?.closeAll();
  };
  const tlsFiles = clientCertificates && { paths: clientCertificates.files, reload: reloadCertificates };
  const watcher =
    files || revoked || tlsFiles ? new AuthFileWatcher({ authenticator, files, revoked, tlsFiles, clock, log }) : null;
  return withReload({ ...gateway.attachListener(listener, url), reloadTls }, watcher, keySet);
}

/**
 * Loads the validation of JWTs at startup: if loading fails, no client could authenticate. Not part of `listen`, because
 * tsc does not rewrite the path of an `import()` in a function with `using`.
 */
async function loadTokenValidation({ type }: WebSocketAuth): Promise<void> {
  if (type === "signed-bearer-token") await import("../auth/jwt.ts");
}

interface BoundListener {
  listener: Listener;
  /** URL that clients connect to, with the actual port. */
  url: string;
  /** Absent without TLS. */
  reloadTls?: (() => void) | undefined;
}

/** Binds the address of the transport, or takes over the inherited listener. */
async function bind(
  { sockets: { codec, listenAt, listenOnFd } }: ExecServer,
  transport: Extract<ExecServerTransport, { type: "websocket" | "unix" }>,
  { inherited, tls }: ListenOptions,
  onConnection: (socket: AcceptedSocket) => void,
): Promise<BoundListener> {
  const url = ExecServerTransport.toUrl(transport);
  const inherit = async (descriptor: number) => {
    if (!listenOnFd)
      throw new Error("cannot listen on inherited socket: native addon not available; run `procwire doctor`");
    return listenOnFd(descriptor, onConnection);
  };
  if (transport.type === "unix") {
    const { path } = transport;
    const listener = await (inherited === undefined ? bindUnix(listenAt, path, onConnection) : inherit(inherited));
    return { listener: removeOnClose(listener, path), url };
  }
  const boundUrl = ({ port }: Listener) => ExecServerTransport.toUrl({ ...transport, port: port ?? transport.port });
  if (!tls) {
    const open = () => (inherited === undefined ? listenAt(transport, onConnection) : inherit(inherited));
    const listener = await withAddressInError(url, open);
    return { listener, url: boundUrl(listener) };
  }
  // A TLS listener uses Node's sockets, which cannot adopt a descriptor of the addon.
  if (inherited !== undefined) throw new Error("cannot listen on inherited socket: a TLS listener cannot inherit one");
  const { listenTls } = await import("../../connection/tls-listener.ts");
  const listener = await withAddressInError(url, () => listenTls(transport, tls(), codec, onConnection));
  return { listener, url: boundUrl(listener).replace(/^ws:/, "wss:"), reloadTls: () => listener.reload(tls()) };
}

/** Fetches the keys of `keySetUrl`. A failed fetch is logged and repeated: an outage must not keep the server down. */
async function openKeySet(
  auth: WebSocketAuth,
  authenticator: Authenticator,
  { clock, log }: ExecServer,
): Promise<Disposable | null> {
  if (auth.type !== "signed-bearer-token" || auth.keySetUrl === undefined) return null;
  const { RemoteKeySet } = await import("../auth/remote-key-set.ts");
  const onChanged = () => void authenticator.recheckAll();
  const keySet = new RemoteKeySet({ url: auth.keySetUrl, clock, log, onChanged });
  authenticator.setKeySet(keySet);
  await keySet.refresh();
  return keySet;
}

/** Lets a listening server read its token and secret files again. */
function withReload(
  listening: ListeningServer,
  watcher: AuthFileWatcher | null,
  keySet: Disposable | null,
): ListeningServer {
  if (!watcher && !keySet) return listening;
  return {
    ...listening,
    reloadAuth: async () => watcher?.reload(),
    close: (reason) => {
      watcher?.[Symbol.dispose]();
      keySet?.[Symbol.dispose]();
      return listening.close(reason);
    },
  };
}

function openRevokedTokens(path: string, clock: Clock): RevokedTokens {
  try {
    return new RevokedTokens(path, clock);
  } catch (error) {
    throw new FlagError("--revoked-tokens-file", path, error);
  }
}

/** Adds the address to system errors, which do not contain it. */
async function withAddressInError<T>(url: string, bind: () => Promise<T>): Promise<T> {
  try {
    return await bind();
  } catch (cause) {
    const code = getErrorCode(cause);
    if (code === null || !/^E[A-Z]+$/.test(code)) throw cause;
    const why = code === "EADDRINUSE" ? "the address is already in use" : errorMessage(cause);
    throw Object.assign(new Error(`cannot listen on ${url}: ${why} (${code})`, { cause }), { code });
  }
}

/** Returns the principal of a unix socket peer. An unknown uid is this program's own: the mode admits no other user. */
function principalOfUid(peerUid: number | null, operatorUids: readonly number[]): Principal {
  const uid = peerUid ?? process.geteuid?.() ?? 0;
  return { id: `uid:${uid}`, role: operatorUids.includes(uid) ? "operator" : "user" };
}

function rejectUnknownUids(server: ExecServer, transport: ExecServerTransport, auth: WebSocketAuth): void {
  if (transport.type !== "unix" || auth.type !== "none") {
    throw new Error(
      "--operator-uid names users of a unix socket without `--ws-auth`; use `--operator-token-file` or `--operator-claim`",
    );
  }
  if (!server.sockets.reportsPeerUid) {
    throw new Error("--operator-uid: native addon not available, so the peer's uid is unknown; run `procwire doctor`");
  }
}

/** Serves one connection over a pair of streams. Resolves when its input ends. */
export function serveStdio(server: ExecServer, input: Readable, output: Writable): Promise<void> {
  const { maxMessageBytes } = server.config;
  const { codec } = server.sockets;
  return server.accept(
    new LineConnection(input, output, {
      label: "exec-server stdio",
      maxMessageBytes,
      codec,
      maxQueuedBytes: MAX_QUEUED_BYTES,
    }),
    LOCAL_PRINCIPAL,
    "stdio",
  );
}

async function bindUnix(
  listenAt: ListenFunction,
  path: string,
  onConnection: (socket: AcceptedSocket) => void,
): Promise<Listener> {
  await removeStaleSocket(path);
  // No other user may connect between bind and chmod.
  const mask = process.umask(0o177);
  try {
    const listener = await listenAt({ path }, onConnection).catch((error: unknown) => {
      throw new FlagError("--listen", `unix://${path}`, error);
    });
    chmodSync(path, UNIX_SOCKET_MODE);
    return listener;
  } finally {
    process.umask(mask);
  }
}

/** Removes the socket file on close, unless another server replaced this one. */
function removeOnClose(listener: Listener, path: string): Listener {
  const { ino } = lstatSync(path);
  return {
    port: null,
    close(reason) {
      // Remove the file before closing, and only this server's own: after the close, another server may bind the
      // path.
      const isOwn = lstatSync(path, { throwIfNoEntry: false })?.ino === ino;
      if (reason !== "replaced" && isOwn) removeSocket(path);
      listener.close();
    },
  };
}

/** Removes the socket file of a server that has ended. Throws if a server listens there or the file is not a socket. */
async function removeStaleSocket(path: string): Promise<void> {
  try {
    if (!lstatSync(path).isSocket())
      throw new FlagError("--listen", `unix://${path}`, "there is a file that is not a socket");
  } catch (error) {
    if (hasErrorCode(error, "ENOENT")) return;
    throw error;
  }
  const outcome = await probeSocket(path);
  switch (outcome) {
    case "ECONNREFUSED":
      removeSocket(path);
      return;
    case "ENOENT":
      return;
    case "connected":
    case "EAGAIN":
      // EAGAIN: a server listens there, and its backlog is full.
      throw new Error(`cannot listen on unix://${path}: another server is listening there`);
    default:
      throw new Error(
        `cannot listen on unix://${path}: cannot determine whether another server is listening there (${outcome})`,
      );
  }
}

/** Returns `connected`, or the code of the connect error. */
function probeSocket(path: string): Promise<string> {
  const { connect } = process.getBuiltinModule("node:net");
  return new Promise((resolve) => {
    const socket = connect(path);
    socket.on("connect", () => {
      socket.destroy();
      resolve("connected");
    });
    socket.on("error", (error) => resolve(getErrorCode(error) ?? error.message));
  });
}

function removeSocket(path: string): void {
  try {
    unlinkSync(path);
  } catch (error) {
    // The listener may have removed it already.
    if (!hasErrorCode(error, "ENOENT")) throw error;
  }
}
