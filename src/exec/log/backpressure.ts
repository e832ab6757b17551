import type { EventCursor } from "./event-cursor.ts";
import type { RetentionBudget } from "./retention-budget.ts";

/** State of an event log that decides about backpressure. */
export interface LogState {
  /** The lossless cursors. */
  cursors: Iterable<EventCursor>;
  /** Bytes of all output so far. */
  totalBytes: number;
  /** Sequence number of the last event. */
  lastSeq: number;
  retainedBytes: number;
  retainedChunks: number;
}

/** Maximum that one cursor may pin before the process is paused. */
export interface PinLimits {
  retainedBytes: number;
  retainedChunks: number;
}

/**
 * Decides when a process is paused because a lossless cursor has not consumed its output, and when it resumes. A
 * cursor may pin one full retention. If the logs of a server together pin much, it may pin no more than is free in
 * their budget.
 */
export class Backpressure {
  readonly #limits: PinLimits;
  readonly #budget: RetentionBudget | undefined;
  readonly #onPaused: (paused: boolean) => void;
  #pinnedBytes = 0;
  isPaused = false;

  constructor(limits: PinLimits, budget: RetentionBudget | undefined, onPaused: (paused: boolean) => void) {
    this.#limits = limits;
    this.#budget = budget;
    this.#onPaused = onPaused;
  }

  update({ cursors, totalBytes, lastSeq, retainedBytes: bytesInLog, retainedChunks: chunksInLog }: LogState): void {
    const { retainedBytes, retainedChunks } = this.#limits;
    let maxPinnedBytes = 0;
    let isFull = false;
    let canResume = true;
    for (const cursor of cursors) {
      // Evicted output is not pinned, whatever the position of the cursor is.
      const pinnedBytes = Math.min(totalBytes - cursor.offset, bytesInLog);
      const pinnedChunks = Math.min(lastSeq - cursor.seq, chunksInLog);
      maxPinnedBytes = Math.max(maxPinnedBytes, pinnedBytes);
      if (pinnedChunks >= retainedChunks) isFull = true;
      // Resume only at half the limit, so that a reader at the limit does not pause the process repeatedly.
      if (pinnedChunks > retainedChunks / 2) canResume = false;
      const { extraBytes } = cursor;
      if (extraBytes === "unlimited") continue;
      const headroom = this.#budget?.pinnableBytes ?? Number.POSITIVE_INFINITY;
      if (pinnedBytes >= Math.min(retainedBytes + extraBytes, headroom)) isFull = true;
      if (pinnedBytes > Math.min(retainedBytes / 2 + extraBytes, headroom / 2)) canResume = false;
    }
    if (!this.isPaused && isFull) {
      this.isPaused = true;
      this.#onPaused(true);
    } else if (this.isPaused && canResume) {
      this.isPaused = false;
      this.#onPaused(false);
    }
    this.#reportPinned(maxPinnedBytes);
  }

  /** Must be called last: the budget may make every log check its backpressure again, including this one. */
  #reportPinned(bytes: number): void {
    const addedBytes = bytes - this.#pinnedBytes;
    if (addedBytes === 0) return;
    this.#pinnedBytes = bytes;
    this.#budget?.pin(addedBytes);
  }
}
