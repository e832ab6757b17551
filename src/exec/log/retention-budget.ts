import type { MemoryBudget, ReclaimOrder } from "../../async/memory-budget.ts";

/** A log that can evict retained bytes. */
export interface Evictable {
  readonly retainedBytes: number;
  readonly isClosed: boolean;
  evictTo(bytes: number): void;
  /** Called when the number of pinnable bytes changed noticeably. */
  rebalance?(): void;
}

/**
 * Share of the maximum that stays with the logs when the memory budget reclaims: large file reads must not empty
 * every log.
 */
const PROTECTED_SHARE = 1 / 4;

/** Estimated memory of a new process and its descendants, which may be in the same container. Not charged. */
const PROCESS_BYTES = 512 * 1024;

/** Bytes that one log may pin for a slow reader, however much other logs pin: the size of a pipe. */
export const MIN_PINNED_BYTES = 64 * 1024;

interface OpenPartOptions {
  /** Part of the whole maximum, at most 1. */
  share: number;
  memory: MemoryBudget;
  order: ReclaimOrder;
  /** Called when the last log has left. */
  onEmpty: () => void;
}

interface PartOptions extends Pick<OpenPartOptions, "onEmpty"> {
  whole: RetentionBudget;
}

/**
 * Bounds the retained output of all processes together. Above the maximum, logs of closed processes evict first, then
 * the largest logs. Pinned output is never evicted. To bound it too, a log may pin no more than is still free: the
 * more logs pin, the less each may pin. With a memory budget, retained bytes are charged to it and evicted on
 * request; while it is full, each log may pin only `MIN_PINNED_BYTES`.
 *
 * A part is the budget of one principal. Its logs also belong to the whole budget, whose eviction takes from parts above
 * an equal part first.
 */
export class RetentionBudget {
  readonly #maxBytes: number;
  readonly #memory: MemoryBudget | undefined;
  readonly #logs = new Set<Evictable>();
  /** The budget that this one is a part of. */
  readonly #whole: RetentionBudget | undefined;
  readonly #parts = new Set<RetentionBudget>();
  readonly #onEmpty: (() => void) | undefined;
  #bytes = 0;
  #pinnedBytes = 0;
  /** Pinned bytes when the logs last checked their backpressure. */
  #pinnedAtLastCheck = 0;
  #isEvicting = false;
  /** Size above which eviction runs next. Rises while pinned output prevents it, so that not every chunk retries. */
  #evictAboveBytes: number;

  /** `order` applies to live processes. Output of closed processes is always reclaimed first. */
  constructor(maxBytes: number, memory?: MemoryBudget, order: ReclaimOrder = "liveProcesses", part?: PartOptions) {
    this.#maxBytes = maxBytes;
    this.#whole = part?.whole;
    this.#onEmpty = part?.onEmpty;
    this.#evictAboveBytes = maxBytes;
    this.#memory = memory;
    memory?.addReclaimer("closedProcesses", (bytes) => {
      const target = Math.max(this.#bytes - bytes, this.#protectedBytes);
      for (const { logs, minBytes } of this.#partsAbove(target)) {
        // Live output of a part above an equal part goes first, in the next step.
        if (logs === this && this.#parts.size > 1) continue;
        for (const log of logs.#logs)
          if (log.isClosed && this.#bytes > target && logs.#bytes > minBytes) log.evictTo(0);
      }
    });
    memory?.addReclaimer(order, (bytes) => this.#evictLargest(Math.max(this.#bytes - bytes, this.#protectedBytes)));
    memory?.onFull(() => {
      for (const log of this.#logs) log.rebalance?.();
    });
  }

  /** Returns a budget of `share` of this one, whose logs also belong to this one. Call `closePart` at its end. */
  openPart({ share, memory, order, onEmpty }: OpenPartOptions): RetentionBudget {
    const part = new RetentionBudget(this.#maxBytes * share, memory, order, { whole: this, onEmpty });
    this.#parts.add(part);
    return part;
  }

  closePart(): void {
    if (this.#whole) this.#whole.#parts.delete(this);
  }

  get isEmpty(): boolean {
    return this.#logs.size === 0;
  }

  /** The maximum in force, which is lower while the limit of the memory budget is. */
  get #availableBytes(): number {
    return Math.min(this.#maxBytes, this.#memory?.limitBytes ?? this.#maxBytes);
  }

  get #protectedBytes(): number {
    return this.#availableBytes * PROTECTED_SHARE;
  }

  get bytes(): number {
    return this.#bytes;
  }

  join(log: Evictable): void {
    this.#logs.add(log);
    this.#whole?.join(log);
    this.#memory?.noteGrowth(PROCESS_BYTES);
  }

  leave(log: Evictable): void {
    this.#logs.delete(log);
    this.#whole?.leave(log);
    if (this.isEmpty) this.#onEmpty?.();
  }

  grow(bytes: number): void {
    this.#bytes += bytes;
    this.#whole?.grow(bytes);
    this.#memory?.charge(bytes);
    if (this.#bytes > this.#evictAboveBytes) {
      // Down to 7/8, so that the next chunk does not sort the logs again.
      this.#evictLargest(this.#maxBytes - this.#maxBytes / 8);
      this.#evictAboveBytes = Math.max(this.#maxBytes, this.#bytes + this.#maxBytes / 16);
    }
  }

  shrink(bytes: number): void {
    this.#bytes -= bytes;
    if (this.#bytes <= this.#maxBytes) this.#evictAboveBytes = this.#maxBytes;
    this.#memory?.release(bytes);
    this.#whole?.shrink(bytes);
  }

  /** True while the memory budget is full: logs retain little, and processes are paused early. */
  get isTight(): boolean {
    return this.#memory?.isFull === true || this.#whole?.isTight === true;
  }

  /** Bytes that one log may pin now. */
  get pinnableBytes(): number {
    if (this.isTight) return MIN_PINNED_BYTES;
    const ofWhole = this.#whole?.pinnableBytes ?? Number.POSITIVE_INFINITY;
    return Math.max(MIN_PINNED_BYTES, Math.min(this.#availableBytes - this.#pinnedBytes, ofWhole));
  }

  /**
   * Adds to the pinned bytes (negative to unpin). After a change of 1/16 of the maximum, all logs check their
   * backpressure.
   */
  pin(bytes: number): void {
    this.#pinnedBytes += bytes;
    this.#whole?.pin(bytes);
    if (Math.abs(this.#pinnedBytes - this.#pinnedAtLastCheck) < this.#maxBytes / 16) return;
    this.#pinnedAtLastCheck = this.#pinnedBytes;
    for (const log of this.#logs) log.rebalance?.();
  }

  #evictLargest(target: number): void {
    // A log that evicts may resume its process, whose output calls `grow`.
    if (this.#isEvicting) return;
    this.#isEvicting = true;
    for (const { logs, minBytes } of this.#partsAbove(target))
      logs.#evictDownTo(Math.max(minBytes, logs.#bytes - (this.#bytes - target)));
    this.#isEvicting = false;
  }

  /**
   * Returns the logs to evict from, with the bytes that they keep: parts above an equal part of the target, then all. A
   * principal below an equal part loses output only if pinned output prevents the eviction of others.
   */
  *#partsAbove(target: number): Generator<{ logs: RetentionBudget; minBytes: number }> {
    if (this.#parts.size > 1) {
      const minBytes = target / this.#parts.size;
      for (const logs of this.#parts) if (logs.#bytes > minBytes && this.#bytes > target) yield { logs, minBytes };
    }
    if (this.#bytes > target) yield { logs: this, minBytes: 0 };
  }

  #evictDownTo(target: number): void {
    const logs = [...this.#logs].sort(
      (a, b) => Number(b.isClosed) - Number(a.isClosed) || b.retainedBytes - a.retainedBytes,
    );
    let before: number;
    do {
      before = this.#bytes;
      for (const log of logs) {
        if (this.#bytes <= target) return;
        log.evictTo(log.isClosed ? 0 : log.retainedBytes / 2);
      }
    } while (this.#bytes < before);
  }
}
