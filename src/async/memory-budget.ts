/** Frees at least `bytes` bytes if possible and releases them from the budget. */
export type Reclaimer = (bytes: number) => void;

/**
 * Bytes of several components, counted against one limit. Each component charges its own bytes and decides how to react
 * at the limit: retained output is evicted, reads wait for free bytes, and producers pause while the budget is full.
 */
export class MemoryBudget {
  readonly maxBytes: number;
  #bytes = 0;
  #isFull = false;
  #isReclaiming = false;
  /** Threshold of the next reclaim. Rises while nothing can be reclaimed, so that not every charge tries again. */
  #reclaimAboveBytes: number;
  readonly #reclaimers: Reclaimer[] = [];
  readonly #waiting = new Map<() => void, number>();
  readonly #onFull = new Set<() => void>();

  constructor(maxBytes: number) {
    this.maxBytes = maxBytes;
    this.#reclaimAboveBytes = maxBytes;
  }

  get bytes(): number {
    return this.#bytes;
  }

  /** True once reclaiming could not keep the limit; false again once one eighth of the budget is free. */
  get isFull(): boolean {
    return this.#isFull;
  }

  charge(bytes: number): void {
    this.#bytes += bytes;
    if (this.#bytes > this.#reclaimAboveBytes && !this.#isReclaiming) this.#reclaimToLowWater();
  }

  release(bytes: number): void {
    this.#bytes -= bytes;
    if (this.#bytes <= this.maxBytes) this.#reclaimAboveBytes = this.maxBytes;
    if (this.#isFull && this.#bytes <= this.#lowWaterBytes) this.#setFull(false);
    if (this.#waiting.size > 0 && !this.#isReclaiming) this.#wake();
  }

  /** Reports whether `bytes` more fit, after reclaiming if necessary. Does not charge them. */
  tryReserve(bytes: number): boolean {
    const missing = this.#bytes + bytes - this.maxBytes;
    if (missing > 0) this.#reclaim(missing);
    return this.#bytes + bytes <= this.maxBytes;
  }

  /** Calls `listener` once when `bytes` more fit. A second call with the same listener replaces the first. */
  waitForBytes(bytes: number, listener: () => void): void {
    this.#waiting.set(listener, bytes);
  }

  cancelWait(listener: () => void): void {
    this.#waiting.delete(listener);
  }

  /** Adds a reclaimer. Reclaimers run in the order of registration, so register the least valuable bytes first. */
  addReclaimer(reclaim: Reclaimer): void {
    this.#reclaimers.push(reclaim);
  }

  /** Calls `listener` when `isFull` changes. Returns a function that unsubscribes. */
  onFull(listener: () => void): () => void {
    this.#onFull.add(listener);
    return () => void this.#onFull.delete(listener);
  }

  get #lowWaterBytes(): number {
    return this.maxBytes - this.maxBytes / 8;
  }

  #reclaimToLowWater(): void {
    this.#reclaim(this.#bytes - this.#lowWaterBytes);
    this.#reclaimAboveBytes = Math.max(this.maxBytes, this.#bytes + this.maxBytes / 16);
    if (this.#bytes > this.maxBytes && !this.#isFull) this.#setFull(true);
    if (this.#waiting.size > 0) this.#wake();
  }

  #reclaim(bytes: number): void {
    const target = this.#bytes - bytes;
    this.#isReclaiming = true;
    for (const reclaim of this.#reclaimers) if (this.#bytes > target) reclaim(this.#bytes - target);
    this.#isReclaiming = false;
  }

  #setFull(isFull: boolean): void {
    this.#isFull = isFull;
    // A listener may release bytes, which changes `isFull` again. Later listeners then read the new value.
    for (const listener of [...this.#onFull]) listener();
  }

  #wake(): void {
    for (const [listener, bytes] of [...this.#waiting]) {
      if (this.#bytes + bytes > this.maxBytes || !this.#waiting.delete(listener)) continue;
      listener();
    }
  }
}
