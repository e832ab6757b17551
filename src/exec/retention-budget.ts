/** A log that can give back some of what it retains. */
export interface Evictable {
  readonly retainedBytes: number;
  readonly isClosed: boolean;
  evictTo(bytes: number): void;
}

/** 256 logs at their full retention of 1 MiB: a server stays below this however many processes it has had. */
export const DEFAULT_TOTAL_RETAINED_BYTES = 256 * 1024 * 1024;

/** 128 processes with a whole head and tail each: what all snapshots together may keep beside the retention. */
export const DEFAULT_TOTAL_SNAPSHOT_BYTES = 128 * 1024 * 1024;

/**
 * Bounds the retained output of all processes together. When the total is passed, logs of closed processes give way
 * first, then the largest; what a cursor holds stays.
 */
export class RetentionBudget {
  readonly #maxBytes: number;
  readonly #logs = new Set<Evictable>();
  #bytes = 0;
  #evicting = false;
  /** When so much is held that nobody can give way, it is not asked for again with every chunk. */
  #nextAt: number;

  constructor(maxBytes = DEFAULT_TOTAL_RETAINED_BYTES) {
    this.#maxBytes = maxBytes;
    this.#nextAt = maxBytes;
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
    if (this.#bytes > this.#nextAt && !this.#evicting) this.#giveWay();
  }

  shrink(bytes: number): void {
    this.#bytes -= bytes;
    if (this.#bytes <= this.#maxBytes) this.#nextAt = this.#maxBytes;
  }

  #giveWay(): void {
    this.#evicting = true;
    // Down to 7/8, so that the next chunk does not sort the logs again.
    const target = this.#maxBytes - this.#maxBytes / 8;
    const logs = [...this.#logs].sort(
      (a, b) => Number(b.isClosed) - Number(a.isClosed) || b.retainedBytes - a.retainedBytes,
    );
    for (const log of logs) {
      if (this.#bytes <= target) break;
      log.evictTo(log.isClosed ? 0 : log.retainedBytes / 2);
    }
    this.#evicting = false;
    this.#nextAt = Math.max(this.#maxBytes, this.#bytes + this.#maxBytes / 16);
  }
}
