import * as attach from "./attach-schemas.ts";
import * as copies from "./copy-schemas.ts";
import * as fs from "./file-schemas.ts";
import * as forward from "./forward-schemas.ts";
import * as http from "./http-schemas.ts";
import { pathUri } from "./path-uri-schema.ts";
import * as process from "./process-schemas.ts";
import {
  array,
  boolean,
  bytes,
  enumOf,
  extended,
  type Infer,
  i32,
  id,
  map,
  noParams,
  nullish,
  object,
  optional,
  type Schema,
  string,
  unknown,
} from "./schema.ts";

/**
 * The method table: every request and notification, once. Types, decoding, encoding, handshake checks and PROTOCOL.md
 * are derived from it.
 */

/** `v0`: the `command/exec` protocol. `current`: the protocol of Codex 0.166.0. `ours`: additions of procwire. */
export type ProtocolVersion = "v0" | "current" | "ours";

/** Name of a method group in the error `client must call initialize before using FAMILY methods`. */
export type Family =
  | "exec"
  | "filesystem"
  | "environment info"
  | "environment status"
  | "environment config"
  | "http"
  | "forwarding"
  | "capability discovery";

export interface MethodSpec<P = unknown, R = unknown> {
  version: ProtocolVersion;
  /** Null if the method may be called before the handshake is complete. */
  family: Family | null;
  params: Schema<P>;
  result: Schema<R>;
  doc: string;
}

function method<P, R>(
  version: ProtocolVersion,
  family: Family | null,
  params: Schema<P>,
  result: Schema<R>,
  doc: string,
): MethodSpec<P, R> {
  return { version, family, params, result, doc };
}

const shell = object("ShellInfo", { name: string, path: string });

/** Description of the host in `initialize` and `environment/info`. Clients require only `shell`. */
export const environmentInfo = object("EnvironmentInfo", {
  shell,
  executorVersion: nullish(string),
  providerId: nullish(string),
  cwd: nullish(string),
  userHomeDir: nullish(string),
  platformOs: nullish(string),
  prependPathDirs: nullish(array(string)),
  temporaryDirectories: nullish(array(string)),
  tempDir: nullish(string),
  capabilities: nullish(map(boolean)),
  degraded: optional(array(string)),
  sandboxes: optional(array(string)),
  /** Identifies the run of the server. */
  generation: extended(string),
});
export interface EnvironmentInfo extends Infer<typeof environmentInfo> {}

/** Extensions that a client may request in `initialize`. Only the extensions in the response are active. */
export const EXTENSIONS = ["started", "failed", "outputAck", "attach", "queryClaims"] as const;
export type Extension = (typeof EXTENSIONS)[number];

export const methods = {
  initialize: method(
    "v0",
    null,
    object("InitializeParams", {
      clientName: string,
      resumeSessionId: nullish(id),
      extensions: nullish(array(string)),
      takeOver: nullish(boolean),
      takeOverFrom: nullish(string),
    }),
    object("InitializeResult", {
      protocolVersion: nullish(string),
      sessionId: nullish(string),
      environmentInfo: nullish(environmentInfo),
      extensions: optional(array(string)),
      attachmentId: extended(string),
      generation: extended(string),
    }),
    "Opens a session, or resumes a detached one. Must be the first request, once per connection. `takeOver` resumes a session that still has a connection and closes that connection. A reconnecting client sends its last `attachmentId` as `takeOverFrom`; the server rejects the request if another client has resumed the session since. A changed `generation` means that the server restarted and that only persistent processes survived.",
  ),
  "environment/info": method(
    "current",
    "environment info",
    noParams,
    environmentInfo,
    "Returns the host's shell, directories, capabilities and degraded features.",
  ),
  "environment/status": method(
    "current",
    "environment status",
    noParams,
    object("EnvironmentStatus", { status: string }),
    "Returns `ready`.",
  ),
  "environmentConfig/read": method(
    "current",
    "environment config",
    object("EnvironmentConfigReadParams", {
      cwd: pathUri,
      configPaths: array(array(string)),
      requirementsPaths: array(array(string)),
    }),
    unknown as Schema<Record<string, unknown>>,
    "Returns the requested keys of the host's configuration files.",
  ),
  "capabilityRoots/discoverV1": method(
    "current",
    "capability discovery",
    object("WireCapabilityRootsDiscoverParams", {
      roots: array(object("CapabilityRoot", { id: string, path: pathUri, sandbox: process.nullishSandbox })),
    }),
    unknown as Schema<Record<string, unknown>>,
    "Finds plugins and skills below the given roots.",
  ),
  "capabilities/discoverV2": method(
    "current",
    "capability discovery",
    object("DiscoverV2CapabilitiesRequest", { cwd: pathUri }),
    unknown as Schema<Record<string, unknown>>,
    "Finds plugins and skills for a working directory.",
  ),

  "command/exec": method(
    "v0",
    "exec",
    object("ExecParams", {
      argv: array(string),
      cwd: string,
      env: map(string),
      tty: boolean,
      arg0: nullish(string),
    }),
    object("ExecResult", { sessionId: id }),
    "Starts a process that ends with its connection. The server chooses the session id.",
  ),
  "command/exec/write": method(
    "v0",
    "exec",
    object("ExecWriteParams", { sessionId: id, chunk: bytes }),
    object("ExecWriteResult", { accepted: boolean }),
    "Writes to the terminal of a process.",
  ),
  "command/exec/terminate": method(
    "v0",
    "exec",
    object("ExecTerminateParams", { sessionId: id }),
    object("ExecTerminateResult", { running: boolean }),
    "Kills a process with SIGKILL.",
  ),

  "process/start": method(
    "current",
    "exec",
    process.startParams,
    process.startResult,
    'Starts a process with pipes or a terminal. The response precedes all notifications of the process. `secretGuard` replaces the default excludes of `envPolicy` with a filter for names and values that look like secrets; the response lists the removed variables. `limits` sets resource limits; the server rejects a limit that it cannot enforce. When a limit ends the process, its exit has `reason: "limit"` and names the limit. CPU time, open files and `processMemoryBytes` apply to each process of the tree separately. `cwdIdentity` is the expected device and inode of `cwd`. The server opens `cwd`, rejects a different directory or a path with symbolic links, and starts the process in the directory that it opened. A process with `lifetime: "server"` survives its session. From then on, no reader pauses its output, and clients find it by its handle.',
  ),
  "process/read": method(
    "current",
    "exec",
    process.readParams,
    process.readResult,
    "Returns retained output after a sequence number without consuming it. Can wait for new output.",
  ),
  "process/write": method(
    "current",
    "exec",
    process.writeParams,
    process.writeResult,
    "Writes to stdin. A repeated `writeId` is accepted but not written again.",
  ),
  "process/signal": method(
    "current",
    "exec",
    process.signalParams,
    noParams,
    "Sends a signal to the process group: `interrupt`, or any signal name.",
  ),
  "process/terminate": method(
    "current",
    "exec",
    process.terminateParams,
    process.terminateResult,
    "Ends the process tree: immediately with SIGKILL, or with SIGTERM and a grace period.",
  ),
  "process/closeStdin": method(
    "ours",
    "exec",
    process.processIdParams("CloseStdinParams"),
    process.closeStdinResult,
    "Closes stdin after all earlier writes were delivered.",
  ),
  "process/resize": method("ours", "exec", process.resizeParams, noParams, "Changes the terminal size."),
  "process/wait": method(
    "ours",
    "exec",
    process.waitParams,
    process.waitResult,
    "Waits for exit, a pattern in the output, a period without output, a listening port, or an amount of output.",
  ),
  "process/snapshot": method(
    "ours",
    "exec",
    process.processIdParams("SnapshotParams"),
    process.snapshotResult,
    "Returns head and tail of each stream, the exit status and the terminal state.",
  ),
  "process/list": method(
    "ours",
    "exec",
    process.listParams,
    process.listResult,
    "Lists the processes of this session, or with `allSessions` those of all sessions of the same principal. Each has a public `handle`. An operator sees the processes of all principals and their owners. Session ids are never listed.",
  ),
  "process/attach": method(
    "ours",
    "exec",
    attach.attachParams,
    attach.attachResult,
    "Attaches this session to a process of another session of the same principal (an operator: of any principal). The session then uses `processId` for `process/read`, `process/wait`, `process/snapshot` and notifications. A driver can also use `process/write`, `process/closeStdin`, `process/resize`, `process/signal` and `process/terminate`. A process has any number of viewers and at most one driver. Attaching as driver replaces the current driver, which becomes a viewer. Attaching again changes the role. A viewer never pauses the process; a slow viewer receives `process/gap` and continues after the gap. A slow driver pauses the process, as a slow owner does. The owner keeps all its rights. An attached terminal does not reply to terminal queries: see `terminalQueries`. A lost connection suspends the attachment until the session is resumed.",
  ),
  "process/detach": method(
    "ours",
    "exec",
    process.processIdParams("DetachParams"),
    noParams,
    "Ends the attachment to a process. The process keeps running.",
  ),
  "process/inputs": method(
    "ours",
    "exec",
    process.processIdParams("InputsParams"),
    attach.inputsResult,
    "Returns the input history of an own or attached process: who wrote how many bytes, and when. The bytes themselves are included only if the process was started with `recordInput`, and only input that the terminal echoed. The history begins at the start of a process with `terminalQueries` or `recordInput`, otherwise at the first attachment.",
  ),
  "process/claimQueries": method(
    "ours",
    "exec",
    attach.claimQueriesParams,
    attach.claimQueriesResult,
    'Extension `queryClaims`, for the session that started the process with `terminalQueries: "claimed"`. Claims the terminal queries in the output up to `seq`: the client\'s terminal replies to them. Call it before displaying that output. After a disconnect, the server replies to all unclaimed queries, and to new ones until the session is resumed. It rejects later claims of these queries. After a takeover, the server replies to the queries without a reply from the previous client.',
  ),
  "process/tree": method(
    "ours",
    "exec",
    attach.treeParams,
    attach.treeResult,
    "Returns the process with this handle and its descendants: commands, states and resource usage at this moment. Same access rules as `process/attach`.",
  ),
  "process/share": method(
    "ours",
    "exec",
    attach.shareParams,
    attach.shareResult,
    "Creates a share token for one process of the same principal. A connection with this token can only attach to that process in the granted role; a driver token also permits the viewer role. All other methods and handles are rejected. The token expires after its TTL or when the process ends. Expiry of the TTL also closes the connections that used the token.",
  ),
  "process/kill": method(
    "ours",
    "exec",
    attach.killParams,
    process.terminateResult,
    "Signals or terminates a process of the same principal by its handle, without attaching. `running` is true if the process had not exited before the call.",
  ),

  "fs/readFile": method("current", "filesystem", fs.readFileParams, fs.readFileResult, "Reads a whole file."),
  "fs/writeFile": method("current", "filesystem", fs.writeFileParams, noParams, "Creates or replaces a file."),
  "fs/createDirectory": method("current", "filesystem", fs.createDirectoryParams, noParams, "Creates a directory."),
  "fs/getMetadata": method(
    "current",
    "filesystem",
    fs.getMetadataParams,
    fs.metadataResult,
    "Returns type, size and times of a path.",
  ),
  "fs/canonicalize": method(
    "current",
    "filesystem",
    fs.canonicalizeParams,
    fs.canonicalizeResult,
    "Resolves symbolic links and dot segments to the real path.",
  ),
  "fs/readDirectory": method(
    "current",
    "filesystem",
    fs.readDirectoryParams,
    fs.readDirectoryResult,
    "Lists the entries of a directory.",
  ),
  "fs/walk": method(
    "current",
    "filesystem",
    fs.walkParams,
    fs.walkResult,
    "Lists a directory tree in breadth-first order, up to the given limits.",
  ),
  "fs/remove": method("current", "filesystem", fs.removeParams, noParams, "Removes a file or a directory tree."),
  "fs/copy": method("current", "filesystem", fs.copyParams, noParams, "Copies a file or a directory tree."),
  "fs/open": method(
    "current",
    "filesystem",
    fs.openParams,
    fs.openResult,
    "Opens a file to read it, or to replace it, in blocks.",
  ),
  "fs/readBlock": method(
    "current",
    "filesystem",
    fs.readBlockParams,
    fs.readBlockResult,
    "Reads a block of an open file.",
  ),
  "fs/writeBlock": method("current", "filesystem", fs.writeBlockParams, noParams, "Writes a block of an open file."),
  "fs/close": method("current", "filesystem", fs.closeParams, noParams, "Closes an open file."),
  "fs/watchMissing": method(
    "current",
    "filesystem",
    fs.watchMissingParams,
    fs.watchMissingResult,
    "Sends `fs/missingChanged` once, when one of the missing paths appears.",
  ),

  "fs/scan": method(
    "ours",
    "filesystem",
    copies.scanParams,
    copies.scanResult,
    "Returns the metadata that a copy needs: type, size, mode, times and link target of a path, and of its entries if it is a directory. Large directories are split into pages of 4,096 entries.",
  ),
  "fs/writeAtomic": method(
    "ours",
    "filesystem",
    copies.writeAtomicParams,
    noParams,
    "Atomically creates or replaces a file or a symbolic link: the server writes a temporary file in the same directory and renames it. Readers never see a partial file, and a failure leaves no temporary file. Directories and special files are not replaced.",
  ),
  "fs/setAttributes": method(
    "ours",
    "filesystem",
    copies.setAttributesParams,
    noParams,
    "Sets permission bits and modification time.",
  ),
  "fs/openPartial": method(
    "ours",
    "filesystem",
    copies.openPartialParams,
    copies.openPartialResult,
    "Opens the partial file of an interrupted copy, or creates one. `fs/writeBlock`, `fs/checksum`, `fs/commit` and `fs/close` accept its file handle. The partial file survives a lost connection, so that the copy can resume.",
  ),
  "fs/checksum": method(
    "ours",
    "filesystem",
    copies.checksumParams,
    copies.checksumResult,
    "Returns the SHA-256 of the first bytes of an open file. Bytes that were read or written sequentially through the file handle are already hashed and not read again.",
  ),
  "fs/commit": method(
    "ours",
    "filesystem",
    copies.commitParams,
    copies.commitResult,
    "Completes a partial file: verifies size and SHA-256, sets its attributes, renames it to `path` and closes its file handle.",
  ),

  "http/request": method(
    "current",
    "http",
    http.requestParams,
    http.requestResult,
    "Sends an HTTP request from the server's host. The response body is returned whole or streamed.",
  ),

  "forward/open": method(
    "ours",
    "forwarding",
    forward.openParams,
    noParams,
    "Opens a TCP connection from the server's host. The response follows when it is established. Requires `--allow-forward`, which permits loopback targets and the targets it lists. The stream closes with the client's connection. Each direction has a window of 256 KiB: `forward/write` uses it until its response, `forward/data` until `forward/ack`.",
  ),
  "forward/write": method(
    "ours",
    "forwarding",
    forward.writeParams,
    noParams,
    "Sends at most 64 KiB. The response follows when the target socket has accepted the bytes. Several writes may be in flight; their order is kept.",
  ),
  "forward/end": method(
    "ours",
    "forwarding",
    forward.streamParams("ForwardEndParams"),
    noParams,
    "Closes the write side of a stream. The target may still send.",
  ),
  "forward/close": method(
    "ours",
    "forwarding",
    forward.streamParams("ForwardCloseParams"),
    noParams,
    "Resets a stream in both directions.",
  ),
  "forward/listen": method(
    "ours",
    "forwarding",
    forward.listenParams,
    forward.listenResult,
    "Listens on a TCP port of the server's host. The rules of `forward/open` apply. The session owns the listener, which survives a lost connection. Meanwhile accepted sockets wait until the session is resumed.",
  ),
  "forward/unlisten": method(
    "ours",
    "forwarding",
    forward.unlistenParams,
    noParams,
    "Closes a listener. Its streams stay open.",
  ),
  "forward/watchPorts": method(
    "ours",
    "forwarding",
    forward.watchPortsParams,
    noParams,
    "Sends `forward/ports` with the listening ports of this session's processes, until the connection ends.",
  ),
} as const satisfies Record<string, MethodSpec<never, never> | MethodSpec>;

export type MethodName = keyof typeof methods;
export type ParamsOf<M extends MethodName> = Infer<(typeof methods)[M]["params"]>;
export type ResultOf<M extends MethodName> = Infer<(typeof methods)[M]["result"]>;

export function isMethodName(name: string): name is MethodName {
  return Object.hasOwn(methods, name);
}

export interface NotificationSpec<P = unknown> {
  version: ProtocolVersion;
  params: Schema<P>;
  doc: string;
  /** The extension that a client must request to use the notification. Absent: none. */
  extension?: Extension | undefined;
}

function notification<P>(
  version: ProtocolVersion,
  params: Schema<P>,
  doc: string,
  extension?: Extension,
): NotificationSpec<P> {
  return { version, params, doc, extension };
}

/** Notifications that the server sends. */
export const serverNotifications = {
  "process/output": notification("current", process.outputParams, "A chunk of output."),
  "process/exited": notification(
    "current",
    process.exitedParams,
    "The leader exited. All its output precedes this notification.",
  ),
  "process/closed": notification(
    "current",
    process.closedParams,
    "All output streams reached end of file. The last notification of a process.",
  ),
  "process/started": notification("ours", process.startedParams, "The process runs with this pid.", "started"),
  "process/failed": notification(
    "ours",
    process.failedParams,
    "The server lost track of the process; its exit status is unknown. Attached sessions receive it without the extension.",
    "failed",
  ),
  "process/roleChanged": notification(
    "ours",
    attach.roleChangedParams,
    "Sent to an attached session when another client changed its role.",
  ),
  "process/driverChanged": notification(
    "ours",
    attach.driverChangedParams,
    "Sent to the owning session: another session became driver, or the driver left.",
    "attach",
  ),
  "process/resized": notification(
    "ours",
    attach.resizedParams,
    "Sent to the owner and all attached sessions: the terminal size changed for the output after `afterSeq`. Precedes that output. After an attach or a resume, the server sends the initial size and all earlier changes, if there were any.",
    "attach",
  ),
  "process/gap": notification(
    "ours",
    attach.gapParams,
    "Sent to an attached session: output in this range was evicted before the session received it.",
  ),
  "fs/missingChanged": notification("current", fs.missingChangedParams, "One of the watched paths appeared."),
  "http/request/bodyDelta": notification("current", http.bodyDeltaParams, "A chunk of a streamed HTTP body."),
  "forward/data": notification("ours", forward.dataParams, "A chunk of a stream."),
  "forward/ended": notification(
    "ours",
    forward.endedParams,
    "The target closed its write side. The client may still write.",
  ),
  "forward/closed": notification(
    "ours",
    forward.closedParams,
    "The stream is closed: both sides ended it, or it failed with the given error.",
  ),
  "forward/accepted": notification(
    "ours",
    forward.acceptedParams,
    "A listener accepted a connection, which is a new stream.",
  ),
  "forward/ports": notification(
    "ours",
    forward.portsParams,
    "The listening ports of this session's processes changed.",
  ),
  "command/exec/outputDelta": notification(
    "v0",
    object("ExecOutputDeltaNotification", {
      sessionId: id,
      stream: enumOf("stdout", "stderr"),
      chunk: bytes,
    }),
    "A chunk of output of a v0 process. Terminal output has stream `stdout`.",
  ),
  "command/exec/exited": notification(
    "v0",
    object("ExecExitedNotification", { sessionId: id, exitCode: i32 }),
    "A v0 process exited.",
  ),
} as const satisfies Record<string, NotificationSpec<never> | NotificationSpec>;

export type ServerNotificationName = keyof typeof serverNotifications;
export type ServerNotificationParams<N extends ServerNotificationName> = Infer<
  (typeof serverNotifications)[N]["params"]
>;
/** A server notification with its params. */
export type ServerNotification = {
  [N in ServerNotificationName]: { method: N; params: ServerNotificationParams<N> };
}[ServerNotificationName];

export function isServerNotificationName(name: string): name is ServerNotificationName {
  return Object.hasOwn(serverNotifications, name);
}

/** Reports whether a client with these extensions receives the notification. */
export function isNotified(name: ServerNotificationName, extensions: ReadonlySet<Extension>): boolean {
  const { extension } = serverNotifications[name];
  return extension === undefined || extensions.has(extension);
}

/** Notifications that the client sends. The server closes the connection on any other notification. */
export const clientNotifications = {
  initialized: notification("v0", unknown, "Completes the handshake. The server ignores its params."),
  "process/ack": notification(
    "ours",
    process.ackParams,
    "The client stored all events up to `seq`; the server may evict them.",
    "outputAck",
  ),
  "forward/ack": notification(
    "ours",
    forward.ackParams,
    "The client processed this many bytes of a stream; the server may send as many more.",
  ),
} as const satisfies Record<string, NotificationSpec<never> | NotificationSpec>;

/** The protocol version in the response to `initialize`, as v0 defines it. */
export const PROTOCOL_VERSION = "exec-server.v0";
