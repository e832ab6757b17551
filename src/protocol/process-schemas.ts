import { isObject } from "../base/type-guards.ts";
import { managedNetwork, networkProxy } from "./network/network-schemas.ts";
import { pathUri } from "./path-uri-schema.ts";
import { listedLabels, processLabels, processName } from "./process-labels.ts";
import {
  array,
  boolean,
  bytes,
  checkedString,
  DecodeError,
  enumOf,
  extended,
  f64,
  type Infer,
  i32,
  id,
  map,
  nullable,
  nullish,
  object,
  optional,
  type Schema,
  string,
  taggedUnion,
  u16,
  u64,
  usize,
} from "./schema.ts";

/** Schemas of `process/*`: the Codex protocol and the additions of procwire. */

export const outputStream = enumOf("stdout", "stderr", "pty");
/** Sandbox mechanism of a process. */
export const sandboxType = enumOf("none", "linuxSeccomp", "macosSeatbelt", "windowsRestrictedToken");
export const terminalSize = object("TerminalSize", () => ({ rows: u16, cols: u16 }));
/** Why a process ended. */
export const exitReason = enumOf("exited", "signaled", "timeout", "terminated", "sessionExpired", "limit");

/** Lifetime of a process: until its session ends, until the server exits, or (`persistent`) beyond the server. */
export const lifetime = enumOf("session", "server", "persistent");

/** How the environment of a process is derived from the host's. `exec/backend/secret-filter.ts` defines the order. */
export const envPolicy = object("ExecEnvPolicy", () => ({
  inherit: enumOf("all", "core", "none"),
  ignoreDefaultExcludes: boolean,
  exclude: array(string),
  set: map(string),
  includeOnly: array(string),
}));

const UUID = /^[0-9a-f]{8}-?[0-9a-f]{4}-?[0-9a-f]{4}-?[0-9a-f]{4}-?[0-9a-f]{12}$/i;

const uuid = checkedString("UUID string", (text) => {
  if (!UUID.test(text)) throw new DecodeError(`invalid UUID \`${text}\``);
});

/** Checks only the required members. The code that enforces the sandbox reads the others. */
const sandboxRequest: Schema<Record<string, unknown>> = {
  doc: "SandboxIntent",
  encode: (value) => value,
  decode: (value) => {
    if (!isObject(value)) throw new DecodeError("invalid type for `sandbox`, expected struct FileSystemSandboxContext");
    for (const field of ["permissions", "windowsSandboxLevel"]) {
      if (value[field] === undefined) throw new DecodeError(`missing field \`${field}\``);
    }
    return value;
  },
};

export const nullishSandbox = nullish(sandboxRequest);

const limits = {
  /** Time since the start, by the monotonic clock. */
  wallTimeMs: nullish(u64),
  /** Applies to each process of the tree separately. Rounded up to full seconds. */
  cpuTimeMs: nullish(u64),
  /** Applies to the whole process tree. Requires a memory cgroup. */
  memoryBytes: nullish(u64),
  /** Heap and data of each process of the tree separately. For hosts without a memory cgroup. */
  processMemoryBytes: nullish(u64),
  /** Applies to each process of the tree separately. */
  openFiles: nullish(u64),
  /** Concurrent processes and threads of the whole process tree. Requires a pids cgroup. */
  processes: nullish(u64),
  /** Sum of all streams. Further output is dropped. */
  outputBytes: nullish(u64),
};
export type LimitName = keyof typeof limits;
export const LIMIT_NAMES = Object.keys(limits) as LimitName[];

export const limitName = enumOf(...LIMIT_NAMES);
/** Resource limits of a process. Absent limits are off. The server rejects a limit that it cannot enforce. */
export const processLimits = object("ProcessLimits", () => limits);

/**
 * Replaces the default excludes of `envPolicy`. Removes host variables that look like secrets, by whole words of their
 * names and by their values, except those in `inherit`. `exec/backend/secret-filter.ts` has the lists.
 */
export const secretGuard = object("SecretGuard", () => ({ inherit: array(string) }));

/** Text, because inode numbers exceed the exact range of JSON numbers. */
const directoryIdentity = checkedString('"device:inode"', (text) => {
  if (!/^\d{1,20}:\d{1,20}$/.test(text))
    throw new DecodeError(`invalid cwdIdentity \`${text}\`, expected \`device:inode\` in decimal digits`);
});

export const shellInfo = object("ShellInfo", () => ({ name: string, path: string }));

export const terminalQueries = enumOf("server", "client", "claimed");

export const startParams = object("WireExecParams", () => ({
  /** Chosen by the client. Unique among the processes of its session. */
  processId: id,
  /** Command and arguments. `argv[0]` is resolved with the PATH of the process's own environment. */
  argv: array(string),
  cwd: pathUri,
  /** The complete environment, or additions to it if `envPolicy` is set. */
  env: map(string),
  tty: boolean,
  /** Opens stdin for writes. Default: false, stdin is /dev/null. Ignored with `tty`. */
  pipeStdin: nullish(boolean),
  /** The `argv[0]` that the process sees. Does not change the executable. */
  arg0: nullish(string),
  envPolicy: nullish(envPolicy),
  metadata: nullish(object("ExecMetadata", () => ({ threadId: nullish(uuid), toolCallId: nullish(string) }))),
  sandbox: nullishSandbox,
  enforceManagedNetwork: nullish(boolean),
  managedNetwork: nullish(managedNetwork),
  networkProxy: nullish(networkProxy),
  /**
   * Names of credentials that the server defines. The process gets a placeholder per name, and its network proxy puts the
   * secret into requests. Requires `networkProxy`, `enforceManagedNetwork` and a sandbox. An addition of procwire.
   */
  credentials: nullish(array(string)),
  shellSnapshot: nullish(object("ShellSnapshot", () => ({ scopeId: string, shell: shellInfo }))),
  /** Initial terminal size. Ignored without `tty`. */
  size: nullish(terminalSize),
  /** `prepared`: the client's policy already resolved this request. */
  mode: nullish(enumOf("direct", "prepared")),
  /** Returned unchanged for a prepared request. */
  sandboxType: nullish(sandboxType),
  /** Terminates the process tree after this time: SIGTERM, grace period, SIGKILL. */
  timeoutMs: nullish(u64),
  /** Applies only if `envPolicy` has default excludes. */
  secretGuard: nullish(secretGuard),
  /** The server rejects a limit that it cannot enforce. */
  limits: nullish(processLimits),
  cwdIdentity: nullish(directoryIdentity),
  /** Default: `session`. `persistent` requires a supervised server. */
  lifetime: nullish(lifetime),
  /** Terminates the process after this time with reason `timeout`, independent of its lifetime. */
  maxAgeMs: nullish(u64),
  /**
   * Selects the responder to terminal queries (cursor, attributes, colors, modes). `server`: the server's terminal responder.
   * `client`: this client's terminal. `claimed`: this client's terminal for queries claimed with `process/claimQueries`,
   * and the server while the session is detached. Absent: no reply, except from the server while a driver is attached.
   */
  terminalQueries: nullish(terminalQueries),
  /** Stores input bytes for `process/inputs`, except input that the terminal does not echo. */
  recordInput: nullish(boolean),
  /** Unique among the live processes of the principal. The server frees it when the process exits. */
  name: nullish(processName),
  /** At most 32 labels, for filters. A key has at most 63 characters, a value at most 256. */
  labels: nullish(processLabels),
}));
export interface WireStartParams extends Infer<typeof startParams> {}

export const startResult = object("StartResult", () => ({
  processId: id,
  sandboxType: nullish(sandboxType),
  /** Public handle of the process. */
  handle: extended(string),
  droppedEnv: optional(array(string)),
  /** Kernel process id. Absent if the host does not know it. */
  pid: extended(u64),
}));

/** A range of evicted output. */
export const gapFields = {
  fromSeq: u64,
  toSeq: u64,
  /** Null if the server did not count the evicted bytes. */
  bytes: nullable(u64),
};
export const gap = object("Gap", () => gapFields);

export const readParams = object("ReadParams", () => ({
  processId: id,
  /** Returns only output with a greater sequence number. Default: 0. */
  afterSeq: nullish(u64),
  /** Maximum bytes, in whole chunks, but at least one chunk. Default: all retained output. */
  maxBytes: nullish(usize),
  /** Maximum time to wait for new output. Default: 0. */
  waitMs: nullish(u64),
  /** Returns the time of each chunk. */
  times: nullish(boolean),
}));

export const outputChunk = object("OutputChunk", () => ({ seq: u64, stream: outputStream, chunk: bytes }));

export const readResult = object("ReadResult", () => ({
  chunks: array(outputChunk),
  /** Pass `nextSeq - 1` as `afterSeq` of the next read. */
  nextSeq: u64,
  exited: boolean,
  exitCode: nullable(i32),
  closed: boolean,
  /** Set if the server lost track of the process. */
  failure: nullable(string),
  sandboxDenied: optional(boolean),
  /** Evicted output after `afterSeq`. */
  gap: optional(gap),
  /** With `times`: time of each chunk in milliseconds since the start of the process. */
  times: optional(array(u64)),
  /** With `times`: age of the process in milliseconds. */
  ageMs: optional(u64),
}));

/** Idempotency key of a write. Must not be empty. Writes without it are not deduplicated. */
const writeId = checkedString("string", (text) => {
  if (id.decode(text) === "") throw new DecodeError("writeId must not be empty");
});

export const writeParams = object("WriteParams", () => ({
  processId: id,
  chunk: bytes,
  writeId: nullish(writeId),
}));
export const writeResult = object("WriteResult", () => ({
  status: enumOf("accepted", "unknownProcess", "stdinClosed", "starting"),
}));

export const processIdParams = (name: string) => object(name, () => ({ processId: id }));

export const closeStdinResult = object("CloseStdinResult", () => ({
  status: enumOf("accepted", "stdinClosed", "unknownProcess"),
}));

export const resizeParams = object("ResizeParams", () => ({ processId: id, size: terminalSize }));

/** Syntax of a signal name. The host validates the name. */
export const SIGNAL_NAME = /^(?:interrupt|[A-Z][A-Z0-9]*(?:[+-]\d{1,2})?)$/;

export const signalName: Schema<string> = {
  ...string,
  doc: '"interrupt" or a signal name',
  decode: (value) => {
    if (typeof value !== "string") {
      throw new DecodeError(`invalid type: ${value === null ? "null" : typeof value}, expected string or map`);
    }
    if (!SIGNAL_NAME.test(value))
      throw new DecodeError(`unknown variant \`${value}\`, expected \`interrupt\` or a signal name`);
    return value;
  },
};
export const signalParams = object("SignalParams", () => ({ processId: id, signal: signalName }));

export const terminateMode = taggedUnion("TerminateMode", { graceful: { timeoutMs: u64 }, force: {} });
export const terminateParams = object("TerminateParams", () => ({
  processId: id,
  mode: nullish(terminateMode),
}));
export const terminateResult = object("TerminateResult", () => ({
  /** Whether the process had not exited before the call. */
  running: boolean,
  /** Pids of descendants that survived SIGKILL; absent if there are none. */
  survivors: optional(array(u64)),
}));

export const waitCondition = taggedUnion("WaitCondition", {
  exit: {},
  /** `pattern` is a linear-time (RE2) regular expression, matched against the output as text. */
  output: { pattern: string, stream: nullish(outputStream) },
  idle: { quietMs: u64 },
  port: { port: u16 },
  bytes: { count: u64 },
});

export const waitParams = object("WaitParams", () => ({
  processId: id,
  /** Default: `exit`. */
  until: nullish(waitCondition),
  /** Considers output after this sequence number. Default: 0, which includes output before the call. */
  afterSeq: nullish(u64),
  /** Default: no timeout. */
  timeoutMs: nullish(u64),
}));
export const waitResult = object("WaitResult", () => ({
  reason: enumOf("exited", "matched", "idle", "listening", "reached", "timeout", "closed"),
  exitCode: nullable(i32),
  signal: nullable(string),
  /** Absent while the process runs. */
  exitReason: optional(exitReason),
  /** The limit that ended the process; absent for other exit reasons. */
  limit: optional(limitName),
  /** The text that matched the output pattern. */
  match: optional(string),
  /** Last sequence number at the end of the wait. */
  seq: u64,
}));

export const ttyState = object("TtyState", () => ({
  rows: u16,
  cols: u16,
  /** Off at a password prompt. */
  echo: boolean,
  /** Line-by-line input, as for `read` in a shell; off in full-screen programs. */
  canonical: boolean,
}));

export const snapshotResult = object("Snapshot", () => ({
  stdout: bytes,
  stderr: bytes,
  terminal: bytes,
  /** Whether output between head and tail of a stream was omitted. */
  truncated: boolean,
  omittedBytes: u64,
  totalBytes: u64,
  exitCode: nullable(i32),
  signal: nullable(string),
  running: boolean,
  tty: optional(ttyState),
  /** Public handle of the process. */
  handle: optional(string),
  /** When the process ends at the latest. */
  lifetime: extended(lifetime),
}));

/** Absent params list the processes of this session. */
const listFields = object("ListParams", () => ({
  allSessions: nullish(boolean),
  /** Includes the resource usage of each live process. */
  usage: nullish(boolean),
}));
export const listParams: typeof listFields = {
  ...listFields,
  decode: (value) => listFields.decode(value ?? {}),
};

/** Current state and exit reason of a process. */
export const processStatus = object("ProcessStatus", () => ({
  /** Absent while the process runs. */
  exitReason: optional(exitReason),
  /** The limit that ended the process; absent for other exit reasons. */
  limit: optional(limitName),
  /** Resource limits; absent without limits. */
  limits: optional(processLimits),
  /** Whether the process is paused, because a lossless reader is slow. */
  isHeld: optional(boolean),
  /** Input that the terminal waits for: a key, or hidden input such as a password. */
  awaits: optional(enumOf("key", "secret")),
}));

/** Resource usage of a process with its descendants. The server takes at most one sample per second for all clients. */
export const treeUsage = object("TreeUsage", () => ({
  /** CPU time since the start, including exited descendants that their parents waited for. */
  cpuMs: u64,
  /** CPU time since the previous sample, in percent of one core. Null in the first sample of the process. */
  cpuPercent: nullable(f64),
  /** Sum of the resident memory. Memory that several processes share counts for each of them. */
  memoryBytes: u64,
  /** Number of processes. */
  processes: u64,
}));

export const processListing = object("ProcessListing", () => ({
  processId: id,
  argv: array(string),
  cwd: string,
  tty: boolean,
  pid: nullable(u64),
  running: boolean,
  exitCode: nullable(i32),
  signal: nullable(string),
  startedAtMs: u64,
  outputBytes: u64,
  /** Public handle of the process, unique within the server. */
  handle: optional(string),
  /** Owner of the process. Present with `allSessions`; not sent to guests. */
  principal: optional(string),
  /** When the process ends at the latest. */
  lifetime: extended(lifetime),
  /** Exit reason, limits and input state. */
  status: extended(processStatus),
  /** Name from the start request; absent without one. */
  name: extended(string),
  /** Labels from the start request; absent without labels. */
  labels: extended(listedLabels),
  /** Sent on request only, for a live process on a host that reports it. */
  usage: extended(treeUsage),
}));
export const listResult = object("ListResult", () => ({ processes: array(processListing) }));

export const outputParams = object("OutputNotification", () => ({
  processId: id,
  seq: u64,
  stream: outputStream,
  chunk: bytes,
}));
export interface OutputNotification extends Infer<typeof outputParams> {}
export const exitedParams = object("ExitedNotification", () => ({
  processId: id,
  seq: u64,
  exitCode: i32,
  sandboxDenied: optional(boolean),
  /** Null if no signal ended the process. Absent from Codex servers, like `reason`. */
  signal: optional(nullable(string)),
  reason: optional(exitReason),
  limit: optional(limitName),
}));
export const closedParams = object("ClosedNotification", () => ({ processId: id, seq: u64 }));
export const startedParams = object("StartedNotification", () => ({ processId: id, pid: nullable(u64) }));
export const failedParams = object("FailedNotification", () => ({ processId: id, message: string }));
export const ackParams = object("AckNotification", () => ({ processId: id, seq: u64 }));
