import { HIGH_WATER_MARK_BYTES } from "../../connection/connection.ts";
import type { ExecEvent } from "../../exec/exec-process.ts";
import type { EventCursor } from "../../exec/log/event-cursor.ts";
import type { EventLog } from "../../exec/log/event-log.ts";
import type { Peer } from "../rpc/peer.ts";

/** Data that a pump may send before it must wait for `allow` or `release`. */
export interface SendAllowance {
  bytes: number;
  events: number;
}

export interface ProcessPumpOptions {
  afterSeq: number;
  /** Default: unlimited. */
  allowance?: SendAllowance;
  /** Called when all events of the process were sent. Not called after `stop`. */
  onEnd?: () => void;
}

/** Copies the events of a process to a peer. */
export interface Pump {
  /** True when the pump sends nothing more: all was sent, or `stop` was called. */
  readonly stopped: boolean;
  /** Seq of the last event sent. */
  readonly seq: number;
  /** Sets a new allowance. */
  allow(allowance: SendAllowance): void;
  /** Removes the allowance. */
  release(): void;
  stop(): void;
}

/**
 * Copies the events of one process to one peer, in order, as fast as the peer takes them. Its cursor pins unsent
 * output. A stalled peer therefore pauses the process; no output is lost and memory stays bounded.
 */
export class ProcessPump implements Pump {
  readonly #peer: Peer;
  readonly #notify: (event: ExecEvent) => void;
  readonly #cursor: EventCursor;
  /** Pins sent data that is still queued in this server: a lost connection would lose it. Never pauses the process. */
  readonly #unflushed: EventCursor;
  /** The next position to check: everything up to `seq` has left when the peer is flushed through `position`. */
  #inFlight: { seq: number; position: number };
  readonly #onEnd: () => void;
  #allowance: SendAllowance | null;
  readonly #stopListening: () => void;
  readonly #stopDraining: () => void;
  stopped = false;

  constructor(log: EventLog, peer: Peer, notify: (event: ExecEvent) => void, options: ProcessPumpOptions) {
    this.#peer = peer;
    this.#notify = notify;
    this.#onEnd = options.onEnd ?? (() => undefined);
    this.#allowance = options.allowance ?? null;
    this.#cursor = log.cursor({ afterSeq: options.afterSeq, lossless: true, borrows: !peer.keepsBytes });
    this.#unflushed = log.cursor({ afterSeq: options.afterSeq, lossless: true, extraBytes: "unlimited" });
    this.#inFlight = { seq: options.afterSeq, position: peer.sentPosition() };
    this.#stopListening = log.listen(() => this.#run());
    this.#stopDraining = peer.onDrain(() => this.#run());
    this.#run();
  }

  get seq(): number {
    return this.#cursor.seq;
  }

  allow(allowance: SendAllowance): void {
    this.#allowance = allowance;
    this.#run();
  }

  release(): void {
    this.#allowance = null;
    this.#run();
  }

  stop(): void {
    if (this.stopped) return;
    this.stopped = true;
    this.#stopListening();
    this.#stopDraining();
    this.#cursor.close();
    this.#unflushed.close();
  }

  #run(): void {
    this.#unpinFlushed();
    while (!this.stopped && this.#canSend() && !isExhausted(this.#allowance)) {
      const event = this.#cursor.next();
      if (!event) {
        if (!this.#cursor.ended) return;
        this.stop();
        this.#onEnd();
        return;
      }
      if (this.#allowance) this.#allowance = subtract(this.#allowance, event);
      this.#notify(event);
    }
  }

  /** Unpins data that has left this server. */
  #unpinFlushed(): void {
    const position = this.#peer.sentPosition();
    if (this.#peer.isFlushedThrough(position) || this.#exceedsLag()) this.#unflushed.advanceTo(this.#cursor.seq);
    else if (this.#peer.isFlushedThrough(this.#inFlight.position)) this.#unflushed.advanceTo(this.#inFlight.seq);
    else return;
    this.#inFlight = { seq: this.#cursor.seq, position };
  }

  /** Stops bulk output at a short queue, so that it does not delay interactive output of another process. */
  #canSend(): boolean {
    if (!this.#peer.isAboveBulkLimit) return true;
    return this.#cursor.nextBytes <= INTERACTIVE_BYTES && !this.#peer.isAboveQueueLimit;
  }

  /** Bounds the pinned data if the queue is never empty when it is checked. */
  #exceedsLag(): boolean {
    const bytes = this.#cursor.offset - this.#unflushed.offset;
    return bytes >= MAX_QUEUED.bytes || this.#cursor.seq - this.#unflushed.seq >= MAX_QUEUED.events;
  }
}

/** Maximum size of interactive output: lines, prompts, the echo of a key. */
const INTERACTIVE_BYTES = 4096;

/** Limit of the pinned sent data per process. A reading peer has at most a full queue and one send in flight. */
const MAX_QUEUED: SendAllowance = { bytes: HIGH_WATER_MARK_BYTES, events: 10_000 };

function isExhausted(allowance: SendAllowance | null): boolean {
  return allowance !== null && (allowance.bytes <= 0 || allowance.events <= 0);
}

function subtract({ bytes, events }: SendAllowance, event: ExecEvent): SendAllowance {
  const used = event.type === "output" ? event.chunk.length : 0;
  return { bytes: bytes - used, events: events - 1 };
}
