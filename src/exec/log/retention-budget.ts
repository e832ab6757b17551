import type { MemoryBudget } from "../../async/memory-budget.ts";

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

/** Bytes that one log may pin for a slow reader, however much other logs pin: the size of a pipe. */
export const MIN_PINNED_BYTES = 64 * 1024;

/**
 * Bounds the retained output of all processes together. Above the maximum, logs of closed processes evict first, then
 * the largest logs. Pinned output is never evicted. To bound it too, a log may pin no more than is still free: the
 * more logs pin, the less each may pin. With a memory budget, retained bytes are charged to it and evicted on
 * request; while it is full, each log may pin only `MIN_PINNED_BYTES`.
 */
export class RetentionBudget {
  readonly #maxBytes: number;
  readonly #memory: MemoryBudget | undefined;
  readonly #logs = new Set<Evictable>();
  #bytes = 0;
  #pinnedBytes = 0;
  /** Pinned bytes when the logs last checked their backpressure. */
  #pinnedAtLastCheck = 0;
  #isEvicting = false;
  /** Size above which eviction runs next. Rises while pinned output prevents it, so that not every chunk retries. */
  #evictAboveBytes: number;

  constructor(maxBytes: number, memory?: MemoryBudget) {
    this.#maxBytes = maxBytes;
    this.#evictAboveBytes = maxBytes;
    this.#memory = memory;
    memory?.addReclaimer((bytes) => this.#evictLargest(Math.max(this.#bytes - bytes, maxBytes * PROTECTED_SHARE)));
    memory?.onFull(() => {
      for (const log of this.#logs) log.rebalance?.();
    });
  }

  get bytes(): number {
    return this.#bytes;
  }

  join(log: Evictable): void {
    this.#logs.add(log);
  }

  leave(log: Evictable): void {
    this.#logs.delete(log);
  }

  grow(bytes: number): void {
    this.#bytes += bytes;
    this.#memory?.charge(bytes);
    if (this.#bytes > this.#evictAboveBytes && !this.#isEvicting) {
      // Down to 7/8, so that the next chunk does not sort the logs again.
      this.#evictLargest(this.#maxBytes - this.#maxBytes / 8);
      this.#evictAboveBytes = Math.max(this.#maxBytes, this.#bytes + this.#maxBytes / 16);
    }
  }

  shrink(bytes: number): void {
    this.#bytes -= bytes;
    if (this.#bytes <= this.#maxBytes) this.#evictAboveBytes = this.#maxBytes;
    this.#memory?.release(bytes);
  }

  /** True while the memory budget is full: logs retain little, and processes are paused early. */
  get isTight(): boolean {
    return this.#memory?.isFull ?? false;
  }

  /** Bytes that one log may pin now. */
  get pinnableBytes(): number {
    return this.isTight ? MIN_PINNED_BYTES : Math.max(MIN_PINNED_BYTES, this.#maxBytes - this.#pinnedBytes);
  }

  /**
   * Adds to the pinned bytes (negative to unpin). After a change of 1/16 of the maximum, all logs check their
   * backpressure.
   */
  pin(bytes: number): void {
    this.#pinnedBytes += bytes;
    if (Math.abs(this.#pinnedBytes - this.#pinnedAtLastCheck) < this.#maxBytes / 16) return;
    this.#pinnedAtLastCheck = this.#pinnedBytes;
    for (const log of this.#logs) log.rebalance?.();
  }

  #evictLargest(target: number): void {
    if (this.#isEvicting) return;
    this.#isEvicting = true;
    const logs = [...this.#logs].sort(
      (a, b) => Number(b.isClosed) - Number(a.isClosed) || b.retainedBytes - a.retainedBytes,
    );
    for (let before = Number.POSITIVE_INFINITY; this.#bytes > target && this.#bytes < before; ) {
      before = this.#bytes;
      for (const log of logs) {
        if (this.#bytes <= target) break;
        log.evictTo(log.isClosed ? 0 : log.retainedBytes / 2);
      }
    }
    this.#isEvicting = false;
  }
}
