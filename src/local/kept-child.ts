import type { ExitStatus, TerminalSize } from "../exec/exec-process.ts";
import type { KeptSession, KeptSide } from "../exec/kept-process.ts";
import type { Child, ChildEvents } from "./child.ts";

/** What a child that outlives its server can do in addition. */
export interface KeptChildSide extends KeptSide {
  /** Recorded before it is sent to anybody. */
  recordExit(status: ExitStatus): void;
  recordClosed(): void;
}

/** The events of a process that earlier servers emitted, in order. */
export type KeptEntry =
  | { type: "output"; seq: number; stream: "stdout" | "stderr" | "pty"; chunk: Uint8Array }
  /** A server died while it read: how much that read took is not known. */
  | { type: "hole"; seq: number }
  | { type: "exited"; seq: number }
  | { type: "closed"; seq: number };

/** A process as the keeper has it. */
export interface InheritedChild extends KeptSession {
  child: Child;
  record: string;
  size: TerminalSize;
  isStdinClosed: boolean;
  /** The last seq that is no longer retained, and the bytes up to it. */
  gone: { seq: number; bytes: number };
  entries: readonly KeptEntry[];
  exit: { seq: number; status: ExitStatus } | null;
  /** Begins to emit its events. */
  begin(events: ChildEvents): void;
}

/** The keeper as the server below it uses it. */
export interface KeptMachine {
  /** The keeper's pid: orphans become its children. */
  readonly pid: number;
  /** Why nothing can be started to outlive this server; null: it can. */
  readonly whyNot: string | null;
  /** The next process that earlier servers left; "unreadable" for one that was ended because of that; null: no more. */
  take(): InheritedChild | "unreadable" | null;
}
