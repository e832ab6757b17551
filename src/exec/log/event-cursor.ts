import type { ExecEvent } from "../exec-process.ts";
import type { EventLog } from "./event-log.ts";

export interface CursorOptions {
  afterSeq?: number;
  /** Nothing after this cursor is evicted; the process is paused instead. */
  holding?: boolean;
  /** How many bytes more than the retention this cursor may hold before the process is paused. */
  extraBytes?: number;
}

/** A consumer's place in a log. */
export class EventCursor {
  readonly #log: EventLog;
  readonly #registry: Set<EventCursor>;
  #seq: number;
  #offset: number;
  #holding: boolean;
  #ended = false;
  readonly extraBytes: number;

  constructor(log: EventLog, registry: Set<EventCursor>, options: CursorOptions) {
    this.#log = log;
    this.#registry = registry;
    this.#seq = options.afterSeq ?? 0;
    this.#offset = log.offsetAt(this.#seq);
    this.#holding = options.holding ?? false;
    this.extraBytes = options.extraBytes ?? 0;
  }

  get seq(): number {
    return this.#seq;
  }

  /** Bytes of output told up to here. */
  get offset(): number {
    return this.#offset;
  }

  get holding(): boolean {
    return this.#holding;
  }

  /** It has delivered `closed` or `failed`, or was closed: there is nothing more. */
  get ended(): boolean {
    return this.#ended;
  }

  /** Bytes of output in the next event; 0 when it has none, or there is none yet. */
  get nextBytes(): number {
    const event = this.#ended ? null : this.#log.eventAfter(this.#seq);
    return event?.type === "output" ? event.chunk.length : 0;
  }

  /** Takes the next event, or null when there is none yet. */
  next(): ExecEvent | null {
    if (this.#ended) return null;
    const event = this.#log.eventAfter(this.#seq);
    if (event) {
      this.#take(event);
      return event;
    }
    const message = this.#log.failure;
    if (message === null) {
      // A cursor at the end of a closed log has nothing to wait for.
      if (this.#log.isClosed) this.#ended = true;
      return null;
    }
    this.#ended = true;
    return { type: "failed", message };
  }

  /** Moves on without looking: everything up to `seq` is confirmed. Never moves back, nor beyond what was told. */
  advanceTo(seq: number): void {
    const target = Math.min(seq, this.#log.nextSeq - 1);
    if (target <= this.#seq) return;
    this.#seq = target;
    this.#offset = this.#log.offsetAt(target);
    if (this.#holding) this.#log.cursorMoved();
  }

  close(): void {
    this.#ended = true;
    if (!this.#registry.delete(this)) return;
    if (this.#holding) {
      this.#holding = false;
      this.#log.cursorMoved();
    }
  }

  #take(event: ExecEvent): void {
    switch (event.type) {
      case "output":
        this.#seq = event.seq;
        this.#offset += event.chunk.length;
        if (this.#holding) this.#log.cursorMoved();
        return;
      case "gap":
        this.#seq = event.toSeq;
        this.#offset = this.#log.offsetAt(event.toSeq);
        if (this.#holding) this.#log.cursorMoved();
        return;
      case "exited":
        this.#seq = event.seq;
        return;
      case "closed":
        this.#seq = event.seq;
        this.#ended = true;
        return;
      case "failed":
        return;
    }
  }
}
