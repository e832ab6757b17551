import { pathUri } from "./path-uri-schema.ts";
import {
  array,
  boolean,
  bytes,
  DecodeError,
  type Infer,
  i32,
  id,
  isObject,
  map,
  nullable,
  object,
  oneOf,
  optional,
  type Schema,
  string,
  tagged,
  u16,
  u64,
  unknown,
  usize,
} from "./schema.ts";

/** The shapes of `process/*`, the current generation together with what procwire adds to it. */

export const outputStream = oneOf("stdout", "stderr", "pty");
/** Which walls stand around a process. */
export const sandboxType = oneOf("none", "linuxSeccomp", "macosSeatbelt", "windowsRestrictedToken");
export const terminalSize = object("TerminalSize", { rows: u16, cols: u16 });
/** Why a process ended. */
export const exitReason = oneOf("exited", "signaled", "timeout", "terminated", "sessionExpired", "limit");

/** How long a process may live: as long as its session, or as long as the server. */
export const lifetime = oneOf("session", "server", "kept");

/** How a child's environment is made from the host's; `exec/host-environment.ts` has the order of the steps. */
export const envPolicy = object("ExecEnvPolicy", {
  inherit: oneOf("all", "core", "none"),
  ignoreDefaultExcludes: boolean,
  exclude: array(string),
  set: map(string),
  includeOnly: array(string),
});

const UUID = /^[0-9a-f]{8}-?[0-9a-f]{4}-?[0-9a-f]{4}-?[0-9a-f]{4}-?[0-9a-f]{12}$/i;

const uuid: Schema<string> = {
  ...string,
  doc: "UUID string",
  decode: (value) => {
    const text = string.decode(value);
    if (!UUID.test(text)) throw new DecodeError(`invalid UUID \`${text}\``);
    return text;
  },
};

/** Only the members every intent must have are checked here; the code that enforces it reads the rest. */
const sandboxIntent: Schema<Record<string, unknown>> = {
  doc: "SandboxIntent",
  encode: (value) => value,
  decode: (value) => {
    if (!isObject(value))
      throw new DecodeError("invalid type for `sandbox`, expected struct FileSystemSandboxContext");
    for (const field of ["permissions", "windowsSandboxLevel"]) {
      if (value[field] === undefined) throw new DecodeError(`missing field \`${field}\``);
    }
    return value;
  },
};

export const optionalSandbox = optional(sandboxIntent);

const limits = {
  /** Since its start, by the monotonic clock. */
  wallTimeMs: optional(u64),
  /** For each process in its tree separately; full seconds, rounded up. */
  cpuTimeMs: optional(u64),
  /** For its whole tree together; needs a memory cgroup. */
  memoryBytes: optional(u64),
  /** Heap and data of each process in its tree separately; where there is no cgroup. */
  processMemoryBytes: optional(u64),
  /** For each process in its tree separately. */
  openFiles: optional(u64),
  /** Processes and threads of its whole tree at once; needs a pids cgroup. */
  processes: optional(u64),
  /** All streams together; output beyond it is dropped. */
  outputBytes: optional(u64),
};
export type LimitName = keyof typeof limits;
export const LIMIT_NAMES = Object.keys(limits) as LimitName[];

export const limitName = oneOf(...LIMIT_NAMES);
/** What a process may use at most. Each is off unless set; one that cannot be enforced where it runs is refused. */
export const processLimits = object("ProcessLimits", limits);

/**
 * In place of a policy's default excludes: variables of the host that look like secrets, by whole words of their names and
 * by their values, are left out, but for those named here. `exec/host-environment.ts` has the lists.
 */
export const secretGuard = object("SecretGuard", { inherit: array(string) });

/** Text, since inode numbers go beyond what a JSON number holds exactly. */
const directoryIdentity: Schema<string> = {
  ...string,
  doc: '"device:inode"',
  decode: (value) => {
    const text = string.decode(value);
    if (!/^\d{1,20}:\d{1,20}$/.test(text))
      throw new DecodeError(`invalid cwdIdentity \`${text}\`, expected \`device:inode\` in decimal digits`);
    return text;
  },
};

export const terminalQueries = oneOf("server", "client", "claimed");

export const startParams = object("WireExecParams", {
  /** Chosen by the caller; unique among the processes its session still holds. */
  processId: id,
  /** Program and arguments; `argv[0]` is looked up in the PATH of the child's own environment. */
  argv: array(string),
  cwd: pathUri,
  /** Without `envPolicy` the child's environment is exactly this. */
  env: map(string),
  tty: boolean,
  /** Keeps stdin open for writes; without it the child reads /dev/null. Ignored with `tty`. */
  pipeStdin: optional(boolean),
  /** What the child sees as its own `argv[0]`; the program that runs stays `argv[0]`. */
  arg0: optional(string),
  envPolicy: optional(envPolicy),
  metadata: optional(object("ExecMetadata", { threadId: optional(uuid), toolCallId: optional(string) })),
  sandbox: optionalSandbox,
  enforceManagedNetwork: optional(boolean),
  managedNetwork: optional(
    object("ManagedNetwork", { loopbackPorts: array(u16), allowLocalBinding: boolean }),
  ),
  networkProxy: optional(unknown),
  shellSnapshot: optional(
    object("ShellSnapshot", { scopeId: string, shell: object("ShellInfo", { name: string, path: string }) }),
  ),
  /** Size of the terminal at start; ignored without `tty`. */
  size: optional(terminalSize),
  /** `prepared`: the caller's policy has resolved this request already. */
  mode: optional(oneOf("direct", "prepared")),
  /** The label answered back for a prepared request. */
  sandboxType: optional(sandboxType),
  /** Ends the process (gracefully, then by force) after this long. */
  timeoutMs: optional(u64),
  /** Used with a policy that has default excludes, ignored without. */
  secretGuard: optional(secretGuard),
  /** What it may use at most; refused where it cannot be enforced. */
  limits: optional(processLimits),
  cwdIdentity: optional(directoryIdentity),
  /** Default: `session`. `kept` outlives the server too; refused by one that runs without a keeper. */
  lifetime: optional(lifetime),
  /** Ends the process after this long with reason `timeout`, whatever its lifetime is. */
  maxAgeMs: optional(u64),
  /**
   * Who answers what it asks its terminal (cursor, attributes, colours, modes): the server from a screen of its own, or the
   * terminal of this client. `claimed`: that terminal as far as the client says so by `process/claimQueries`, and the server
   * while no connection is there. Absent: nobody here, until a driver attaches to it; then the server, as long as it is driven.
   */
  terminalQueries: optional(terminalQueries),
  /** Keeps what is typed into it for `process/inputs`, but for what its terminal does not echo. */
  recordInput: optional(boolean),
});
export type WireStartParams = Infer<typeof startParams>;

export const startResult = object("StartResult", {
  processId: id,
  sandboxType: optional(sandboxType),
  handle: optional(string),
  droppedEnv: optional(array(string)),
});

/** Output that existed but is no longer retained. */
export const gap = object("Gap", {
  fromSeq: u64,
  toSeq: u64,
  /** Null where a server has evicted it without counting. */
  bytes: nullable(u64),
});

export const readParams = object("ReadParams", {
  processId: id,
  /** Only output with a greater seq; default 0. */
  afterSeq: optional(u64),
  /** Whole chunks up to this many bytes, at least one. Default: everything retained. */
  maxBytes: optional(usize),
  /** How long to wait for something new; default 0. */
  waitMs: optional(u64),
  /** Answer also when each chunk came. */
  times: optional(boolean),
});

export const outputChunk = object("OutputChunk", { seq: u64, stream: outputStream, chunk: bytes });

export const readResult = object("ReadResult", {
  chunks: array(outputChunk),
  /** The next cursor is `nextSeq - 1`. */
  nextSeq: u64,
  exited: boolean,
  exitCode: nullable(i32),
  closed: boolean,
  /** Set when the process can no longer be followed (its server is gone). */
  failure: nullable(string),
  sandboxDenied: optional(boolean),
  /** Output after the cursor that had been evicted. */
  gap: optional(gap),
  /** With `times`: when each of the chunks came, in milliseconds since the process began. */
  times: optional(array(u64)),
  /** With `times`: how many milliseconds ago the process began. */
  ageMs: optional(u64),
});

/** An empty id is refused, whatever the process; an absent one means that nothing is deduplicated. */
const writeId: Schema<string | undefined> = {
  doc: "string",
  isOptional: true,
  encode: (value) => value,
  decode: (value) => {
    if (value === null || value === undefined) return undefined;
    const given = id.decode(value);
    if (given === "") throw new DecodeError("writeId must not be empty");
    return given;
  },
};

export const writeParams = object("WriteParams", { processId: id, chunk: bytes, writeId });
export const writeResult = object("WriteResult", {
  status: oneOf("accepted", "unknownProcess", "stdinClosed", "starting"),
});

export const processIdParams = (name: string) => object(name, { processId: id });

export const closeStdinResult = object("CloseStdinResult", {
  status: oneOf("accepted", "stdinClosed", "unknownProcess"),
});

export const resizeParams = object("ResizeParams", { processId: id, size: terminalSize });

/** The form of a signal's name; the host knows which of them exist. */
const SIGNAL_NAME = /^(?:interrupt|[A-Z][A-Z0-9]*(?:[+-]\d{1,2})?)$/;

export const signalName: Schema<string> = {
  ...string,
  doc: '"interrupt" or a signal name',
  decode: (value) => {
    if (typeof value !== "string") {
      throw new DecodeError(
        `invalid type: ${value === null ? "null" : typeof value}, expected string or map`,
      );
    }
    if (!SIGNAL_NAME.test(value))
      throw new DecodeError(`unknown variant \`${value}\`, expected \`interrupt\` or a signal name`);
    return value;
  },
};
export const signalParams = object("SignalParams", { processId: id, signal: signalName });

export const terminateMode = tagged("TerminateMode", { graceful: { timeoutMs: u64 }, force: {} });
export const terminateParams = object("TerminateParams", {
  processId: id,
  mode: optional(terminateMode),
});
export const terminateResult = object("TerminateResult", {
  /** It had not exited when the call came. */
  running: boolean,
  /** Pids of descendants that could not be ended; present only when there are any. */
  survivors: optional(array(u64)),
});

export const waitCondition = tagged("WaitCondition", {
  exit: {},
  /** `pattern` is a linear-time (RE2) expression, matched against the output as text. */
  output: { pattern: string, stream: optional(outputStream) },
  idle: { quietMs: u64 },
  port: { port: u16 },
  bytes: { count: u64 },
});

export const waitParams = object("WaitParams", {
  processId: id,
  /** Default: exit. */
  until: optional(waitCondition),
  /** Output after this seq counts; default 0, so what was printed before the call counts too. */
  afterSeq: optional(u64),
  /** Default: as long as it takes. */
  timeoutMs: optional(u64),
});
export const waitResult = object("WaitResult", {
  reason: oneOf("exited", "matched", "idle", "listening", "reached", "timeout", "closed"),
  exitCode: nullable(i32),
  signal: nullable(string),
  /** Why it ended, once it has. */
  exitReason: optional(exitReason),
  /** Which limit it ended by, if it did. */
  limit: optional(limitName),
  /** The text that matched an output pattern. */
  match: optional(string),
  /** The last seq seen when the wait ended. */
  seq: u64,
});

export const ttyState = object("TtyState", {
  rows: u16,
  cols: u16,
  /** Off at a password prompt. */
  echo: boolean,
  /** Line by line, as a shell script's `read`; off in full-screen programs. */
  canonical: boolean,
});

export const snapshotResult = object("Snapshot", {
  stdout: bytes,
  stderr: bytes,
  terminal: bytes,
  /** Something in the middle is left out: each stream keeps its head and its tail. */
  truncated: boolean,
  omittedBytes: u64,
  totalBytes: u64,
  exitCode: nullable(i32),
  signal: nullable(string),
  running: boolean,
  tty: optional(ttyState),
  /** The public name a server has for it. */
  handle: optional(string),
  /** Told to clients that asked for an extension. */
  lifetime: optional(lifetime),
});

/** Params may be left out altogether: then this session is listed. */
const listFields = object("ListParams", { allSessions: optional(boolean) });
export const listParams: typeof listFields = {
  ...listFields,
  decode: (value) => listFields.decode(value ?? {}),
};

/** A process's current state, and why it ended. */
export const processStatus = object("ProcessStatus", {
  /** Once it has ended. */
  exitReason: optional(exitReason),
  /** Which limit it ended by, if it did. */
  limit: optional(limitName),
  /** What it may use at most, where anything limits it. */
  limits: optional(processLimits),
  /** It is paused at its pipe, because a reader that must not miss anything is slow. */
  isHeld: optional(boolean),
  /** Its terminal waits for a key, or for what it will not show, as at a password prompt. */
  awaits: optional(oneOf("key", "secret")),
});

export const processListing = object("ProcessListing", {
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
  /** The public name a server has for it, unlike any other there. */
  handle: optional(string),
  /** Whose it is; only operators get it. */
  principal: optional(string),
  /** Told to clients that asked for an extension. */
  lifetime: optional(lifetime),
  /** Likewise. */
  status: optional(processStatus),
});
export const listResult = object("ListResult", { processes: array(processListing) });

export const outputParams = object("OutputNotification", {
  processId: id,
  seq: u64,
  stream: outputStream,
  chunk: bytes,
});
export const exitedParams = object("ExitedNotification", {
  processId: id,
  seq: u64,
  exitCode: i32,
  sandboxDenied: optional(boolean),
  signal: optional(nullable(string)),
  reason: optional(exitReason),
  limit: optional(limitName),
});
export const closedParams = object("ClosedNotification", { processId: id, seq: u64 });
export const startedParams = object("StartedNotification", { processId: id, pid: nullable(u64) });
export const failedParams = object("FailedNotification", { processId: id, message: string });
export const ackParams = object("AckNotification", { processId: id, seq: u64 });
