/** Every other type that a signature of the package names: of this machine, of servers and of the tools. */

export type { ByteTurns } from "../async/byte-semaphore.ts";
export type { ByteLedger, GiveWay } from "../async/memory-budget.ts";
export type { NamedEnvironment } from "../client/node/environments-toml.ts";
export type { ListenAt } from "../connection/accepted-socket.ts";
export type { ByteCodec } from "../connection/byte-codec.ts";
export type { TlsMaterial } from "../connection/tls-listener.ts";
export type { Wire } from "../connection/wire-parts.ts";
export type { Fed, HostBackend, HostProcess } from "../exec/host-backend.ts";
export type { KeptSession, KeptSide, RestoredProcess } from "../exec/kept-process.ts";
export type { EventLog } from "../exec/log/event-log.ts";
export type { RetentionBudget } from "../exec/log/retention-budget.ts";
export type { ResolvedSandbox, ResolvedWalls } from "../exec/resolved-sandbox.ts";
export type { FileSystem } from "../files/file-system.ts";
export type { Child, ChildEnds, ChildEvents, ChildInput, RawExit, TreeCgroup } from "../local/child.ts";
export type { InheritedChild, KeptChildSide, KeptEntry, KeptMachine } from "../local/kept-child.ts";
export type {
  LocalBackend,
  LocalBackendOptions,
  SandboxedStart,
} from "../local/local-backend.ts";
export type { LocalProcess } from "../local/local-process.ts";
export type { Orphan } from "../local/tree/orphan-tracker.ts";
export type { JobsAnswer, JobsQuestion, RowsQuery } from "../protocol/console-job-schemas.ts";
export type { OperatorClaim } from "../server/auth/jwt.ts";
export type { AskJobs } from "../server/console/jobs-http-api.ts";
export type {
  EnvironmentService,
  HostServices,
  HttpService,
  LogLevel,
  PeerAddress,
  ServerLog,
  WalledFileServers,
} from "../server/host-services.ts";
export type { TracedRequest, Tracing } from "../server/observability/tracing.ts";
export type { Share } from "../server/principal.ts";
export type { YieldLimits } from "../tools/calls/yield-window.ts";
export type { McpOptions, McpServing } from "../tools/mcp/mcp-server.ts";
export type { ArchiveLimits } from "../tools/output/output-archive.ts";
export type { AskOnTerminalOptions } from "../tools/policy/ask-on-terminal.ts";
export type { ShellChoice } from "../tools/policy/shell-choice.ts";
export type {
  ExecCommandBegin,
  ExecCommandEnd,
  ExecCommandOutputDelta,
  TerminalDriver,
  TerminalInteraction,
  TerminalWaiting,
} from "../tools/sessions/exec-events.ts";
export type { SessionLimits } from "../tools/sessions/exec-session-table.ts";
export type { JsonSchema } from "../tools/tool.ts";
export type { LocalHost, LocalHostOptions } from "./local-host.ts";
export type { ThisMachineOptions } from "./this-machine.ts";
