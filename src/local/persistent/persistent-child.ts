import type { PersistentRecordWriter, PersistentSessionState } from "../../exec/backend/persistent-process.ts";
import type { ExitStatus, TerminalSize } from "../../exec/exec-process.ts";
import type { Child, ChildEvents } from "../child.ts";

/** The additional operations of a persistent process. */
export interface PersistentChild extends PersistentRecordWriter {
  /** Stores the exit status before the server sends it to any client. */
  recordExit(status: ExitStatus): void;
  recordClosed(): void;
}

/** Events that earlier servers emitted, in order. */
export type RestoredEvent =
  | { type: "output"; seq: number; stream: "stdout" | "stderr" | "pty"; chunk: Uint8Array }
  /** A server died during a read, so the number of bytes is unknown. */
  | { type: "gap"; seq: number }
  | { type: "exited"; seq: number }
  | { type: "closed"; seq: number };

/** A persistent process that the supervisor hands to a new server. */
export interface RestoredChild extends PersistentSessionState {
  child: Child;
  record: string;
  size: TerminalSize;
  isStdinClosed: boolean;
  /** The last evicted sequence number and the bytes up to it. */
  evicted: { seq: number; bytes: number };
  entries: readonly RestoredEvent[];
  exit: { seq: number; status: ExitStatus } | null;
  /** Starts to emit events. */
  resume(events: ChildEvents): void;
}

/** The server's connection to its supervisor. */
export interface SupervisorChannel {
  /** The supervisor's pid; it adopts orphans. */
  readonly pid: number;
  /** Why persistent processes are unavailable; null if they are available. */
  readonly unavailableReason: string | null;
  /** Returns the next restored process; "unreadable" for a process that was killed because its state is unreadable; null at the end. */
  takeRestored(): RestoredChild | "unreadable" | null;
}
