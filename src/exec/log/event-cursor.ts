import type { ExecEvent } from "../exec-process.ts";
import type { EventLog } from "./event-log.ts";

export interface CursorOptions {
  afterSeq?: number;
  /** Pins output after this cursor: the process is paused instead of evicting. */
  lossless?: boolean;
  /** Bytes beyond the retention that this cursor may pin before the process is paused. Default: 0. */
  extraBytes?: number | "unlimited";
  /** The reader uses the output of an event only until it returns to the event loop or takes the next one. */
  borrows?: boolean;
}

/** A reader's position in an event log. */
export class EventCursor {
  readonly #log: EventLog;
  readonly #registry: Set<EventCursor>;
  #seq: number;
  #offset: number;
  readonly #isLossless: boolean;
  #isEnded = false;
  readonly #borrows: boolean;
  readonly extraBytes: number | "unlimited";

  constructor(log: EventLog, registry: Set<EventCursor>, options: CursorOptions) {
    this.#log = log;
    this.#registry = registry;
    this.#seq = options.afterSeq ?? 0;
    this.#offset = log.offsetAt(this.#seq);
    this.#isLossless = options.lossless === true;
    this.#borrows = options.borrows === true;
    this.extraBytes = options.extraBytes ?? 0;
  }

  get seq(): number {
    return this.#seq;
  }

  /** Bytes of output before the cursor. */
  get offset(): number {
    return this.#offset;
  }

  /** True after the cursor delivered `closed` or `failed`, or was closed. */
  get ended(): boolean {
    return this.#isEnded;
  }

  /** Output bytes in the next event; 0 if the next event is not output or does not exist yet. */
  get nextBytes(): number {
    const event = this.#isEnded ? null : this.#log.eventAfter(this.#seq, true);
    return event?.type === "output" ? event.chunk.length : 0;
  }

  /** Consumes and returns the next event, or null if there is none yet. */
  next(): ExecEvent | null {
    if (this.#isEnded) return null;
    const event = this.#log.eventAfter(this.#seq, this.#borrows);
    if (event) {
      this.#consume(event);
      return event;
    }
    const error = this.#log.failure;
    if (error === null) {
      // A cursor at the end of a closed log gets no further events.
      if (this.#log.isClosed) this.#isEnded = true;
      return null;
    }
    this.#isEnded = true;
    return { type: "failed", message: error.message, error };
  }

  /** Skips to `seq`, because the client acknowledged all events up to it. Never moves back, nor past the last event. */
  advanceTo(seq: number): void {
    const target = Math.min(seq, this.#log.nextSeq - 1);
    if (target <= this.#seq) return;
    this.#seq = target;
    this.#offset = this.#log.offsetAt(target);
    // A closed cursor pins nothing.
    if (this.#isLossless && this.#registry.has(this)) this.#log.rebalance();
  }

  close(): void {
    this.#isEnded = true;
    if (this.#registry.delete(this) && this.#isLossless) this.#log.rebalance();
  }

  #consume(event: ExecEvent): void {
    if (event.type === "failed") return;
    this.#seq = event.type === "gap" ? event.toSeq : event.seq;
    if (event.type === "closed") this.#isEnded = true;
    if (event.type !== "output" && event.type !== "gap") return;
    this.#offset = event.type === "gap" ? this.#log.offsetAt(event.toSeq) : this.#offset + event.chunk.length;
    if (this.#isLossless) this.#log.rebalance();
  }
}
