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
  type Infer,
  i32,
  id,
  map,
  object,
  oneOf,
  optional,
  type Schema,
  string,
  unit,
  unknown,
} from "./schema.ts";

/**
 * The method table: every request and notification, once. Types, decoding, encoding, gates and PROTOCOL.md are derived
 * from it.
 */

/** `v0`: the seeds' protocol. `current`: as Codex 0.166.0 speaks it. `ours`: what procwire adds. */
export type Generation = "v0" | "current" | "ours";

/** The words a method's family has in `client must call initialize before using F methods`. */
export type Family =
  | "exec"
  | "filesystem"
  | "environment info"
  | "environment status"
  | "environment config"
  | "http"
  | "forwarding"
  | "capability discovery";

export interface Method<P = unknown, R = unknown> {
  generation: Generation;
  /** Null: may be called before the handshake is done. */
  family: Family | null;
  params: Schema<P>;
  result: Schema<R>;
  doc: string;
}

function method<P, R>(
  generation: Generation,
  family: Family | null,
  params: Schema<P>,
  result: Schema<R>,
  doc: string,
): Method<P, R> {
  return { generation, family, params, result, doc };
}

const shell = object("ShellInfo", { name: string, path: string });

/** Answered by `initialize` and `environment/info`; a client needs `shell` alone. */
export const environmentInfo = object("EnvironmentInfo", {
  shell,
  executorVersion: optional(string),
  providerId: optional(string),
  cwd: optional(string),
  userHomeDir: optional(string),
  platformOs: optional(string),
  prependPathDirs: optional(array(string)),
  temporaryDirectories: optional(array(string)),
  tempDir: optional(string),
  capabilities: optional(map(boolean)),
  degraded: optional(array(string)),
  sandboxes: optional(array(string)),
  generation: optional(string),
});
export type EnvironmentInfo = Infer<typeof environmentInfo>;

/** What a client may ask for in `initialize`; only what the answer names is used. */
export const EXTENSIONS = ["started", "failed", "outputAck", "attach", "queryClaims"] as const;
export type Extension = (typeof EXTENSIONS)[number];

export const methods = {
  initialize: method(
    "v0",
    null,
    object("InitializeParams", {
      clientName: string,
      resumeSessionId: optional(id),
      extensions: optional(array(string)),
      takeOver: optional(boolean),
      takeOverFrom: optional(string),
    }),
    object("InitializeResult", {
      protocolVersion: optional(string),
      sessionId: optional(string),
      environmentInfo: optional(environmentInfo),
      extensions: optional(array(string)),
      attachmentId: optional(string),
      generation: optional(string),
    }),
    "Opens a session, or resumes one that lost its connection. Must come first, once per connection. `takeOver` resumes a session that another connection is attached to, and closes that one. A client that comes back gives the `attachmentId` it was answered (told to clients that asked for an extension) as `takeOverFrom`: it is refused when somebody else has had the session since. `generation` names the server that answers, for such clients: another one than before means that what was not kept is gone.",
  ),
  "environment/info": method(
    "current",
    "environment info",
    unit,
    environmentInfo,
    "What kind of host this is: shell, directories, capabilities, degraded parts; for clients that asked for an extension also the server's `generation`.",
  ),
  "environment/status": method(
    "current",
    "environment status",
    unit,
    object("EnvironmentStatus", { status: string }),
    "Answers `ready`.",
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
    "Reads the named parts of the host's configuration files.",
  ),
  "capabilityRoots/discoverV1": method(
    "current",
    "capability discovery",
    object("WireCapabilityRootsDiscoverParams", {
      roots: array(object("CapabilityRoot", { id: string, path: pathUri, sandbox: process.optionalSandbox })),
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
      arg0: optional(string),
    }),
    object("ExecResult", { sessionId: id }),
    "Starts a process that lives as long as its connection; the server chooses the id.",
  ),
  "command/exec/write": method(
    "v0",
    "exec",
    object("ExecWriteParams", { sessionId: id, chunk: bytes }),
    object("ExecWriteResult", { accepted: boolean }),
    "Writes to a terminal process.",
  ),
  "command/exec/terminate": method(
    "v0",
    "exec",
    object("ExecTerminateParams", { sessionId: id }),
    object("ExecTerminateResult", { running: boolean }),
    "Ends a process by force.",
  ),

  "process/start": method(
    "current",
    "exec",
    process.startParams,
    process.startResult,
    'Starts a process with pipes or a terminal. Answered once it runs, before any of its notifications; with its public `handle` for clients that asked for an extension. `secretGuard` replaces the default excludes of `envPolicy` by whole words and values that look like secrets; the answer then names what it left out. `limits` says what it may use at most, and is refused where that cannot be enforced; `reason: "limit"` and `limit` at its end say which one it met. CPU time, open files and `processMemoryBytes` count for each process of its tree by itself. `cwdIdentity` says which directory `cwd` must be: the server opens `cwd`, refuses it when it is another one or has a link on the way, and starts the process in what it opened. A process of `lifetime: "server"` lives on when its session expires: nothing holds its output back from then on, and it is found by its handle.',
  ),
  "process/read": method(
    "current",
    "exec",
    process.readParams,
    process.readResult,
    "Reads retained output after a cursor, without consuming it; can wait for news.",
  ),
  "process/write": method(
    "current",
    "exec",
    process.writeParams,
    process.writeResult,
    "Writes to stdin. The same `writeId` again is accepted and not written twice.",
  ),
  "process/signal": method(
    "current",
    "exec",
    process.signalParams,
    unit,
    "Sends a signal to the process group: `interrupt`, or any signal name.",
  ),
  "process/terminate": method(
    "current",
    "exec",
    process.terminateParams,
    process.terminateResult,
    "Ends the process and its descendants: at once, or gracefully with a time to go by itself.",
  ),
  "process/closeStdin": method(
    "ours",
    "exec",
    process.processIdParams("CloseStdinParams"),
    process.closeStdinResult,
    "Closes stdin once everything written before has been taken.",
  ),
  "process/resize": method("ours", "exec", process.resizeParams, unit, "Changes the size of a terminal."),
  "process/wait": method(
    "ours",
    "exec",
    process.waitParams,
    process.waitResult,
    "Waits for exit, a pattern in the output, quiet, a listening port, or an amount of output.",
  ),
  "process/snapshot": method(
    "ours",
    "exec",
    process.processIdParams("SnapshotParams"),
    process.snapshotResult,
    "Head and tail of each stream, how it ended, and the terminal's state.",
  ),
  "process/list": method(
    "ours",
    "exec",
    process.listParams,
    process.listResult,
    "The processes of this session, or with `allSessions` of every session of the same principal, each by a public `handle`. An operator is told those of all principals, and whose they are. Session ids are never listed.",
  ),
  "process/attach": method(
    "ours",
    "exec",
    attach.attachParams,
    attach.attachResult,
    "Makes a process of another session of the same principal (an operator: of any) known in this session under `processId`: `process/read`, `wait` and `snapshot` and its notifications then work under that id, and for a driver `write`, `closeStdin`, `resize`, `signal` and `terminate` too. A process has any number of viewers and one driver: who attaches as driver takes over from the one before, who becomes a viewer. Attaching again changes the role. A viewer never holds the process back: one that lags is told `process/gap` and goes on. A driver holds it back like its own session does, which keeps all its rights. Who attaches answers nothing that the process asks its terminal: see `terminalQueries`. A lost connection suspends the attachment, a resumed session has it again.",
  ),
  "process/detach": method(
    "ours",
    "exec",
    process.processIdParams("DetachParams"),
    unit,
    "Ends the attachment to a process; the process goes on.",
  ),
  "process/inputs": method(
    "ours",
    "exec",
    process.processIdParams("InputsParams"),
    attach.inputsResult,
    "Who typed how much into a process of this session, or one it has attached to, and when. What was typed is told only of a process started with `recordInput`, and never what its terminal did not echo. Known from the start of a process on that is started with `terminalQueries` or `recordInput`, of others from the first attachment on.",
  ),
  "process/claimQueries": method(
    "ours",
    "exec",
    attach.claimQueriesParams,
    attach.claimQueriesResult,
    'Extension `queryClaims`, by the session that started the process with `terminalQueries: "claimed"`: this client\'s terminal will answer what the process asks in the output up to `seq`. To be called before that output is shown. What nobody has claimed when the connection is lost, and what is asked until it is there again, the server answers; a later claim of it is not granted. When another client takes the session over, the server answers what the former one had not.',
  ),
  "process/tree": method(
    "ours",
    "exec",
    attach.treeParams,
    attach.treeResult,
    "The process of this handle and its descendants, as the system sees them now: what they are, what they do and what they use. For the same principal, as `process/attach`.",
  ),
  "process/share": method(
    "ours",
    "exec",
    attach.shareParams,
    attach.shareResult,
    "A token for one process of the same principal. A connection that brings it can attach to that process in that role (a driver also as viewer), and do nothing else: other methods and handles are refused. It ends with its time, and when the process ends; connections that came by it are closed when its time is over.",
  ),
  "process/kill": method(
    "ours",
    "exec",
    attach.killParams,
    process.terminateResult,
    "Signals or ends a process of the same principal by its handle, without an attachment. `running` tells whether it had not exited when the call came.",
  ),

  "fs/readFile": method("current", "filesystem", fs.readFileParams, fs.readFileResult, "Reads a whole file."),
  "fs/writeFile": method("current", "filesystem", fs.writeFileParams, unit, "Creates or replaces a file."),
  "fs/createDirectory": method("current", "filesystem", fs.createDirectoryParams, unit, "Makes a directory."),
  "fs/getMetadata": method(
    "current",
    "filesystem",
    fs.getMetadataParams,
    fs.metadataResult,
    "What a path is.",
  ),
  "fs/canonicalize": method(
    "current",
    "filesystem",
    fs.canonicalizeParams,
    fs.canonicalizeResult,
    "The real path behind links and dots.",
  ),
  "fs/readDirectory": method(
    "current",
    "filesystem",
    fs.readDirectoryParams,
    fs.readDirectoryResult,
    "The entries of a directory.",
  ),
  "fs/walk": method(
    "current",
    "filesystem",
    fs.walkParams,
    fs.walkResult,
    "Lists a tree, breadth first, bounded.",
  ),
  "fs/remove": method("current", "filesystem", fs.removeParams, unit, "Removes a file or a tree."),
  "fs/copy": method("current", "filesystem", fs.copyParams, unit, "Copies a file or a tree."),
  "fs/open": method(
    "current",
    "filesystem",
    fs.openParams,
    fs.openResult,
    "Opens a file for reading or replacing in blocks.",
  ),
  "fs/readBlock": method(
    "current",
    "filesystem",
    fs.readBlockParams,
    fs.readBlockResult,
    "Reads a block of an open file.",
  ),
  "fs/writeBlock": method(
    "current",
    "filesystem",
    fs.writeBlockParams,
    unit,
    "Writes a block of an open file.",
  ),
  "fs/close": method("current", "filesystem", fs.closeParams, unit, "Closes an open file."),
  "fs/watchMissing": method(
    "current",
    "filesystem",
    fs.watchMissingParams,
    fs.watchMissingResult,
    "Tells once when one of the missing paths appears.",
  ),

  "fs/scan": method(
    "ours",
    "filesystem",
    copies.scanParams,
    copies.scanResult,
    "What a path is and what a directory holds, with sizes, modes, times and links: enough to copy it. A large directory comes in pages of 4,096 entries.",
  ),
  "fs/put": method(
    "ours",
    "filesystem",
    copies.putParams,
    unit,
    "Creates or replaces a file or a symbolic link in one step: it is made beside the path under another name and renamed, so nobody ever sees half of it and a failure leaves nothing. Only a file or a link is replaced.",
  ),
  "fs/setAttributes": method(
    "ours",
    "filesystem",
    copies.setAttributesParams,
    unit,
    "Sets the permission bits and the time of the last change.",
  ),
  "fs/openPart": method(
    "ours",
    "filesystem",
    copies.openPartParams,
    copies.openPartResult,
    "Opens a file that is being copied, as an earlier copy left it, or a new one: `fs/writeBlock`, `fs/checksum`, `fs/commit` and `fs/close` take its handle. It stays when its connection is lost, so that the copy can go on.",
  ),
  "fs/checksum": method(
    "ours",
    "filesystem",
    copies.checksumParams,
    copies.checksumResult,
    "The SHA-256 of the beginning of an open file. What was read or written in order through its handle has been counted already and is not read again.",
  ),
  "fs/commit": method(
    "ours",
    "filesystem",
    copies.commitParams,
    copies.commitResult,
    "Ends a part: checks its size and SHA-256, sets its attributes, renames it to `path` and closes its handle.",
  ),

  "http/request": method(
    "current",
    "http",
    http.requestParams,
    http.requestResult,
    "An HTTP request made from the server's host; the body whole, or streamed.",
  ),

  "forward/open": method(
    "ours",
    "forwarding",
    forward.openParams,
    unit,
    "Connects from the server's machine to a TCP port; answered once it is connected. Refused unless the server was started with `--allow-forward`, which lets in loopback targets and those it names. A stream ends with its connection. In each direction 256 KiB may be under way: of `forward/write` until its answer, of `forward/data` until `forward/ack`.",
  ),
  "forward/write": method(
    "ours",
    "forwarding",
    forward.writeParams,
    unit,
    "Sends at most 64 KiB; answered when the target has taken it. Several may be under way, and keep their order.",
  ),
  "forward/end": method(
    "ours",
    "forwarding",
    forward.streamParams("ForwardEndParams"),
    unit,
    "Nothing more will be written; the target may still send.",
  ),
  "forward/close": method(
    "ours",
    "forwarding",
    forward.streamParams("ForwardCloseParams"),
    unit,
    "Ends a stream in both directions at once: the target sees a reset.",
  ),
  "forward/listen": method(
    "ours",
    "forwarding",
    forward.listenParams,
    forward.listenResult,
    "Listens at the server's machine, by the same rules as `forward/open`. The listener is the session's: it stays when the connection is lost, and who connects meanwhile waits until the session is resumed.",
  ),
  "forward/unlisten": method(
    "ours",
    "forwarding",
    forward.unlistenParams,
    unit,
    "Ends a listener; its streams go on.",
  ),
  "forward/watchPorts": method(
    "ours",
    "forwarding",
    forward.watchPortsParams,
    unit,
    "From now on, and until the connection ends, `forward/ports` tells what processes of this session listen on.",
  ),
} as const satisfies Record<string, Method<never, never> | Method>;

export type MethodName = keyof typeof methods;
export type ParamsOf<M extends MethodName> = Infer<(typeof methods)[M]["params"]>;
export type ResultOf<M extends MethodName> = Infer<(typeof methods)[M]["result"]>;

export function isMethodName(name: string): name is MethodName {
  return Object.hasOwn(methods, name);
}

export interface Notification<P = unknown> {
  generation: Generation;
  params: Schema<P>;
  doc: string;
}

function notification<P>(generation: Generation, params: Schema<P>, doc: string): Notification<P> {
  return { generation, params, doc };
}

/** Notifications that the server sends. */
export const serverNotifications = {
  "process/output": notification("current", process.outputParams, "A chunk of output."),
  "process/exited": notification(
    "current",
    process.exitedParams,
    "The process has ended; what it wrote came before.",
  ),
  "process/closed": notification(
    "current",
    process.closedParams,
    "All writers of its output are gone. The last word.",
  ),
  "process/started": notification(
    "ours",
    process.startedParams,
    "Extension `started`: it runs, under this pid.",
  ),
  "process/failed": notification(
    "ours",
    process.failedParams,
    "Extension `failed`: it can no longer be followed.",
  ),
  "process/roleChanged": notification(
    "ours",
    attach.roleChangedParams,
    "To a session that has attached to a process: somebody else's act has changed its role.",
  ),
  "process/driverChanged": notification(
    "ours",
    attach.driverChangedParams,
    "Extension `attach`, to the session that owns the process: another session drives it now, or none does any more.",
  ),
  "process/resized": notification(
    "ours",
    attach.resizedParams,
    "Extension `attach`, to every session that has the process: its terminal has this size from the output after `afterSeq` on. Told before that output. Who attaches is told all changes so far, with the size it began with, if there were any; so is who resumes its session.",
  ),
  "process/gap": notification(
    "ours",
    attach.gapParams,
    "To a session that has attached to a process: this output is no longer retained and was not told to it.",
  ),
  "fs/missingChanged": notification(
    "current",
    fs.missingChangedParams,
    "One of the watched paths has appeared.",
  ),
  "http/request/bodyDelta": notification("current", http.bodyDeltaParams, "A piece of a streamed HTTP body."),
  "forward/data": notification("ours", forward.dataParams, "A piece of a stream."),
  "forward/ended": notification(
    "ours",
    forward.endedParams,
    "The target will send no more; it may still be written to.",
  ),
  "forward/closed": notification(
    "ours",
    forward.closedParams,
    "The stream is over: ended in both directions, or broken for the reason told.",
  ),
  "forward/accepted": notification(
    "ours",
    forward.acceptedParams,
    "Somebody connected to a listener: a new stream.",
  ),
  "forward/ports": notification(
    "ours",
    forward.portsParams,
    "What processes of this session listen on has changed.",
  ),
  "command/exec/outputDelta": notification(
    "v0",
    object("ExecOutputDeltaNotification", {
      sessionId: id,
      stream: oneOf("stdout", "stderr"),
      chunk: bytes,
    }),
    "A chunk of output of a v0 process; a terminal's is `stdout`.",
  ),
  "command/exec/exited": notification(
    "v0",
    object("ExecExitedNotification", { sessionId: id, exitCode: i32 }),
    "A v0 process has ended.",
  ),
} as const satisfies Record<string, Notification<never> | Notification>;

export type ServerNotificationName = keyof typeof serverNotifications;
export type ServerNotificationParams<N extends ServerNotificationName> = Infer<
  (typeof serverNotifications)[N]["params"]
>;
/** Any notification the server sends, with its params. */
export type ServerNotification = {
  [N in ServerNotificationName]: { method: N; params: ServerNotificationParams<N> };
}[ServerNotificationName];

export function isServerNotificationName(name: string): name is ServerNotificationName {
  return Object.hasOwn(serverNotifications, name);
}

/** Notifications that the client sends. Any other closes the connection. */
export const clientNotifications = {
  initialized: notification("v0", unknown, "The handshake is done; params are ignored."),
  "process/ack": notification(
    "ours",
    process.ackParams,
    "Extension `outputAck`: everything up to `seq` is safe with the client and may be evicted.",
  ),
  "forward/ack": notification(
    "ours",
    forward.ackParams,
    "So many more bytes of a stream have been dealt with: as many may follow.",
  ),
} as const satisfies Record<string, Notification<never> | Notification>;

/** The version `initialize` answers; the seeds' word for it. */
export const PROTOCOL_VERSION = "exec-server.v0";
