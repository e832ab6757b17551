import type { OutputStream, TerminalSize, TtyState } from "../exec/exec-process.ts";
import type { EnforcedLimits } from "./enforced-limits.ts";
import type { KeptChildSide } from "./kept-child.ts";

/** A program as the operating system is asked to start it: everything resolved, nothing left to choose. */
export interface ChildSpec {
  /** Looked up in the PATH of `env` when it has no slash. */
  file: string;
  /** What the program sees; `argv[0]` may differ from `file`. */
  argv: string[];
  cwd: string;
  /** A descriptor of the directory to start in, instead of looking `cwd` up. Stays the caller's, as `descriptors` do. */
  directory?: number | undefined;
  env: Record<string, string>;
  /** Null: pipes. */
  terminal: TerminalSize | null;
  /** Without it a piped child reads /dev/null. */
  pipeStdin: boolean;
  /** Become 3, 4 and so on in the child. Stay the caller's, who keeps them open until the start has ended. */
  descriptors: readonly number[];
  /** Limits that the system enforces on it. */
  limits?: Pick<EnforcedLimits, "resources" | "cgroups" | "tree"> | undefined;
  /** Of a process that outlives this program: what the next server must know of it. */
  kept?: { record: string; startedAtMs: number; maxOutputBytes: number } | undefined;
}

/** How it ended, in the system's own numbers; exactly one of the two is set. */
export type RawExit = { type: "code"; code: number } | { type: "signal"; signal: number };

/** Called in this order: output the leader wrote, exit, late output of others, close. Never after `close`. */
export interface ChildEvents {
  output(stream: OutputStream, chunk: Uint8Array): void;
  exit(exit: RawExit): void;
  /** Every writer of every stream is gone; the file descriptors have been given back. */
  close(): void;
  /** The queue of `write` is empty again, or will never be read. */
  drain(): void;
  /** Its output could not be read, or an event was not understood: from now on it cannot be followed. */
  broken(error: Error): void;
}

/**
 * What identifies the ends of pipes or the terminal a child was given, so that a process holding one is known to be its
 * descendant. Valid only while our own ends are open: afterwards the system reuses the numbers.
 */
export interface ChildEnds {
  /** Inodes of its pipes. */
  pipes: readonly number[];
  /** N of /dev/pts/N. */
  pts: number | null;
}

/** A child's input. */
export interface ChildInput {
  /** Queues bytes, and remembers the id they came with. Does nothing when nobody can read them any more. */
  write(bytes: Uint8Array, writeId?: string): void;
  /** Whether a write of this id was taken before. */
  knows(writeId: string): boolean;
  /** What the system has not taken yet; 0 also when nobody can read it any more. */
  readonly queuedBytes: number;
  /** What the system has taken so far. */
  readonly writtenBytes: number;
  /** How much may be queued before a writer waits. 0 for a kept process: what is queued here would be lost. */
  readonly maxQueuedBytes?: number | undefined;
  /** Closes it once the queue is empty. On a terminal: an end-of-file keystroke. */
  close(): void;
  /** What the addon's sockets may write to directly; null where there is no straight lane. */
  readonly straight: object | null;
  /** Closes the straight lane: the child is being ended. */
  refuse(): void;
}

/** A started program: the leader of its own session and process group. */
export interface Child {
  readonly pid: number;
  /** As in the process table: tells it, and what began after it, from processes with reused pids. */
  readonly startTime: number;
  /** The mark its descendants inherit, wherever they go; 0 where nothing marks them. */
  readonly mark: number;
  readonly input: ChildInput;
  pause(): void;
  resume(): void;
  resize(size: TerminalSize): void;
  /** Null when it has no terminal, or no longer. */
  ttyState(): TtyState | null;
  /** Signals the whole group while the leader has not been reaped; false afterwards. */
  signalGroup(signal: number): boolean;
  /** Stops reading: streams that a process out of reach still holds are given up, and `close` follows its exit. */
  cut(): void;
  /** Empty once closed or cut. */
  readonly ends: ChildEnds;
  /** The cgroup that holds it and all it starts; null where there is none. */
  readonly cgroup?: TreeCgroup | null | undefined;
  /** Only for a process that outlives this program. */
  readonly kept?: KeptChildSide | null | undefined;
}

/** A cgroup of one process and all it starts, which those cannot leave by any way but root's. */
export interface TreeCgroup {
  /** The living processes in it. */
  pids(): number[];
  /** Kills all in it at once, also those that are being forked. */
  kill(): void;
}

export const NO_ENDS: ChildEnds = { pipes: [], pts: null };

export type SpawnChild = (spec: ChildSpec, events: ChildEvents) => Promise<Child>;
