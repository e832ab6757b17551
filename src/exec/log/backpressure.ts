import type { EventCursor } from "./event-cursor.ts";
import type { RetentionBudget } from "./retention-budget.ts";

/** The state of a log that decides about backpressure. */
export interface LogState {
  cursors: Iterable<EventCursor>;
  /** Bytes and events of output so far, and how much of both is still here. */
  totalBytes: number;
  lastSeq: number;
  retainedBytes: number;
  retainedChunks: number;
}

/** What one cursor may hold before the process is paused. */
export interface HoldLimits {
  retainedBytes: number;
  retainedChunks: number;
}

/**
 * Decides when a process is paused because a holding cursor has not taken what it wrote, and when it goes on. A cursor may
 * hold a whole retention; where all logs of a server together hold much, it may hold no more than is still free in
 * their budget.
 */
export class Backpressure {
  readonly #limits: HoldLimits;
  readonly #budget: RetentionBudget | undefined;
  readonly #onPaused: (paused: boolean) => void;
  #heldBytes = 0;
  #paused = false;

  constructor(limits: HoldLimits, budget: RetentionBudget | undefined, onPaused: (paused: boolean) => void) {
    this.#limits = limits;
    this.#budget = budget;
    this.#onPaused = onPaused;
  }

  get isPaused(): boolean {
    return this.#paused;
  }

  update({ cursors, totalBytes, lastSeq, retainedBytes: here, retainedChunks: count }: LogState): void {
    const { retainedBytes, retainedChunks } = this.#limits;
    let most = 0;
    let full = false;
    let roomy = true;
    for (const cursor of cursors) {
      if (!cursor.holding) continue;
      // Evicted output is not held by a cursor, wherever it stands.
      const heldBytes = Math.min(totalBytes - cursor.offset, here);
      const heldChunks = Math.min(lastSeq - cursor.seq, count);
      most = Math.max(most, heldBytes);
      const { extraBytes } = cursor;
      const room = this.#room(extraBytes);
      if (heldBytes >= Math.min(retainedBytes + extraBytes, room) || heldChunks >= retainedChunks)
        full = true;
      // Resume only at half the limit, so that a reader at the limit does not make the process stutter.
      const half = Math.min(retainedBytes / 2 + extraBytes, room / 2);
      if (heldBytes > half || heldChunks > retainedChunks / 2) roomy = false;
    }
    if (!this.#paused && full) {
      this.#paused = true;
      this.#onPaused(true);
    } else if (this.#paused && roomy) {
      this.#paused = false;
      this.#onPaused(false);
    }
    this.#tellHeld(most);
  }

  /** Must come last: it may make every log check its backpressure again, this one too. */
  #tellHeld(bytes: number): void {
    const more = bytes - this.#heldBytes;
    if (more === 0) return;
    this.#heldBytes = bytes;
    this.#budget?.hold(more);
  }

  /** A cursor that never pauses the process asks for no room. */
  #room(extraBytes: number): number {
    if (!this.#budget || extraBytes === Number.POSITIVE_INFINITY) return Number.POSITIVE_INFINITY;
    return this.#budget.roomToHold;
  }
}
