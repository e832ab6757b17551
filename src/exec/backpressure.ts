import type { EventCursor } from "./event-cursor.ts";
import type { RetentionBudget } from "./retention-budget.ts";

/** What a log has now, as far as it matters for who holds how much of it. */
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
      // What is evicted already is held by nobody, wherever the cursor stands.
      const heldBytes = Math.min(totalBytes - cursor.offset, here);
      const heldChunks = Math.min(lastSeq - cursor.seq, count);
      most = Math.max(most, heldBytes);
      const { extraBytes } = cursor;
      const room = this.#room(extraBytes);
      if (heldBytes >= Math.min(retainedBytes + extraBytes, room) || heldChunks >= retainedChunks)
        full = true;
      // Half way back before going on, so that a reader at the edge does not make the process stutter.
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

  /** Last of all: every log may be asked to look again then, this one too. */
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
