import type { OutputStream, TerminalSize, TtyState } from "../exec/exec-process.ts";
import type { EnforcedLimits } from "./enforced-limits.ts";
import type { PersistentChild } from "./persistent/persistent-child.ts";

/** A command that is ready to spawn: every path, size and environment variable is resolved. */
export interface ChildSpec {
  /** Resolved through the PATH of `env` if it contains no slash. */
  file: string;
  /** The argv that the process receives; `argv[0]` may differ from `file`. */
  argv: string[];
  cwd: string;
  /** A descriptor of the working directory, used instead of `cwd`. The caller owns it, as it owns `descriptors`. */
  directory?: number | undefined;
  env: Record<string, string>;
  /** Null for a process with pipes. */
  terminal: TerminalSize | null;
  /** If false, a process with pipes reads /dev/null. */
  pipeStdin: boolean;
  /** Become descriptors 3, 4 and so on in the child. The caller owns them and closes them after the start. */
  descriptors: readonly number[];
  /** Enters a Landlock domain if addon and kernel support it. */
  landlock?: boolean | undefined;
  /** Limits that the kernel enforces on the process. */
  limits?: Pick<EnforcedLimits, "resources" | "cgroups" | "tree"> | undefined;
  /** Set for a persistent process: the record that the next server reads. `maxOutputBytes` is null without a limit. */
  persistent?: { record: string; startedAtMs: number; maxOutputBytes: number | null } | undefined;
}

/** The exit code or the number of the signal that ended a child. */
export type WaitStatus = { type: "code"; code: number } | { type: "signal"; signal: number };

/** Callbacks arrive in this order: output of the leader, exit, late output of descendants, close. None follow `close`. */
export interface ChildEvents {
  output(stream: OutputStream, chunk: Uint8Array): void;
  exit(exit: WaitStatus): void;
  /** All writers of all streams have closed; the file descriptors are closed. */
  close(): void;
  /** The input queue is empty, or no process can read it anymore. */
  drain(): void;
  /** The output could not be read, or an event could not be decoded. The process can no longer be tracked. */
  failed(error: Error): void;
}

/**
 * Identifies the pipes or the terminal of a child. A process that holds one of them is a descendant of the child.
 * Valid only while the server's ends are open: afterwards the kernel reuses the numbers.
 */
export interface StdioIdentity {
  /** Inodes of the pipes. */
  pipes: readonly number[];
  /** N of `/dev/pts/N`. */
  pts: number | null;
}

/** The input of a child. */
export interface ChildInput {
  /** Queues bytes and stores their write id. Does nothing if no process can read the input anymore. */
  write(bytes: Uint8Array, writeId?: string): void;
  /** Returns true if a write with this id was accepted before. */
  hasWriteId(writeId: string): boolean;
  /** Bytes that the kernel has not accepted yet; 0 if no process can read them anymore. */
  readonly queuedBytes: number;
  /** Bytes that the kernel has accepted. */
  readonly writtenBytes: number;
  /** Queue size at which writers wait. 0 for a persistent process: a server crash would lose its queue. */
  readonly maxQueuedBytes?: number | undefined;
  /** Closes the input when the queue is empty. A terminal receives the end-of-file character instead. */
  close(): void;
  /** Target for direct input by the addon's sockets; null if direct input is unavailable. */
  readonly direct: object | null;
  /** Stops direct input, because the child is being terminated. */
  closeDirect(): void;
}

/** A started process: the leader of its POSIX session and process group. */
export interface Child {
  readonly pid: number;
  /**
   * Start time in the process table; null if it could not be read. It distinguishes the leader and its descendants from
   * reused pids.
   */
  readonly startTime: number | null;
  /** The tree tag that descendants inherit; null if the tree is untagged. */
  readonly treeTag: number | null;
  readonly input: ChildInput;
  pause(): void;
  resume(): void;
  resize(size: TerminalSize): void;
  /** Null if the process has no terminal or the terminal is closed. */
  ttyState(): TtyState | null;
  /** Signals the process group. Returns false once the leader has been reaped. */
  signalGroup(signal: number): boolean;
  /** Stops reading, although a process that the server cannot kill may still hold a stream. `close` follows the exit. */
  closeStreams(): void;
  /** Empty after `close` or `closeStreams`. */
  readonly stdioIdentity: StdioIdentity;
  /** The process cgroup; null if there is none. */
  readonly cgroup?: ProcessCgroup | null | undefined;
  /** Set only for a persistent process. */
  readonly persistent?: PersistentChild | null | undefined;
}

/** The cgroup of a process and its descendants. Only root can move a process out of it. */
export interface ProcessCgroup {
  /** Pids of the live processes in the cgroup. */
  pids(): number[];
  /** Kills all processes in the cgroup at once, including processes that are being forked. */
  kill(): void;
}

export const NO_STDIO_IDENTITY: StdioIdentity = { pipes: [], pts: null };

export type SpawnChild = (spec: ChildSpec, events: ChildEvents) => Promise<Child>;
