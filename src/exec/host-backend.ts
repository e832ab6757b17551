import type {
  ExecProcess,
  ExitReason,
  ProcessListing,
  ProcessTree,
  StartParams,
  TerminalSize,
  TerminateMode,
  TerminateResult,
  TtyState,
  WriteStatus,
} from "./exec-process.ts";
import type { KeptSide } from "./kept-process.ts";
import type { EventLog } from "./log/event-log.ts";
import type { SizeHistory } from "./log/size-history.ts";

/** What became of input. */
export interface Fed {
  status: WriteStatus;
  /** An earlier write had the same id, so nothing was written. */
  isRepeated?: boolean | undefined;
  /** The system has taken all of it already. */
  isTaken?: boolean | undefined;
}

/** A process on this host, as a server sees it: with its log in reach, and ended for a reason. */
export interface HostProcess extends ExecProcess {
  readonly log: EventLog;
  listing(): ProcessListing;
  /** Its stdin as something a connection of this host can write to by itself, by the same rules; null where there is none. */
  readonly straightInput: object | null;
  /** How much input it was given so far. */
  readonly inputBytes: number;
  /** Of its terminal; null where it has none. */
  readonly size: TerminalSize | null;
  /** The sizes its terminal was given since it began. */
  readonly sizes: SizeHistory;
  /** It has exited, and a process it started lives on. */
  readonly hasLeft: boolean;
  /** Of one that outlives the server; absent or null for all others. */
  readonly kept?: KeptSide | null | undefined;
  /** Like `write`, but taken also after the exit: others of its group may still read, and the protocol's answer is the same. */
  feed(bytes: Uint8Array, options?: { writeId?: string | undefined }): Promise<Fed>;
  /** How its terminal stands now; null without one. Cheap, unlike a snapshot. */
  ttyState(): TtyState | null;
  /** Itself and its descendants, as the system sees them now. */
  tree(): ProcessTree;
  /**
   * Whether what it asks its terminal is answered here, from a screen of its own; nothing without a terminal. With `afterSeq`
   * also what it has asked since then. What was asked before it is told to stop is answered still.
   */
  answerQueries(answers: boolean, asked?: { afterSeq: number }): void;
  /** Answers what it has asked in this output, once. */
  answerAsked(asked: { afterSeq: number; throughSeq: number }): void;
  /** Like `terminate`, but the exit is told with this reason; and after the exit it ends the processes that it left behind. */
  end(reason: ExitReason, mode?: TerminateMode): Promise<TerminateResult>;
}

/** What a server is given to start processes with. */
export interface HostBackend {
  start(params: StartParams): Promise<HostProcess>;
  /** What does not work on this host as it should, one sentence each; empty when all is well. */
  degraded(): string[];
  /** Ends everything it started: TERM, grace, KILL, and the descendants that escaped. Idempotent. */
  shutdown(graceMs: number): Promise<void>;
  /** Why processes cannot outlive the server here; null: they can; absent: nothing here could keep them. */
  readonly whyNotKept?: string | null | undefined;
  /** Ends everything that is not kept. */
  endUnkept?(graceMs: number): Promise<void>;
}
