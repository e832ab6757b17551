import { Broadcast } from "../../async/channel.ts";
import type { ExitStatus, OutputStream } from "../../exec/exec-process.ts";
import type { NetworkDecision } from "../../protocol/network/network-schemas.ts";

/** An event of unified exec, for a user interface, a log or JSON lines. */
export type UnifiedExecEvent =
  | ExecCommandBegin
  | ExecCommandOutputDelta
  | TerminalInteraction
  | TerminalWaiting
  | TerminalDriver
  | NetworkAccess
  | ExecCommandEnd;

/** A process started. The first event of a process. */
export interface ExecCommandBegin {
  type: "ExecCommandBegin";
  sessionId: number;
  processId: string;
  cmd: string;
  /** The requested argv, without the sandbox command. */
  argv: readonly string[];
  cwd: string;
  tty: boolean;
  sandbox: "none" | "bubblewrap";
  /** 2 if the command runs again without a sandbox after a denial, with the same `sessionId`. */
  attempt: 1 | 2;
  atMs: number;
}

export interface ExecCommandOutputDelta {
  type: "ExecCommandOutputDelta";
  sessionId: number;
  processId: string;
  stream: OutputStream;
  chunk: Uint8Array;
  /** Bytes before this chunk that were dropped for a slow subscriber or evicted. */
  omittedBytes: number;
}

/** Input was written to a session. */
export interface TerminalInteraction {
  type: "TerminalInteraction";
  sessionId: number;
  processId: string;
  /** Null if echo was off, because the input is a secret. */
  stdin: string | null;
  atMs: number;
}

/** A session waits for a secret, or the model asked for a user. */
export interface TerminalWaiting {
  type: "TerminalWaiting";
  sessionId: number;
  processId: string;
  waitingFor: "secret" | "user";
  /** Reason given by the model; null if the model did not ask. */
  reason: string | null;
  /** How a user attaches; null if users cannot attach. */
  attach: { handle: string; command: string } | null;
  atMs: number;
}

/** A user started to drive a terminal, or returned it. Events never contain the input of the user. */
export interface TerminalDriver {
  type: "TerminalDriver";
  sessionId: number;
  processId: string;
  driver: "user" | "model";
  atMs: number;
}

/** The network proxy of a process allowed or blocked a target. Emitted once per target and decision. */
export interface NetworkAccess
  extends Pick<NetworkDecision, "decision" | "source" | "reason" | "protocol" | "host" | "port" | "method"> {
  type: "NetworkAccess";
  sessionId: number;
  processId: string;
  atMs: number;
}

/** A process ended. The last event of a process, emitted once. */
export interface ExecCommandEnd {
  type: "ExecCommandEnd";
  sessionId: number;
  processId: string;
  end: ExecSessionEnd;
  /** Whether the command runs again without a sandbox after a denial. Its `attempt` 2 follows. */
  willRetry: boolean;
  /** Head and tail of the output, with `omittedBytes` between them. */
  head: Uint8Array;
  tail: Uint8Array;
  omittedBytes: number;
  totalBytes: number;
  durationMs: number;
  atMs: number;
}

/** How a session ended. */
export type ExecSessionEnd =
  | ({ type: "exited" } & ExitStatus)
  /** Ended, because the session limit was reached. */
  | { type: "evicted" }
  /** Ended, because unified exec was closed. */
  | { type: "closed" }
  /** The server lost track of the process; its exit status is unknown. */
  | { type: "failed"; message: string };

/** Maximum queued output per subscriber. Beyond it, the oldest output is dropped and counted. */
const MAX_QUEUED_BYTES = 4 * 1024 * 1024;
/** Fixed cost of an event, which also bounds the number of tiny events. */
const EVENT_COST_BYTES = 128;

/** Delivers every event to every subscriber. A slow subscriber loses only output, never other events. */
export class EventFeed {
  readonly #events = new Broadcast({ cost: costOf, capacity: MAX_QUEUED_BYTES, onOverflow: dropOldestOutput });

  emit(event: UnifiedExecEvent): void {
    this.#events.emit(event);
  }

  /** Returns all further events until the feed is closed. */
  subscribe(): AsyncIterableIterator<UnifiedExecEvent> {
    return this.#events.subscribe();
  }

  close(): void {
    this.#events.close();
  }
}

/** Drops the older half of the output and inserts one event per process with the number of dropped bytes. */
function dropOldestOutput(queue: UnifiedExecEvent[], cost: number): number {
  const gaps = new Map<string, ExecCommandOutputDelta>();
  const retained: UnifiedExecEvent[] = [];
  let left = cost;
  for (const event of queue) {
    if (event.type !== "ExecCommandOutputDelta" || left <= MAX_QUEUED_BYTES / 2) {
      retained.push(event);
      continue;
    }
    left -= costOf(event);
    const gap = gaps.get(event.processId) ?? { ...event, chunk: NO_BYTES, omittedBytes: 0 };
    gap.omittedBytes += event.omittedBytes + event.chunk.length;
    if (gaps.has(event.processId)) continue;
    gaps.set(event.processId, gap);
    retained.push(gap);
    left += costOf(gap);
  }
  queue.splice(0, queue.length, ...retained);
  return cost - left;
}

const NO_BYTES = new Uint8Array(0);

function costOf(event: UnifiedExecEvent): number {
  return event.type === "ExecCommandOutputDelta" ? event.chunk.length + EVENT_COST_BYTES : 0;
}
