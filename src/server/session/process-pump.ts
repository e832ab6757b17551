import { CONGESTED_BYTES } from "../../connection/connection.ts";
import type { ExecEvent } from "../../exec/exec-process.ts";
import type { EventCursor } from "../../exec/log/event-cursor.ts";
import type { EventLog } from "../../exec/log/event-log.ts";
import type { Peer } from "../rpc/peer.ts";

/** How far a pump may run before it is told that it may go on. */
export interface Allowance {
  bytes: number;
  events: number;
}

export interface ProcessPumpOptions {
  afterSeq: number;
  /** Absent: as far as the peer takes it. */
  allowance?: Allowance;
  /** Everything there will ever be is sent. Not called for a pump that was stopped. */
  onEnd?: () => void;
}

/** What carries a process's events to a peer, as the session that sends them sees it. */
export interface Pump {
  readonly stopped: boolean;
  /** The last event that was sent. */
  readonly seq: number;
  allow(allowance: Allowance): void;
  release(): void;
  stop(): void;
}

/**
 * Carries one process's events to one peer, in order, as fast as the peer takes them. Its cursor holds what was not
 * sent yet, so a stalled peer makes the process pause instead of making the server grow or the output get lost.
 */
export class ProcessPump implements Pump {
  readonly #peer: Peer;
  readonly #tell: (event: ExecEvent) => void;
  readonly #cursor: EventCursor;
  /**
   * Everything up to here has left this program. What was told since is lost if the connection goes now, so it is held;
   * it never makes the process pause.
   */
  readonly #left: EventCursor;
  /** What is looked for next: whether everything up to this seq has left. */
  #underWay: { seq: number; mark: number };
  readonly #onEnd: () => void;
  #allowance: Allowance | null;
  readonly #stopListening: () => void;
  readonly #stopDraining: () => void;
  #stopped = false;

  constructor(log: EventLog, peer: Peer, tell: (event: ExecEvent) => void, options: ProcessPumpOptions) {
    this.#peer = peer;
    this.#tell = tell;
    this.#onEnd = options.onEnd ?? (() => undefined);
    this.#allowance = options.allowance ?? null;
    this.#cursor = log.cursor({ afterSeq: options.afterSeq, holding: true });
    const extraBytes = Number.POSITIVE_INFINITY;
    this.#left = log.cursor({ afterSeq: options.afterSeq, holding: true, extraBytes });
    this.#underWay = { seq: options.afterSeq, mark: peer.mark() };
    this.#stopListening = log.listen(() => this.#run());
    this.#stopDraining = peer.onDrain(() => this.#run());
    this.#run();
  }

  /** It sends nothing more: all was sent, or somebody stopped it. */
  get stopped(): boolean {
    return this.#stopped;
  }

  get seq(): number {
    return this.#cursor.seq;
  }

  /** It may run this far from here. */
  allow(allowance: Allowance): void {
    this.#allowance = allowance;
    this.#run();
  }

  /** There is no allowance any more. */
  release(): void {
    this.#allowance = null;
    this.#run();
  }

  stop(): void {
    if (this.#stopped) return;
    this.#stopped = true;
    this.#stopListening();
    this.#stopDraining();
    this.#cursor.close();
    this.#left.close();
  }

  #run(): void {
    this.#letGo();
    while (!this.#stopped && this.#hasRoom() && !isUsedUp(this.#allowance)) {
      const event = this.#cursor.next();
      if (!event) {
        if (!this.#cursor.ended) return;
        this.stop();
        this.#onEnd();
        return;
      }
      if (this.#allowance) this.#allowance = lessBy(this.#allowance, event);
      this.#tell(event);
    }
  }

  /** Stops holding what has left. */
  #letGo(): void {
    const mark = this.#peer.mark();
    if (this.#peer.hasLeft(mark) || this.#isTooFarBehind()) this.#left.advanceTo(this.#cursor.seq);
    else if (this.#peer.hasLeft(this.#underWay.mark)) this.#left.advanceTo(this.#underWay.seq);
    else return;
    this.#underWay = { seq: this.#cursor.seq, mark };
  }

  /** Bulk leaves the queue short, so that a word of another process is not sent behind much of it. */
  #hasRoom(): boolean {
    if (!this.#peer.crowded) return true;
    return this.#cursor.nextBytes <= WORD_BYTES && !this.#peer.congested;
  }

  /** A queue that is never quite empty when it is looked at must not make the log grow. */
  #isTooFarBehind(): boolean {
    const bytes = this.#cursor.offset - this.#left.offset;
    return bytes >= MAX_QUEUED.bytes || this.#cursor.seq - this.#left.seq >= MAX_QUEUED.events;
  }
}

/** Output up to this size is no bulk: lines, prompts, the echo of a key. */
const WORD_BYTES = 4096;

/** More than this of one process is not queued for a peer that is served at all: a full queue, and what is being sent. */
const MAX_QUEUED: Allowance = { bytes: CONGESTED_BYTES, events: 10_000 };

function isUsedUp(allowance: Allowance | null): boolean {
  return allowance !== null && (allowance.bytes <= 0 || allowance.events <= 0);
}

function lessBy({ bytes, events }: Allowance, event: ExecEvent): Allowance {
  const used = event.type === "output" ? event.chunk.length : 0;
  return { bytes: bytes - used, events: events - 1 };
}
