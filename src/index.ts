/**
 * The public API and its composition.
 *
 * @packageDocumentation
 */

import "./needs-node.ts";

export { TimeoutError } from "./async/deadline.ts";
export type * from "./client/client-types.ts";
export { copyFiles } from "./client/copy/copy-files.ts";
export type { ExecServerClient as UniversalClient } from "./client/exec-server-client.ts";
export type {
  EnvironmentOptions,
  EnvironmentTarget,
  LocalEnvironmentParts,
} from "./client/node/environment.ts";
export type { Command, EnvironmentRunOptions, SpawnOptions } from "./client/node/environment-commands.ts";
export { CommandError } from "./client/node/environment-commands.ts";
export type { Environments } from "./client/node/environments-toml.ts";
export { readEnvironmentsToml } from "./client/node/environments-toml.ts";
export type {
  SocketClientOptions,
  UnixClientOptions,
  WebSocketClientOptions,
  WebSocketClientOptions as RemoteExecServerConnectArgs,
} from "./client/node/node-client.ts";
export { ExecServerClient } from "./client/node/node-client.ts";
export type { PipeOptions, PipeTarget } from "./client/node/pipe-output.ts";
export type { ForwardedPort, ForwardPortOptions } from "./client/node/port-forward.ts";
export { forwardPort, forwardPortBack } from "./client/node/port-forward.ts";
export type { ExecServerLaunchCommand, SpawnedExecServer } from "./client/node/spawn-exec-server.ts";
export { spawnLocalExecServer } from "./client/node/spawn-exec-server.ts";
export type { SpawnedProcess } from "./client/node/spawned-process.ts";
// ---- processes, wherever they run
export * from "./exec/exec-process.ts";
export { communicate } from "./exec/run/communicate.ts";
export { lines } from "./exec/run/lines.ts";
export { run } from "./exec/run/run-program.ts";
export { waitFor } from "./exec/wait/wait-for-output.ts";
export type * from "./host/host-types.ts";
export { Environment } from "./host/local-environment.ts";
export { createLocalHost } from "./host/local-host.ts";
export type { RunMainOptions } from "./host/run-main.ts";
export { runMain, runMainWithTransport } from "./host/run-main.ts";
// ---- this machine, and a server of one's own
export { createLocalBackend } from "./host/this-machine.ts";
// ---- the client, and what it hands out
export { DisconnectedError, RequestError } from "./protocol/errors.ts";
export { ExecServerError } from "./protocol/exec-server-error.ts";
export { PROTOCOL_VERSION } from "./protocol/methods.ts";
// ---- tools for models
export { availableSandboxes } from "./sandbox/sandbox-probe.ts";
export type { WebSocketAuth } from "./server/auth/websocket-auth.ts";
export type { WebOptions } from "./server/console/console-gateway.ts";
export { ExecServer } from "./server/exec-server.ts";
export type { ListenOptions } from "./server/listen/listen.ts";
export { listen } from "./server/listen/listen.ts";
export {
  DEFAULT_LISTEN_URL,
  ExecServerTransport,
  ListenUrlError,
  ListenUrlError as ExecServerTransportParseError,
} from "./server/listen/listen-url.ts";
export type { Listening } from "./server/listen/websocket-gateway.ts";
export type { ServerFigures } from "./server/observability/server-metrics.ts";
export type { Principal } from "./server/principal.ts";
export type { Cap, ServerCaps, ServerConfig } from "./server/server-config.ts";
export type { SharedRoom } from "./server/server-resources.ts";
export { definitions } from "./tools/calls/tool-definitions.ts";
export { serveMcp } from "./tools/mcp/mcp-server.ts";
export type {
  ApprovalAnswer,
  ApprovalPolicy,
  ApprovalRequest,
  ApprovalVerdict,
  AskCaller,
} from "./tools/policy/approval.ts";
export { askCaller } from "./tools/policy/ask-caller.ts";
export { askOnTerminal } from "./tools/policy/ask-on-terminal.ts";
export { neverAsk } from "./tools/policy/never-ask.ts";
export { loadRulesFile } from "./tools/policy/rules-file.ts";
export type { SandboxChoice } from "./tools/policy/sandbox-choice.ts";
export type { SessionEnd, UnifiedExecEvent } from "./tools/sessions/exec-events.ts";
export type { Tool, ToolCallContext, ToolDefinition, ToolOutput } from "./tools/tool.ts";
export type { UnifiedExec, UnifiedExecOptions } from "./tools/unified-exec.ts";
export { createUnifiedExec } from "./tools/unified-exec.ts";
export { VERSION } from "./version.ts";
// ---- this machine, and a server of one's own
