import type { ExitStatus, TerminalSize } from "../exec/exec-process.ts";
import type { KeptSession, KeptSide } from "../exec/kept-process.ts";
import type { Child, ChildEvents } from "./child.ts";

/** What a started program that outlives its server can do besides. */
export interface KeptChildSide extends KeptSide {
  /** Written down before it is told to anybody. */
  recordExit(status: ExitStatus): void;
  recordClosed(): void;
}

/** What was told of a process by earlier servers, in order. */
export type KeptEntry =
  | { type: "output"; seq: number; stream: "stdout" | "stderr" | "pty"; chunk: Uint8Array }
  /** A server died while it read: what that took is not known. */
  | { type: "hole"; seq: number }
  | { type: "exited"; seq: number }
  | { type: "closed"; seq: number };

/** A process as the keeper has it. */
export interface InheritedChild extends KeptSession {
  child: Child;
  record: string;
  size: TerminalSize;
  isStdinClosed: boolean;
  /** The last number that is no longer there, and the bytes up to it. */
  gone: { seq: number; bytes: number };
  entries: readonly KeptEntry[];
  exit: { seq: number; status: ExitStatus } | null;
  /** Begins to tell what it does from now on. */
  begin(events: ChildEvents): void;
}

/** What a server below a keeper has of it. */
export interface KeptMachine {
  /** The keeper's number: what loses its parent comes to it. */
  readonly pid: number;
  /** The next that earlier servers left; "unreadable" for one that was ended for it; null when there is none. */
  take(): InheritedChild | "unreadable" | null;
}
