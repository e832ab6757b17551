import type {
  ExecProcess,
  ExitReason,
  ProcessListing,
  ProcessTree,
  StartParams,
  TerminalSize,
  TerminateMode,
  TerminateResult,
  TreeUsage,
  TtyState,
  WriteStatus,
} from "../exec-process.ts";
import type { EventLog } from "../log/event-log.ts";
import type { SizeHistory } from "../log/size-history.ts";
import type { PersistentRecordWriter } from "./persistent-process.ts";

/** Result of a write. */
export interface WriteOutcome {
  status: WriteStatus;
  /** An earlier write had the same write id, so this one wrote nothing. */
  isDuplicate?: boolean | undefined;
  /** The kernel has accepted all bytes. */
  isFlushed?: boolean | undefined;
}

/** A process on this host as a server sees it: with its event log, and terminated with an exit reason. */
export interface HostProcess extends ExecProcess {
  readonly log: EventLog;
  listing(): ProcessListing;
  /**
   * Native input object that a connection writes to without JavaScript (direct input). Null if the process has none.
   */
  readonly directInput: object | null;
  /** Input bytes accepted so far. */
  readonly inputBytes: number;
  /** Terminal size; null without a terminal. */
  readonly size: TerminalSize | null;
  /** Terminal sizes since the start of the process. */
  readonly sizes: SizeHistory;
  /** True if the leader has exited and a descendant still runs. */
  readonly hasOrphans: boolean;
  /** Writes the state of a persistent process; absent or null for other lifetimes. */
  readonly persistent?: PersistentRecordWriter | null | undefined;
  /** Like `write`, but also accepted after the exit, as `process/write` is: descendants may still read. */
  writeRaw(bytes: Uint8Array, options?: { writeId?: string | undefined }): Promise<WriteOutcome>;
  /** Current terminal state; null without a terminal. Cheap, unlike a snapshot. */
  ttyState(): TtyState | null;
  /** The leader and its descendants as the kernel lists them now. */
  tree(): ProcessTree;
  /**
   * Turns the terminal responder on or off; no-op without a terminal. With `afterSeq`, it also replies to queries
   * after that sequence number. Queries that it received while it was on still get their reply.
   */
  setTerminalResponder(enabled: boolean, replay?: { afterSeq: number }): void;
  /** Replies once to the terminal queries in this range of output. */
  answerQueriesIn(range: { afterSeq: number; throughSeq: number }): void;
  /** Like `terminate`, with this exit reason. After the exit it terminates the remaining descendants. */
  terminateWithReason(reason: ExitReason, mode?: TerminateMode): Promise<TerminateResult>;
}

/** Starts processes for a server. */
export interface HostBackend {
  start(params: StartParams): Promise<HostProcess>;
  /** Resolves to the resource usage of live process trees, by the pid of the leader. Absent: the host reports none. */
  usage?(): Promise<ReadonlyMap<number, TreeUsage>>;
  /** Degraded features of this host, one sentence each; empty if there are none. */
  degradedComponents(): string[];
  /** Terminates all processes: SIGTERM, grace period, SIGKILL, then escaped descendants. Idempotent. */
  shutdown(graceMs: number): Promise<void>;
  /** Why processes cannot outlive the server; null if they can. */
  readonly persistenceUnavailableReason: string | null;
  /** Terminates all processes that are not persistent. */
  endNonPersistent?(graceMs: number): Promise<void>;
}
