import type { WatchReceiver } from "../async/watch.ts";
import type { treeEntry, treeResult } from "../protocol/attach-schemas.ts";
import type {
  closeStdinResult,
  envPolicy,
  exitReason,
  gap,
  LimitName,
  lifetime,
  outputChunk,
  outputStream,
  processListing,
  readParams,
  readResult,
  sandboxType,
  secretGuard,
  snapshotResult,
  startParams,
  terminalSize,
  terminateMode,
  terminateResult,
  ttyState,
  waitCondition,
  waitParams,
  waitResult,
  writeResult,
} from "../protocol/process-schemas.ts";
import type { Infer } from "../protocol/schema.ts";
import type { KeptOwner } from "./kept-process.ts";

/*
 * What the wire carries as it is, is defined there; here stand the names, and what a backend adds to the wire or leaves out.
 */
export type OutputStream = Infer<typeof outputStream>;
export type TerminalSize = Infer<typeof terminalSize>;
export type EnvPolicy = Infer<typeof envPolicy>;
export type SecretGuard = Infer<typeof secretGuard>;
export type SandboxType = Infer<typeof sandboxType>;
export type ExitReason = Infer<typeof exitReason>;
export type OutputChunk = Infer<typeof outputChunk>;
export type Gap = Infer<typeof gap>;
export type ReadParams = Omit<Infer<typeof readParams>, "processId"> & CallOptions;
export type WriteStatus = Infer<typeof writeResult>["status"];
export type CloseStdinStatus = Infer<typeof closeStdinResult>["status"];
export type TerminateMode = Infer<typeof terminateMode>;
export type TerminateResult = Infer<typeof terminateResult>;
export type WaitCondition = Infer<typeof waitCondition>;
export type WaitResult = Infer<typeof waitResult>;
export type TtyState = Infer<typeof ttyState>;
export type Snapshot = Infer<typeof snapshotResult>;
export type ProcessListing = Infer<typeof processListing>;
export type Lifetime = Infer<typeof lifetime>;
export type ProcessTree = Infer<typeof treeResult>;
export type TreeEntry = Infer<typeof treeEntry>;

/** Upstream's and the seeds' size of a terminal nobody gave a size. */
export const DEFAULT_TERMINAL_SIZE: TerminalSize = { rows: 24, cols: 80 };

/** What every call of a process takes: an abort rejects with the signal's reason. What was asked for may still happen. */
export interface CallOptions {
  signal?: AbortSignal | undefined;
}

export interface WriteOptions extends CallOptions {
  /** A write of an id that was taken before is not done again. */
  writeId?: string | undefined;
}

export interface StartParams
  extends Omit<
      Infer<typeof startParams>,
      | ("cwd" | "envPolicy" | "arg0" | "sandbox" | "metadata")
      | ("enforceManagedNetwork" | "managedNetwork" | "networkProxy" | "shellSnapshot")
    >,
    CallOptions {
  /** A native absolute path, or a `file:` URI. */
  cwd: string;
  envPolicy?: EnvPolicy | null | undefined;
  /** What the child sees as its own `argv[0]`; the program that runs stays `argv[0]`. */
  arg0?: string | null | undefined;
  /** An unresolved sandbox intent, as the current protocol carries it; the backend enforces it or refuses. */
  sandbox?: unknown;
  /** Starts with the same object agree on where the roots of their intents lead: what leads elsewhere later is refused. */
  sandboxScope?: SandboxScope;
  /** With the lifetime `kept`: whose it is, for the next server. */
  keptFor?: KeptOwner | undefined;
}

/** What starts behind walls have in common: a session, or a set of tools. */
export interface SandboxScope {
  /** Resolves when nothing more is started in it: what was kept for it on the host can go. Absent: it is never known. */
  readonly ended?: Promise<void>;
}

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

export interface ReadResult extends Omit<Infer<typeof readResult>, "sandboxDenied"> {
  sandboxDenied: boolean;
}

export interface WaitParams extends Omit<Infer<typeof waitParams>, "processId">, CallOptions {}

export interface EventsOptions extends CallOptions {
  /** Only events with a greater seq; default 0: everything retained, then live. */
  afterSeq?: number | undefined;
  /** Holds the process back rather than skip what this subscriber has not taken. */
  lossless?: boolean | undefined;
}

/** One process, local or far away: the same calls and the same events whatever is behind it. */
export interface ExecProcess extends AsyncDisposable {
  readonly processId: string;
  /** The system's process id where it is known. */
  readonly pid: number | null;
  readonly sandboxType: SandboxType;
  /** The names a `secretGuard` left out of its environment, where there was one. */
  readonly droppedEnv?: readonly string[] | undefined;

  /** The public name by which a person can attach to it; absent or null where nobody can. */
  readonly handle?: string | null | undefined;
  /** Called when somebody who has attached begins to drive it, or ceases to. */
  onDriverChanged?: (driver: "attached" | "none") => void;

  /** Replays what is retained, then follows; ends after `closed` or `failed`, throws the reason of an abort. */
  events(options?: EventsOptions): AsyncIterableIterator<ExecEvent>;
  /** A number that rises whenever something new can be read. */
  subscribeWake(): WatchReceiver<number>;
  read(params?: ReadParams): Promise<ReadResult>;

  write(bytes: Uint8Array, options?: WriteOptions): Promise<{ status: WriteStatus }>;
  closeStdin(options?: CallOptions): Promise<{ status: CloseStdinStatus }>;
  /** False where the server has no way to close stdin, so that `closeStdin` is refused. */
  readonly canCloseStdin?: boolean | undefined;
  resize(size: TerminalSize, options?: CallOptions): Promise<void>;
  /** `interrupt`, or any signal name (`SIGUSR1`, `SIGRTMIN+2`), sent to the whole group. */
  signal(name: string, options?: CallOptions): Promise<void>;
  /** Without a mode: force. */
  terminate(mode?: TerminateMode, options?: CallOptions): Promise<TerminateResult>;

  /**
   * Of one started with `terminalQueries: "claimed"` on a server: whether this program's terminal is the one to answer what
   * is asked in the output of this seq. Absent: it is.
   */
  readonly claimQueries?: ((seq: number) => Promise<boolean>) | undefined;

  wait(params?: WaitParams): Promise<WaitResult>;
  snapshot(options?: CallOptions): Promise<Snapshot>;
}

/** Something that can start processes: this machine, or a server far away. */
export interface ExecBackend {
  /** Where processes run that nobody gave a directory; a path or a URI. Absent: where this program runs. */
  readonly defaultCwd?: string | undefined;
  /** Of a backend that keeps secrets from the environments it makes; see `guardSecrets`. */
  readonly secrets?: SecretKeeping | undefined;
  start(params: StartParams): Promise<ExecProcess>;
  list(options?: CallOptions): Promise<ProcessListing[]>;
}

/** For callers that make a part of an environment themselves: what to leave out of it, and how to say so. */
export interface SecretKeeping {
  /** Names that are passed on although they look like secrets. */
  readonly inherit: readonly string[];
  /** To be called with the names that were left out. */
  onDropped(names: readonly string[]): void;
}
