/**
 * The public API, by task. `docs/api.md` describes these names in the same groups (`scripts/docs/api-doc.ts`); types that only
 * appear inside of signatures are exported by `procwire/client` or not at all.
 *
 * @packageDocumentation
 */

import "./needs-node.ts";

export * from "./procwire-client.ts";

// ---- servers

export type { CreateLocalHostOptions } from "./host/local-host.ts";
export { createLocalHost } from "./host/local-host.ts";
export type { RunMainOptions } from "./host/run-main.ts";
export { runMain, runMainWithTransport } from "./host/run-main.ts";
export { ExecServer } from "./server/exec-server.ts";
export type { ListenOptions } from "./server/listen/listen.ts";
export { listen } from "./server/listen/listen.ts";
export {
  DEFAULT_LISTEN_URL,
  ExecServerTransport,
  ListenUrlError as ExecServerTransportParseError,
} from "./server/listen/listen-url.ts";
export type { ListeningServer } from "./server/listen/websocket-gateway.ts";
export type { ServerConfig } from "./server/server-config.ts";

// ---- tools for models

export { availableSandboxes } from "./sandbox/sandbox-probe.ts";
export { toolDefinitions } from "./tools/calls/tool-definitions.ts";
export { serveMcp } from "./tools/mcp/mcp-server.ts";
export type { ApprovalAnswer, ApprovalPolicy, ApprovalRequest } from "./tools/policy/approval.ts";
export { askCaller } from "./tools/policy/ask-caller.ts";
export { askOnTerminal } from "./tools/policy/ask-on-terminal.ts";
export { neverAsk } from "./tools/policy/never-ask.ts";
export { loadRulesFile } from "./tools/policy/rules-file.ts";
export type { UnifiedExecEvent } from "./tools/sessions/exec-events.ts";
export type { Tool, ToolOutput } from "./tools/tool.ts";
export type { UnifiedExec, UnifiedExecOptions } from "./tools/unified-exec.ts";
export { createUnifiedExec } from "./tools/unified-exec.ts";
