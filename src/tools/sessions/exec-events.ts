import { Channel } from "../../async/channel.ts";
import type { ExitStatus, OutputStream } from "../../exec/exec-process.ts";

/** What happens, for a person's view, a log or a stream of JSON lines. */
export type UnifiedExecEvent =
  | ExecCommandBegin
  | ExecCommandOutputDelta
  | TerminalInteraction
  | TerminalWaiting
  | TerminalDriver
  | ExecCommandEnd;

/** A process has started. Comes before anything else about it. */
export interface ExecCommandBegin {
  type: "ExecCommandBegin";
  sessionId: number;
  processId: string;
  cmd: string;
  /** What was asked for, before walls were put around it. */
  argv: readonly string[];
  cwd: string;
  tty: boolean;
  sandbox: "none" | "bubblewrap";
  /** 2 when the walls refused something and it runs again without them, under the same `sessionId`. */
  attempt: 1 | 2;
  atMs: number;
}

export interface ExecCommandOutputDelta {
  type: "ExecCommandOutputDelta";
  sessionId: number;
  processId: string;
  stream: OutputStream;
  chunk: Uint8Array;
  /** Bytes before this chunk that were dropped because this subscriber was too slow, or that were not retained. */
  omittedBytes: number;
}

/** Something was written to a session. */
export interface TerminalInteraction {
  type: "TerminalInteraction";
  sessionId: number;
  processId: string;
  /** Left out when the terminal's echo was off: it was a secret. */
  stdin: string | null;
  atMs: number;
}

/** A session waits for what only a person should type, or the model has asked for one. */
export interface TerminalWaiting {
  type: "TerminalWaiting";
  sessionId: number;
  processId: string;
  waitingFor: "secret" | "person";
  /** What the model says of it; null where it has not asked. */
  reason: string | null;
  /** How a person gets there; null where nobody can attach. */
  attach: { handle: string; command: string } | null;
  atMs: number;
}

/** A person has begun to drive a session's terminal, or has handed it back. What is typed there is in no event. */
export interface TerminalDriver {
  type: "TerminalDriver";
  sessionId: number;
  processId: string;
  driver: "person" | "model";
  atMs: number;
}

/** A process is over. Comes once, and last. */
export interface ExecCommandEnd {
  type: "ExecCommandEnd";
  sessionId: number;
  processId: string;
  end: SessionEnd;
  /** The walls refused something, and the same command has been started again without them: its `attempt` 2 follows. */
  runsAgain: boolean;
  /** The beginning and the end of what it wrote; `omittedBytes` fell out between them. */
  head: Uint8Array;
  tail: Uint8Array;
  omittedBytes: number;
  totalBytes: number;
  durationMs: number;
  atMs: number;
}

/** How a session ended. */
export type SessionEnd =
  | ({ type: "exited" } & ExitStatus)
  /** It was ended to make room for another. */
  | { type: "evicted" }
  /** Unified exec was closed around it. */
  | { type: "closed" }
  /** It can no longer be followed; how it ended, or whether, is not known. */
  | { type: "failed"; message: string };

/** A subscriber that leaves this much output untaken loses the oldest of it, and is told how much. */
const MAX_UNTAKEN_BYTES = 4 * 1024 * 1024;
/** What an event costs besides its bytes, so that many tiny ones are bounded too. */
const EVENT_COST_BYTES = 128;

/** Hands every event to every subscriber, each at its own pace. Only output is ever lost by a slow one. */
export class EventFeed {
  readonly #subscribers = new Set<Subscriber>();
  #closed = false;

  emit(event: UnifiedExecEvent): void {
    for (const subscriber of this.#subscribers) subscriber.push(event);
  }

  /** Everything from now on, until the feed is closed. */
  subscribe(): AsyncIterableIterator<UnifiedExecEvent> {
    const subscriber: Subscriber = new Channel({
      cost: costOf,
      capacity: MAX_UNTAKEN_BYTES,
      shed: dropOldestOutput,
      onReturn: () => this.#subscribers.delete(subscriber),
    });
    if (this.#closed) subscriber.end();
    else this.#subscribers.add(subscriber);
    return subscriber;
  }

  close(): void {
    this.#closed = true;
    for (const subscriber of this.#subscribers) subscriber.end();
    this.#subscribers.clear();
  }
}

type Subscriber = Channel<UnifiedExecEvent>;

/** Drops the older half of the output, and leaves in its place how much of which process went. */
function dropOldestOutput(queue: UnifiedExecEvent[], cost: number): number {
  const places = new Map<string, ExecCommandOutputDelta>();
  const kept: UnifiedExecEvent[] = [];
  let left = cost;
  for (const event of queue) {
    if (event.type !== "ExecCommandOutputDelta" || left <= MAX_UNTAKEN_BYTES / 2) {
      kept.push(event);
      continue;
    }
    left -= costOf(event);
    const place = places.get(event.processId) ?? { ...event, chunk: NOTHING, omittedBytes: 0 };
    place.omittedBytes += event.omittedBytes + event.chunk.length;
    if (places.has(event.processId)) continue;
    places.set(event.processId, place);
    kept.push(place);
    left += costOf(place);
  }
  queue.splice(0, queue.length, ...kept);
  return cost - left;
}

const NOTHING = new Uint8Array(0);

function costOf(event: UnifiedExecEvent): number {
  return event.type === "ExecCommandOutputDelta" ? event.chunk.length + EVENT_COST_BYTES : 0;
}
