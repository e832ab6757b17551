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
export const sandboxType = oneOf("none", "linuxSeccomp", "macosSeatbelt", "windowsRestrictedToken");
export const terminalSize = object("TerminalSize", { rows: u16, cols: u16 });
export const exitReason = oneOf("exited", "signaled", "timeout", "terminated", "sessionExpired", "limit");

const envPolicy = object("ExecEnvPolicy", {
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

/** Only the members every intent must have are looked at here; who enforces it reads the rest. */
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

export const limitName = oneOf(
  "wallTimeMs",
  "cpuTimeMs",
  "memoryBytes",
  "processMemoryBytes",
  "openFiles",
  "processes",
  "outputBytes",
);

const processLimits = object("ProcessLimits", {
  wallTimeMs: optional(u64),
  cpuTimeMs: optional(u64),
  memoryBytes: optional(u64),
  processMemoryBytes: optional(u64),
  openFiles: optional(u64),
  processes: optional(u64),
  outputBytes: optional(u64),
});

export const startParams = object("WireExecParams", {
  processId: id,
  argv: array(string),
  cwd: pathUri,
  env: map(string),
  tty: boolean,
  pipeStdin: optional(boolean),
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
  size: optional(terminalSize),
  mode: optional(oneOf("direct", "prepared")),
  sandboxType: optional(sandboxType),
  timeoutMs: optional(u64),
  secretGuard: optional(object("SecretGuard", { inherit: array(string) })),
  limits: optional(processLimits),
});
export type WireStartParams = Infer<typeof startParams>;

export const startResult = object("StartResult", {
  processId: id,
  sandboxType: optional(sandboxType),
  handle: optional(string),
  droppedEnv: optional(array(string)),
});

export const gap = object("Gap", { fromSeq: u64, toSeq: u64, bytes: nullable(u64) });

export const readParams = object("ReadParams", {
  processId: id,
  afterSeq: optional(u64),
  maxBytes: optional(usize),
  waitMs: optional(u64),
});

export const outputChunk = object("OutputChunk", { seq: u64, stream: outputStream, chunk: bytes });

export const readResult = object("ReadResult", {
  chunks: array(outputChunk),
  nextSeq: u64,
  exited: boolean,
  exitCode: nullable(i32),
  closed: boolean,
  failure: nullable(string),
  sandboxDenied: optional(boolean),
  gap: optional(gap),
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

/** What a signal's name looks like; which of them exist, the host knows. */
const SIGNAL_NAME = /^(?:interrupt|[A-Z][A-Z0-9]*(?:[+-]\d{1,2})?)$/;

const signalName: Schema<string> = {
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

export const terminateParams = object("TerminateParams", {
  processId: id,
  mode: optional(tagged("TerminateMode", { graceful: { timeoutMs: u64 }, force: {} })),
});
export const terminateResult = object("TerminateResult", {
  running: boolean,
  survivors: optional(array(u64)),
});

export const waitParams = object("WaitParams", {
  processId: id,
  until: optional(
    tagged("WaitCondition", {
      exit: {},
      output: { pattern: string, stream: optional(outputStream) },
      idle: { quietMs: u64 },
      port: { port: u16 },
      bytes: { count: u64 },
    }),
  ),
  afterSeq: optional(u64),
  timeoutMs: optional(u64),
});
export const waitResult = object("WaitResult", {
  reason: oneOf("exited", "matched", "idle", "listening", "reached", "timeout", "closed"),
  exitCode: nullable(i32),
  signal: nullable(string),
  /** Why it ended, once it has. */
  exitReason: optional(exitReason),
  limit: optional(limitName),
  match: optional(string),
  seq: u64,
});

export const snapshotResult = object("Snapshot", {
  stdout: bytes,
  stderr: bytes,
  terminal: bytes,
  truncated: boolean,
  omittedBytes: u64,
  totalBytes: u64,
  exitCode: nullable(i32),
  signal: nullable(string),
  running: boolean,
  tty: optional(object("TtyState", { rows: u16, cols: u16, echo: boolean, canonical: boolean })),
  handle: optional(string),
});

/** Params may be left out altogether: then it is this session that is listed. */
const listFields = object("ListParams", { allSessions: optional(boolean) });
export const listParams: typeof listFields = {
  ...listFields,
  decode: (value) => listFields.decode(value ?? {}),
};

export const listResult = object("ListResult", {
  processes: array(
    object("ProcessListing", {
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
      handle: optional(string),
      principal: optional(string),
    }),
  ),
});

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
