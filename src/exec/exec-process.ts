import type { WatchReceiver } from "../async/watch.ts";
import type * as attach from "../protocol/attach-schemas.ts";
import type { ExecServerError } from "../protocol/exec-server-error.ts";
import type {
  AskConsole,
  connectionsResult,
  NetworkAnswer,
  NetworkDecision,
  NetworkProxyConfig,
  NetworkRequest,
} from "../protocol/network/network-schemas.ts";
import type * as process from "../protocol/process-schemas.ts";
import type { LimitName } from "../protocol/process-schemas.ts";
import type { Infer } from "../protocol/schema.ts";
import type { PersistentOwner } from "./backend/persistent-process.ts";
import type { InputData } from "./options/input-bytes.ts";

export type OutputStream = Infer<typeof process.outputStream>;
export interface TerminalSize extends Infer<typeof process.terminalSize> {}
export interface EnvPolicy extends Infer<typeof process.envPolicy> {}
export interface SecretGuard extends Infer<typeof process.secretGuard> {}
export type SandboxType = Infer<typeof process.sandboxType>;
export type ExitReason = Infer<typeof process.exitReason>;
export interface OutputChunk extends Infer<typeof process.outputChunk> {}
export interface Gap extends Infer<typeof process.gap> {}
export interface ReadParams extends Omit<Infer<typeof process.readParams>, "processId">, CallOptions {}
export type WriteStatus = Infer<typeof process.writeResult>["status"];
export type CloseStdinStatus = Infer<typeof process.closeStdinResult>["status"];
export type TerminateMode = { type: "force" } | { type: "graceful"; timeoutMs: number };
export interface TerminateResult extends Infer<typeof process.terminateResult> {}
/** Condition that ends a wait. `pattern` is a linear-time (RE2) regular expression. */
export type WaitCondition =
  | { type: "exit" }
  | { type: "output"; pattern: string; stream?: OutputStream | undefined }
  | { type: "idle"; quietMs: number }
  | { type: "port"; port: number }
  | { type: "bytes"; count: number };
export interface WaitResult extends Infer<typeof process.waitResult> {}
export interface TtyState extends Infer<typeof process.ttyState> {}
export interface Snapshot extends Infer<typeof process.snapshotResult> {}
export interface ProcessListing extends Infer<typeof process.processListing> {}
export type Lifetime = Infer<typeof process.lifetime>;
export interface ProcessConnections extends Infer<typeof connectionsResult> {}
export interface ProcessTree extends Infer<typeof attach.treeResult> {}
export interface ProcessStatus extends Infer<typeof process.processStatus> {}
export interface InputEntry extends Infer<typeof attach.inputEntry> {}
export interface InputHistory extends Infer<typeof attach.inputsResult> {}
export interface ShareResult extends Infer<typeof attach.shareResult> {}
export interface ShareEntry extends Infer<typeof attach.shareEntry> {}
/** The rendered screen of a process. */
export interface TerminalScreen extends Infer<typeof attach.screen> {}
export interface TreeUsage extends Infer<typeof process.treeUsage> {}
export interface TreeEntry extends Infer<typeof attach.treeEntry> {}

/** Default terminal size, as in Codex and the v0 exec-server. */
export const DEFAULT_TERMINAL_SIZE: TerminalSize = { rows: 24, cols: 80 };

/** Options of every process call. An abort rejects with the signal's reason; the requested action may still happen. */
export interface CallOptions {
  signal?: AbortSignal | undefined;
}

export interface WriteOptions extends CallOptions {
  /** Idempotency key: a second write with the same id writes nothing. */
  writeId?: string | undefined;
}

export interface StartParams
  extends Omit<
      Infer<typeof process.startParams>,
      "cwd" | "envPolicy" | "sandbox" | "metadata" | "shellSnapshot" | "networkProxy"
    >,
    CallOptions {
  /** A native absolute path, or a `file:` URI. */
  cwd: string;
  envPolicy?: EnvPolicy | undefined;
  /** An unresolved sandbox request in the form of the wire protocol; the backend enforces or rejects it. */
  sandbox?: unknown;
  /**
   * Starts with the same scope object share the resolved roots of their sandbox requests: a root that later resolves
   * elsewhere is rejected.
   */
  sandboxScope?: SandboxScope;
  /** Minimum confinement that the server requires. The backend rejects a start with less. */
  sandboxRequirement?:
    | {
        /**
         * `read-only`: no path is writable except a private /tmp. `workspace-write`: only paths below the roots are writable,
         * or below the working directory if there are no roots.
         */
        mode: "read-only" | "workspace-write";
        /** Whether the sandbox may have network access. */
        network: boolean;
        /** Directories that contain every readable and writable path, apart from program files. Null: any is readable. */
        roots: readonly string[] | null;
      }
    | undefined;
  /** Network policy of the process; the backend starts a proxy for it. */
  networkProxy?: NetworkProxyConfig | undefined;
  /**
   * Called for a request of the process that its network policy does not decide, if `networkProxy` has a
   * `policyDecisionTimeoutMs`. The signal aborts when the request has ended. `askConsole` is set if the process runs on a
   * server. Absent: such a request is denied.
   */
  decideNetwork?:
    | ((request: NetworkRequest, signal: AbortSignal, askConsole?: AskConsole) => Promise<NetworkAnswer>)
    | undefined;
  /** Called for every decision of the network proxy of this process. */
  onNetworkDecision?: ((decision: NetworkDecision) => void) | undefined;
  /** Id of the principal whose quotas count the process and its output. */
  ownerId?: string | undefined;
  /** Owner of a persistent process, stored for the next server. */
  persistentOwner?: PersistentOwner | undefined;
}

/** Returns the time after which a process is terminated, or null if neither timeout nor maximum age is set. */
export function earliestEndMs({ timeoutMs, maxAgeMs }: StartParams): number | null {
  const ends = [timeoutMs, maxAgeMs].filter((ms) => ms !== undefined);
  return ends.length === 0 ? null : Math.min(...ends);
}

/** Groups sandboxed starts: one scope per session or set of tools. */
export interface SandboxScope {
  /**
   * Resolves when nothing more starts in this scope, so that its host resources can be freed. Absent: it never
   * resolves.
   */
  readonly ended?: Promise<void>;
}

export interface ExitStatus {
  /** The exit code, 128 + n for death by signal n, or -1 if it is unknown. */
  exitCode: number;
  /** Signal name such as `SIGKILL` or `SIGRTMIN+3`; null if no signal ended the process. */
  signal: string | null;
  reason: ExitReason;
  /** The exceeded limit, if a limit ended the process. */
  limit?: LimitName | undefined;
  /** The sandbox denied an operation and the process failed because of it. */
  sandboxDenied: boolean;
}

/**
 * Event of a process, in order: output of the leader, `exited`, later output of descendants, `closed` last. Only
 * `output`, `exited` and `closed` have a sequence number, from 1, without holes. `gap` replaces sequence numbers that this
 * subscriber missed. `failed` means that the process can no longer be tracked, and ends the stream; it has the reason as
 * a text and as an error.
 */
export type ExecEvent =
  | ({ type: "output" } & OutputChunk)
  | ({ type: "exited"; seq: number } & ExitStatus)
  | { type: "closed"; seq: number }
  | ({ type: "gap" } & Gap)
  | { type: "failed"; message: string; error: ExecServerError };

export interface ReadResult extends Omit<Infer<typeof process.readResult>, "sandboxDenied"> {
  sandboxDenied: boolean;
}

export interface WaitParams extends Omit<Infer<typeof process.waitParams>, "processId">, CallOptions {}

export interface EventsOptions extends CallOptions {
  /** Only events with a greater sequence number. Default 0: all retained events, then live ones. */
  afterSeq?: number | undefined;
  /** Pauses the process instead of skipping output that this subscriber has not consumed. */
  lossless?: boolean | undefined;
}

/** One process, local or remote, with the same calls and events for every backend. */
export interface ExecProcess extends AsyncDisposable {
  readonly processId: string;
  /** Kernel process id, if known. */
  readonly pid: number | null;
  readonly sandboxType: SandboxType;
  /** Names that a `secretGuard` dropped from the environment, if one was set. */
  readonly droppedEnv?: readonly string[] | undefined;

  /** Handle by which a user attaches; absent or null if the process cannot be attached. */
  readonly handle?: string | null | undefined;
  /** Called when an attached client becomes or ceases to be the driver. */
  onDriverChanged?: (driver: "attached" | "none") => void;

  /** Replays retained events, then follows. Ends after `closed` or `failed`; an abort throws the signal's reason. */
  events(options?: EventsOptions): AsyncIterableIterator<ExecEvent>;
  /** Returns a receiver of a number that increases with every new event. */
  subscribeWake(): WatchReceiver<number>;
  read(params?: ReadParams): Promise<ReadResult>;

  /** Writes to stdin. A string is encoded as UTF-8. `accepted` means queued. */
  write(data: InputData, options?: WriteOptions): Promise<{ status: WriteStatus }>;
  closeStdin(options?: CallOptions): Promise<{ status: CloseStdinStatus }>;
  /** False if the server cannot close stdin, so that `closeStdin` is rejected. */
  readonly canCloseStdin?: boolean | undefined;
  resize(size: TerminalSize, options?: CallOptions): Promise<void>;
  /** Sends `interrupt` or a signal name (`SIGUSR1`, `SIGRTMIN+2`) to the whole process group. */
  signal(name: string, options?: CallOptions): Promise<void>;
  /**
   * Sends a signal to the whole process group. Resolves to false if the process has exited, so that no signal was sent.
   * Default signal: SIGTERM.
   */
  kill(signal?: string, options?: CallOptions): Promise<boolean>;
  /** Default mode: force. */
  terminate(mode?: TerminateMode, options?: CallOptions): Promise<TerminateResult>;

  /**
   * For `terminalQueries: "claimed"` on a server: reports whether this client's terminal replies to the queries in
   * the output with this sequence number. Absent: it does.
   */
  readonly claimQueries?: ((seq: number) => Promise<boolean>) | undefined;

  wait(params?: WaitParams): Promise<WaitResult>;
  snapshot(options?: CallOptions): Promise<Snapshot>;
}

/** Starts processes, on the local host or on a server. */
export interface ExecBackend {
  /** Default working directory, a path or a URI. Absent: the current directory. */
  readonly defaultCwd?: string | undefined;
  /** Set by a backend that drops secrets from environments; see `filterSecrets`. */
  readonly secrets?: SecretFilter | undefined;
  start(params: StartParams): Promise<ExecProcess>;
  list(options?: CallOptions): Promise<ProcessListing[]>;
}

/** For callers that build part of an environment themselves: allowed names and the report of dropped ones. */
export interface SecretFilter {
  /** Names that are passed on although they look like secrets. */
  readonly allowed: readonly string[];
  /** Reports names that the caller dropped. */
  onDropped(names: readonly string[]): void;
}
