import * as attach from "./attach-schemas.ts";
import * as copies from "./copy-schemas.ts";
import * as fs from "./file-schemas.ts";
import * as forward from "./forward-schemas.ts";
import * as http from "./http-schemas.ts";
import * as network from "./network/network-schemas.ts";
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
  u64,
  unknown,
} from "./schema.ts";

/**
 * The method table: every request and notification, once. Types, decoding, encoding, handshake checks and PROTOCOL.md
 * are derived from it. `scripts/docs/protocol-texts.ts` has the descriptions, which no program needs at run time.
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
  | "console"
  | "access"
  | "capability discovery";

export interface MethodSpec<P = unknown, R = unknown> {
  version: ProtocolVersion;
  /** Null if the method may be called before the handshake is complete. */
  family: Family | null;
  params: Schema<P>;
  result: Schema<R>;
}

function method<P, R>(
  version: ProtocolVersion,
  family: Family | null,
  params: Schema<P>,
  result: Schema<R>,
): MethodSpec<P, R> {
  return { version, family, params, result };
}

/** Description of the host in `initialize` and `environment/info`. Clients require only `shell`. */
export const environmentInfo = object("EnvironmentInfo", () => ({
  shell: process.shellInfo,
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
  /** Version of Landlock in the kernel, which sandboxes use in addition to their mounts; absent without it. */
  landlockVersion: extended(i32),
  /** Identifies the run of the server. */
  generation: extended(string),
}));
export interface EnvironmentInfo extends Infer<typeof environmentInfo> {}

/** Extensions that a client may request in `initialize`. Only the extensions in the response are active. */
export const EXTENSIONS = ["started", "failed", "outputAck", "attach", "queryClaims", "names", "binaryBlocks"] as const;
export type Extension = (typeof EXTENSIONS)[number];

/** A result whose members the host decides. */
const anyObject = unknown as Schema<Record<string, unknown>>;

export const methods = {
  initialize: method(
    "v0",
    null,
    object("InitializeParams", () => ({
      clientName: string,
      resumeSessionId: nullish(id),
      extensions: nullish(array(string)),
      takeOver: nullish(boolean),
      takeOverFrom: nullish(string),
    })),
    object("InitializeResult", () => ({
      protocolVersion: nullish(string),
      sessionId: nullish(string),
      environmentInfo: nullish(environmentInfo),
      extensions: optional(array(string)),
      attachmentId: extended(string),
      generation: extended(string),
    })),
  ),
  "environment/info": method("current", "environment info", noParams, environmentInfo),
  "environment/status": method(
    "current",
    "environment status",
    noParams,
    object("EnvironmentStatus", () => ({ status: string })),
  ),
  "environmentConfig/read": method(
    "current",
    "environment config",
    object("EnvironmentConfigReadParams", () => ({
      cwd: pathUri,
      configPaths: array(array(string)),
      requirementsPaths: array(array(string)),
    })),
    anyObject,
  ),
  "capabilityRoots/discoverV1": method(
    "current",
    "capability discovery",
    object("WireCapabilityRootsDiscoverParams", () => ({
      roots: array(object("CapabilityRoot", () => ({ id: string, path: pathUri, sandbox: process.nullishSandbox }))),
    })),
    anyObject,
  ),
  "capabilities/discoverV2": method(
    "current",
    "capability discovery",
    object("DiscoverV2CapabilitiesRequest", () => ({ cwd: pathUri })),
    anyObject,
  ),

  "command/exec": method(
    "v0",
    "exec",
    object("ExecParams", () => ({
      argv: array(string),
      cwd: string,
      env: map(string),
      tty: boolean,
      arg0: nullish(string),
    })),
    object("ExecResult", () => ({ sessionId: id })),
  ),
  "command/exec/write": method(
    "v0",
    "exec",
    object("ExecWriteParams", () => ({ sessionId: id, chunk: bytes })),
    object("ExecWriteResult", () => ({ accepted: boolean })),
  ),
  "command/exec/terminate": method(
    "v0",
    "exec",
    object("ExecTerminateParams", () => ({ sessionId: id })),
    object("ExecTerminateResult", () => ({ running: boolean })),
  ),

  "process/start": method("current", "exec", process.startParams, process.startResult),
  "process/read": method("current", "exec", process.readParams, process.readResult),
  "process/write": method("current", "exec", process.writeParams, process.writeResult),
  "process/signal": method("current", "exec", process.signalParams, noParams),
  "process/terminate": method("current", "exec", process.terminateParams, process.terminateResult),
  "process/closeStdin": method("ours", "exec", process.processIdParams("CloseStdinParams"), process.closeStdinResult),
  "process/resize": method("ours", "exec", process.resizeParams, noParams),
  "process/wait": method("ours", "exec", process.waitParams, process.waitResult),
  "process/snapshot": method("ours", "exec", process.processIdParams("SnapshotParams"), process.snapshotResult),
  "process/list": method("ours", "exec", process.listParams, process.listResult),
  "process/attach": method("ours", "exec", attach.attachParams, attach.attachResult),
  "process/detach": method("ours", "exec", process.processIdParams("DetachParams"), noParams),
  "process/screen": method("ours", "exec", process.processIdParams("ScreenParams"), attach.screen),
  "process/inputs": method("ours", "exec", process.processIdParams("InputsParams"), attach.inputsResult),
  "process/claimQueries": method("ours", "exec", attach.claimQueriesParams, attach.claimQueriesResult),
  "process/tree": method("ours", "exec", attach.treeParams, attach.treeResult),
  "process/connections": method("ours", "exec", network.connectionsParams, network.connectionsResult),
  "process/share": method("ours", "exec", attach.shareParams, attach.shareResult),
  "process/listShares": method("ours", "exec", attach.listSharesParams, attach.listSharesResult),
  "process/revokeShare": method("ours", "exec", attach.revokeShareParams, attach.revokeShareResult),
  "process/kill": method("ours", "exec", attach.killParams, process.terminateResult),

  "network/ask": method("ours", "exec", network.askNetworkParams, network.askNetworkResult),
  "network/questions": method("ours", "exec", noParams, network.networkQuestionsResult),
  "network/answer": method("ours", "exec", network.answerNetworkParams, network.answerNetworkResult),

  "fs/readFile": method("current", "filesystem", fs.readFileParams, fs.readFileResult),
  "fs/writeFile": method("current", "filesystem", fs.writeFileParams, noParams),
  "fs/createDirectory": method("current", "filesystem", fs.createDirectoryParams, noParams),
  "fs/getMetadata": method("current", "filesystem", fs.getMetadataParams, fs.metadataResult),
  "fs/canonicalize": method("current", "filesystem", fs.canonicalizeParams, fs.canonicalizeResult),
  "fs/readDirectory": method("current", "filesystem", fs.readDirectoryParams, fs.readDirectoryResult),
  "fs/walk": method("current", "filesystem", fs.walkParams, fs.walkResult),
  "fs/remove": method("current", "filesystem", fs.removeParams, noParams),
  "fs/copy": method("current", "filesystem", fs.copyParams, noParams),
  "fs/open": method("current", "filesystem", fs.openParams, fs.openResult),
  "fs/readBlock": method("current", "filesystem", fs.readBlockParams, fs.readBlockResult),
  "fs/writeBlock": method("current", "filesystem", fs.writeBlockParams, noParams),
  "fs/close": method("current", "filesystem", fs.closeParams, noParams),
  "fs/watchMissing": method("current", "filesystem", fs.watchMissingParams, fs.watchMissingResult),

  "fs/scan": method("ours", "filesystem", copies.scanParams, copies.scanResult),
  "fs/writeAtomic": method("ours", "filesystem", copies.writeAtomicParams, noParams),
  "fs/setAttributes": method("ours", "filesystem", copies.setAttributesParams, noParams),
  "fs/openPartial": method("ours", "filesystem", copies.openPartialParams, copies.openPartialResult),
  "fs/checksum": method("ours", "filesystem", copies.checksumParams, copies.checksumResult),
  "fs/commit": method("ours", "filesystem", copies.commitParams, noParams),

  "http/request": method("current", "http", http.requestParams, http.requestResult),

  "forward/open": method("ours", "forwarding", forward.openParams, noParams),
  "forward/write": method("ours", "forwarding", forward.writeParams, noParams),
  "forward/end": method("ours", "forwarding", forward.streamParams("ForwardEndParams"), noParams),
  "forward/close": method("ours", "forwarding", forward.streamParams("ForwardCloseParams"), noParams),
  "forward/listen": method("ours", "forwarding", forward.listenParams, forward.listenResult),
  "forward/unlisten": method("ours", "forwarding", forward.unlistenParams, noParams),
  "forward/watchPorts": method("ours", "forwarding", forward.watchPortsParams, noParams),

  "access/list": method("ours", "access", noParams, attach.listAccessesResult),
  "access/revoke": method("ours", "access", attach.revokeAccessParams, attach.revokeAccessResult),
  "token/revoke": method("ours", "access", attach.revokeTokenParams, attach.revokeTokenResult),

  "console/login": method(
    "ours",
    "console",
    noParams,
    object("ConsoleLoginResult", () => ({
      /** Fragment of the login URL, with a token that works once. */
      fragment: string,
      validMs: u64,
    })),
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
  /** The extension that a client must request to use the notification. Absent: none. */
  extension?: Extension | undefined;
}

function notification<P>(version: ProtocolVersion, params: Schema<P>, extension?: Extension): NotificationSpec<P> {
  return { version, params, extension };
}

/** Notifications that the server sends. */
export const serverNotifications = {
  "process/output": notification("current", process.outputParams),
  "process/exited": notification("current", process.exitedParams),
  "process/closed": notification("current", process.closedParams),
  "process/started": notification("ours", process.startedParams, "started"),
  "process/failed": notification("ours", process.failedParams, "failed"),
  "process/roleChanged": notification("ours", attach.roleChangedParams),
  "process/driverChanged": notification("ours", attach.driverChangedParams, "attach"),
  "process/resized": notification("ours", attach.resizedParams, "attach"),
  "process/gap": notification("ours", attach.gapParams),
  "network/policyDecision": notification("current", network.policyDecisionParams),
  "fs/missingChanged": notification("current", fs.missingChangedParams),
  "http/request/bodyDelta": notification("current", http.bodyDeltaParams),
  "forward/data": notification("ours", forward.dataParams),
  "forward/ended": notification("ours", forward.endedParams),
  "forward/closed": notification("ours", forward.closedParams),
  "forward/accepted": notification("ours", forward.acceptedParams),
  "forward/ports": notification("ours", forward.portsParams),
  "command/exec/outputDelta": notification(
    "v0",
    object("ExecOutputDeltaNotification", () => ({
      sessionId: id,
      stream: enumOf("stdout", "stderr"),
      chunk: bytes,
    })),
  ),
  "command/exec/exited": notification(
    "v0",
    object("ExecExitedNotification", () => ({ sessionId: id, exitCode: i32 })),
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

export interface ServerRequestSpec<P = unknown, R = unknown> {
  version: ProtocolVersion;
  params: Schema<P>;
  result: Schema<R>;
}

/** Requests that the server sends. Their ids are integers from 1 per connection. */
export const serverRequests = {
  "network/policyRequest": {
    version: "current",
    params: network.policyRequestParams,
    result: network.policyRequestResult,
  },
} as const satisfies Record<string, ServerRequestSpec<never, never> | ServerRequestSpec>;

export type ServerRequestName = keyof typeof serverRequests;
/** A request of the server with its params. */
export type ServerRequest = {
  [N in ServerRequestName]: { method: N; params: Infer<(typeof serverRequests)[N]["params"]> };
}[ServerRequestName];
export type ServerRequestResult = Infer<(typeof serverRequests)[ServerRequestName]["result"]>;

export function isServerRequestName(name: string): name is ServerRequestName {
  return Object.hasOwn(serverRequests, name);
}

/** Handles a request of the server. A rejection becomes an error response. The signal aborts when the request has ended. */
export type HandleServerRequest = (request: ServerRequest, signal: AbortSignal) => Promise<ServerRequestResult>;

/** Notifications that the client sends. The server closes the connection on any other notification. */
export const clientNotifications = {
  initialized: notification("v0", unknown),
  "process/ack": notification("ours", process.ackParams, "outputAck"),
  "forward/ack": notification("ours", forward.ackParams),
} as const satisfies Record<string, NotificationSpec<never> | NotificationSpec>;

/** The protocol version in the response to `initialize`, as v0 defines it. */
export const PROTOCOL_VERSION = "exec-server.v0";
