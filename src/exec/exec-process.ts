import type { WatchReceiver } from "../async/watch.ts";
import type { LimitName, ProcessLimits } from "./process-limits.ts";

export type OutputStream = "stdout" | "stderr" | "pty";

export interface TerminalSize {
  rows: number;
  cols: number;
}

/** Upstream's and the seeds' size of a terminal nobody gave a size. */
export const DEFAULT_TERMINAL_SIZE: TerminalSize = { rows: 24, cols: 80 };

/** How a child's environment is made from the host's; see `local/environment.ts` for the order of the steps. */
export interface EnvPolicy {
  inherit: "all" | "core" | "none";
  ignoreDefaultExcludes: boolean;
  exclude: string[];
  set: Record<string, string>;
  includeOnly: string[];
}

/**
 * In place of a policy's default excludes: variables of the host that look like secrets, by whole words of their names and
 * by their values, are left out, but for those named here. `exec/host-environment.ts` has the lists.
 */
export interface SecretGuard {
  inherit: string[];
}

/** Which walls stand around a process. A name of the wire's `sandboxType`. */
export type SandboxType = "none" | "linuxSeccomp" | "macosSeatbelt" | "windowsRestrictedToken";

export interface StartParams {
  /** Chosen by the caller; unique among the processes its session still holds. */
  processId: string;
  /** Program and arguments; `argv[0]` is looked up in the PATH of the child's own environment. */
  argv: string[];
  /** A native absolute path, or a `file:` URI. */
  cwd: string;
  /** Without `envPolicy` the child's environment is exactly this. */
  env: Record<string, string>;
  envPolicy?: EnvPolicy | null | undefined;
  /** Used with a policy that has default excludes, ignored without. */
  secretGuard?: SecretGuard | undefined;
  tty: boolean;
  /** Size of the terminal at start; ignored without `tty`. */
  size?: TerminalSize | undefined;
  /** Keeps stdin open for `write`; without it the child reads /dev/null. Ignored with `tty`. */
  pipeStdin?: boolean | undefined;
  /** What the child sees as its own `argv[0]`; the program that runs stays `argv[0]`. */
  arg0?: string | null | undefined;
  /** `prepared`: the caller's policy has resolved this request already. */
  mode?: "direct" | "prepared" | undefined;
  /** The label answered back for a prepared request. */
  sandboxType?: SandboxType | undefined;
  /** An unresolved sandbox intent, as the current protocol carries it; the backend enforces it or refuses. */
  sandbox?: unknown;
  /** Starts with the same object agree on where the roots of their intents lead: what leads elsewhere later is refused. */
  sandboxScope?: SandboxScope;
  /** Ends the process (gracefully, then by force) after this long. */
  timeoutMs?: number | undefined;
  /** What it may use at most; refused where it cannot be enforced. */
  limits?: ProcessLimits | undefined;
}

/** What starts behind walls have in common: a session, or a set of tools. */
export interface SandboxScope {
  /** Resolves when nothing more is started in it: what was kept for it on the host can go. Absent: it is never known. */
  readonly ended?: Promise<void>;
}

/** Why a process ended. */
export type ExitReason = "exited" | "signaled" | "timeout" | "terminated" | "sessionExpired" | "limit";

export interface ExitStatus {
  /** The exit status, or 128 + n for death by signal n, or -1 when it could not be learned. */
  exitCode: number;
  /** `SIGKILL`, `SIGRTMIN+3`, … or null when it ended by itself. */
  signal: string | null;
  reason: ExitReason;
  /** Which one, when it ended by a limit. */
  limit?: LimitName | undefined;
  /** The sandbox around it refused something and the process failed for it. */
  sandboxDenied: boolean;
}

export interface OutputChunk {
  seq: number;
  stream: OutputStream;
  chunk: Uint8Array;
}

/** Output that existed but is no longer retained. */
export interface Gap {
  fromSeq: number;
  toSeq: number;
  /** Null where a server has let it go without counting. */
  bytes: number | null;
}

/**
 * What a process tells, in order: output its leader wrote, `exited`, late output of others, `closed` last.
 * Only `output`, `exited` and `closed` have a sequence number, from 1, without holes. `gap` stands where numbers are
 * missing for this subscriber; `failed` says that the process can no longer be followed, and ends the stream.
 */
export type ExecEvent =
  | ({ type: "output" } & OutputChunk)
  | ({ type: "exited"; seq: number } & ExitStatus)
  | { type: "closed"; seq: number }
  | ({ type: "gap" } & Gap)
  | { type: "failed"; message: string };

export interface ReadParams {
  /** Only output with a greater seq; default 0. */
  afterSeq?: number | undefined;
  /** Whole chunks up to this many bytes, at least one. Default: everything retained. */
  maxBytes?: number | undefined;
  /** How long to wait for something new; default 0. */
  waitMs?: number | undefined;
}

export interface ReadResult {
  chunks: OutputChunk[];
  /** The next cursor is `nextSeq - 1`. */
  nextSeq: number;
  exited: boolean;
  exitCode: number | null;
  closed: boolean;
  /** Set when the process can no longer be followed (its server is gone). */
  failure: string | null;
  sandboxDenied: boolean;
  /** Output after the cursor that had been evicted. */
  gap?: Gap | undefined;
}

export type WriteStatus = "accepted" | "unknownProcess" | "stdinClosed" | "starting";
export type CloseStdinStatus = "accepted" | "stdinClosed" | "unknownProcess";

export type TerminateMode = { type: "force" } | { type: "graceful"; timeoutMs: number };

export interface TerminateResult {
  /** It had not exited when the call came. */
  running: boolean;
  /** Pids of descendants that could not be ended; present only when there are any. */
  survivors?: number[] | undefined;
}

export type WaitCondition =
  | { type: "exit" }
  /** `pattern` is a linear-time (RE2) expression, matched against the output as text. */
  | { type: "output"; pattern: string; stream?: OutputStream | undefined }
  | { type: "idle"; quietMs: number }
  | { type: "port"; port: number }
  | { type: "bytes"; count: number };

export interface WaitParams {
  /** Default: exit. */
  until?: WaitCondition | undefined;
  /** Output after this seq counts; default 0, so what was printed before the call counts too. */
  afterSeq?: number | undefined;
  /** Default: as long as it takes. */
  timeoutMs?: number | undefined;
  signal?: AbortSignal | undefined;
}

export interface WaitResult {
  reason: "exited" | "matched" | "idle" | "listening" | "reached" | "timeout" | "closed";
  exitCode: number | null;
  signal: string | null;
  /** Why it ended, once it has. */
  exitReason?: ExitReason | undefined;
  /** Which limit it ended by, if it did. */
  limit?: LimitName | undefined;
  /** The text that matched an output pattern. */
  match?: string | undefined;
  /** The last seq seen when the wait ended. */
  seq: number;
}

export interface TtyState extends TerminalSize {
  /** Off at a password prompt. */
  echo: boolean;
  /** Line by line, as a shell script's `read`; off in full-screen programs. */
  canonical: boolean;
}

export interface Snapshot {
  stdout: Uint8Array;
  stderr: Uint8Array;
  terminal: Uint8Array;
  /** Something in the middle is left out: each stream keeps its head and its tail. */
  truncated: boolean;
  omittedBytes: number;
  totalBytes: number;
  exitCode: number | null;
  signal: string | null;
  running: boolean;
  tty?: TtyState | undefined;
  /** The public name a server has for it. */
  handle?: string | undefined;
}

export interface EventsOptions {
  /** Only events with a greater seq; default 0: everything retained, then live. */
  afterSeq?: number | undefined;
  /** Holds the process back rather than skip what this subscriber has not taken. */
  lossless?: boolean | undefined;
  signal?: AbortSignal | undefined;
}

/** One process, local or far away: the same calls and the same events whatever is behind it. */
export interface ExecProcess extends AsyncDisposable {
  readonly processId: string;
  /** The system's process id where it is known. */
  readonly pid: number | null;
  readonly sandboxType: SandboxType;
  /** The names a `secretGuard` left out of its environment, where there was one. */
  readonly droppedEnv?: readonly string[] | undefined;

  /** Replays what is retained, then follows; ends after `closed` or `failed`. */
  events(options?: EventsOptions): AsyncIterableIterator<ExecEvent>;
  /** A number that rises whenever something new can be read. */
  subscribeWake(): WatchReceiver<number>;
  read(params?: ReadParams): Promise<ReadResult>;

  write(bytes: Uint8Array, options?: { writeId?: string | undefined }): Promise<{ status: WriteStatus }>;
  closeStdin(): Promise<{ status: CloseStdinStatus }>;
  resize(size: TerminalSize): Promise<void>;
  /** `interrupt`, or any signal name (`SIGUSR1`, `SIGRTMIN+2`), sent to the whole group. */
  signal(name: string): Promise<void>;
  /** Without a mode: force. */
  terminate(mode?: TerminateMode): Promise<TerminateResult>;

  wait(params?: WaitParams): Promise<WaitResult>;
  snapshot(): Promise<Snapshot>;
}

export interface ProcessListing {
  processId: string;
  argv: string[];
  cwd: string;
  tty: boolean;
  pid: number | null;
  running: boolean;
  exitCode: number | null;
  signal: string | null;
  startedAtMs: number;
  outputBytes: number;
  /** The public name a server has for it, unlike any other there. */
  handle?: string | undefined;
  /** Whose it is; told to operators. */
  principal?: string | undefined;
}

/** Something that can start processes: this machine, or a server far away. */
export interface ExecBackend {
  /** Where processes run that nobody gave a directory; a path or a URI. Absent: where this program runs. */
  readonly defaultCwd?: string | undefined;
  /** Of a backend that keeps secrets from the environments it makes; see `guardSecrets`. */
  readonly secrets?: SecretKeeping | undefined;
  start(params: StartParams): Promise<ExecProcess>;
  list(): Promise<ProcessListing[]>;
}

/** For callers that make a part of an environment themselves: what to leave out of it, and how to say so. */
export interface SecretKeeping {
  /** Names that are passed on although they look like secrets. */
  readonly inherit: readonly string[];
  /** To be called with the names that were left out. */
  onDropped(names: readonly string[]): void;
}
