/**
 * The API of the package `procwire-client`: processes, files, HTTP requests and ports, on the local host and on servers.
 * `procwire` re-exports it.
 *
 * @packageDocumentation
 */

import "./needs-node.ts";

// ---- environments

export type { EnvironmentOptions } from "./client/node/environment.ts";
export type { EnvironmentRunOptions, SpawnOptions } from "./client/node/environment-commands.ts";
export { CommandError } from "./client/node/environment-commands.ts";
export { readEnvironmentsToml } from "./client/node/environments-toml.ts";
export type { SpawnedProcess } from "./client/node/spawned-process.ts";
export { Environment } from "./host/local-environment.ts";

// ---- processes

export type { ProcessLimits } from "./exec/backend/process-limits.ts";
export type {
  ExecBackend,
  ExecEvent,
  ExecProcess,
  ExitReason,
  ExitStatus,
  Lifetime,
  OutputStream,
  ProcessListing,
  StartParams,
  TerminalSize,
  TerminateMode,
  WaitResult,
  WriteStatus,
} from "./exec/exec-process.ts";
export { communicate } from "./exec/run/communicate.ts";
export { lines } from "./exec/run/lines.ts";
export type { RunOptions, RunResult } from "./exec/run/run-program.ts";
export { run } from "./exec/run/run-program.ts";
export { waitFor } from "./exec/wait/wait-for-output.ts";
export { createLocalBackend } from "./host/create-local-backend.ts";

// ---- client

export type { ConnectionState } from "./client/exec-server-client.ts";
export type { RemoteFiles } from "./client/files/remote-files.ts";
export type {
  WebSocketClientOptions,
  WebSocketClientOptions as RemoteExecServerConnectArgs,
} from "./client/node/node-client.ts";
export { NodeExecServerClient as ExecServerClient } from "./client/node/node-client.ts";
export type { ExecServerLaunchCommand, SpawnedExecServer } from "./client/node/spawn-exec-server.ts";
export { spawnLocalExecServer } from "./client/node/spawn-exec-server.ts";
export type { AttachedProcess, AttachOptions } from "./client/process/attached-process.ts";
export type { RemoteProcess } from "./client/process/remote-process.ts";
export type { ReconnectPolicy } from "./client/session/reconnect-policy.ts";

// ---- files and ports

export { copyFiles } from "./client/copy/copy-files.ts";
export type { CopyResult } from "./client/copy/copy-types.ts";
export type { ForwardedPort, ForwardPortOptions } from "./client/node/port-forward.ts";
export { forwardPort, forwardPortBack, forwardSocks } from "./client/node/port-forward.ts";

// ---- errors

export { TimeoutError } from "./async/deadline.ts";
export { DisconnectedError, RequestError } from "./protocol/errors.ts";
export { ExecServerError } from "./protocol/exec-server-error.ts";

// ---- versions, and types of the v0 protocol

export type { ExecServerEvent } from "./client/process/v0-client.ts";
export type * from "./client/v0-type-aliases.ts";
export { PROTOCOL_VERSION } from "./protocol/methods.ts";
export { VERSION } from "./version.ts";
