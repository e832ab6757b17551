/** Frees at least `bytes` bytes if possible and releases them from the budget. */
export type Reclaimer = (bytes: number) => void;

/** Kinds of reclaimed memory, least valuable first. After the last one, `isFull` makes producers pause. */
const RECLAIM_ORDER = ["closedProcesses", "caches", "liveProcesses", "detachedSessions"] as const;

export type ReclaimOrder = (typeof RECLAIM_ORDER)[number];

/**
 * Bytes of several components, counted against one limit. Each component charges its own bytes and decides how to react
 * at the limit: retained output is evicted, reads wait for free bytes, and producers pause while the budget is full.
 */
export class MemoryBudget {
  /** The configured maximum. */
  readonly maxBytes: number;
  /** The limit in force: lower than the maximum while the host has too little memory. */
  #limitBytes: number;
  #bytes = 0;
  #isFull = false;
  #isReclaiming = false;
  /** Threshold of the next reclaim. Rises while nothing can be reclaimed, so that not every charge tries again. */
  #reclaimAboveBytes: number;
  readonly #reclaimers: { order: ReclaimOrder; reclaim: Reclaimer }[] = [];
  readonly #waiting = new Map<() => void, number>();
  readonly #onFull = new Set<() => void>();
  /** Sum of all bytes that were charged or noted. */
  #grownBytes = 0;
  /** Listeners of `afterGrowth`, each with the value of `#grownBytes` at which it is due. */
  readonly #onGrowth = new Map<() => void, number>();
  /** Lowest value of `#grownBytes` at which a listener is due; infinite without listeners. */
  #growthDueBytes = Number.POSITIVE_INFINITY;
  /** Listener of `afterRelease`, with the bytes that may still be released before the call. */
  #onRelease: { bytes: number; listener: () => void } | null = null;

  constructor(maxBytes: number) {
    this.maxBytes = maxBytes;
    this.#limitBytes = maxBytes;
    this.#reclaimAboveBytes = maxBytes;
  }

  get bytes(): number {
    return this.#bytes;
  }

  get limitBytes(): number {
    return this.#limitBytes;
  }

  get isLowered(): boolean {
    return this.#limitBytes < this.maxBytes;
  }

  /** True once reclaiming could not keep the limit; false again once one eighth of the budget is free. */
  get isFull(): boolean {
    return this.#isFull;
  }

  charge(bytes: number): void {
    this.#bytes += bytes;
    if (this.#bytes > this.#reclaimAboveBytes && !this.#isReclaiming) this.#reclaimToLowWater();
    this.noteGrowth(bytes);
  }

  release(bytes: number): void {
    this.#bytes -= bytes;
    if (this.#bytes <= this.#limitBytes) this.#reclaimAboveBytes = this.#limitBytes;
    if (this.#isFull && this.#bytes <= this.#lowWaterBytes) this.#setFull(false);
    if (this.#waiting.size > 0 && !this.#isReclaiming) this.#wake();
    if (this.#onRelease === null) return;
    this.#onRelease.bytes -= bytes;
    if (this.#onRelease.bytes > 0) return;
    const { listener } = this.#onRelease;
    this.#onRelease = null;
    listener();
  }

  /** Reports whether `bytes` more fit, after reclaiming if necessary. Does not charge them. */
  tryReserve(bytes: number): boolean {
    const missing = this.#bytes + bytes - this.#limitBytes;
    if (missing > 0) this.#reclaim(missing);
    return this.#bytes + bytes <= this.#limitBytes;
  }

  /** Calls `listener` once when `bytes` more fit. A second call with the same listener replaces the first. */
  waitForBytes(bytes: number, listener: () => void): void {
    this.#waiting.set(listener, bytes);
  }

  cancelWait(listener: () => void): void {
    this.#waiting.delete(listener);
  }

  /** Adds a reclaimer. Reclaimers run by `order`, then in the order of registration. */
  addReclaimer(order: ReclaimOrder, reclaim: Reclaimer): void {
    this.#reclaimers.push({ order, reclaim });
    this.#reclaimers.sort((a, b) => RECLAIM_ORDER.indexOf(a.order) - RECLAIM_ORDER.indexOf(b.order));
  }

  /** Sets the limit in force, at most `maxBytes`. Reclaims at once what exceeds it. */
  setLimit(bytes: number): void {
    this.#limitBytes = Math.min(bytes, this.maxBytes);
    this.#reclaimAboveBytes = this.#limitBytes;
    if (this.#bytes > this.#limitBytes) this.#reclaimToLowWater();
    else if (this.#isFull && this.#bytes <= this.#lowWaterBytes) this.#setFull(false);
    if (this.#waiting.size > 0) this.#wake();
  }

  /**
   * Calls `listener` once, after `bytes` more bytes have been charged or noted. A second call with the same listener
   * replaces the first.
   */
  afterGrowth(bytes: number, listener: () => void): void {
    const dueBytes = this.#grownBytes + bytes;
    this.#onGrowth.set(listener, dueBytes);
    this.#growthDueBytes = Math.min(this.#growthDueBytes, dueBytes);
  }

  /** Calls `listener` once, after `bytes` more bytes have been released. */
  afterRelease(bytes: number, listener: () => void): void {
    this.#onRelease = { bytes, listener };
  }

  /** Counts bytes that are not charged, such as the memory of a new process, toward `afterGrowth`. */
  noteGrowth(bytes: number): void {
    this.#grownBytes += bytes;
    if (this.#grownBytes < this.#growthDueBytes) return;
    const due = [...this.#onGrowth].filter(([, dueBytes]) => dueBytes <= this.#grownBytes);
    for (const [listener] of due) this.#onGrowth.delete(listener);
    this.#growthDueBytes = Math.min(...this.#onGrowth.values());
    // A listener may wait for further growth.
    for (const [listener] of due) listener();
  }

  /** Calls `listener` when `isFull` changes. Returns a function that unsubscribes. */
  onFull(listener: () => void): () => void {
    this.#onFull.add(listener);
    return () => void this.#onFull.delete(listener);
  }

  get #lowWaterBytes(): number {
    return this.#limitBytes - this.#limitBytes / 8;
  }

  #reclaimToLowWater(): void {
    this.#reclaim(this.#bytes - this.#lowWaterBytes);
    this.#reclaimAboveBytes = Math.max(this.#limitBytes, this.#bytes + this.#limitBytes / 16);
    if (this.#bytes > this.#limitBytes && !this.#isFull) this.#setFull(true);
    if (this.#waiting.size > 0) this.#wake();
  }

  #reclaim(bytes: number): void {
    const target = this.#bytes - bytes;
    this.#isReclaiming = true;
    for (const { reclaim } of this.#reclaimers) if (this.#bytes > target) reclaim(this.#bytes - target);
    this.#isReclaiming = false;
  }

  #setFull(isFull: boolean): void {
    this.#isFull = isFull;
    // A listener may release bytes, which changes `isFull` again. Later listeners then read the new value.
    for (const listener of [...this.#onFull]) listener();
  }

  #wake(): void {
    for (const [listener, bytes] of [...this.#waiting]) {
      if (this.#bytes + bytes > this.#limitBytes || !this.#waiting.delete(listener)) continue;
      listener();
    }
  }
}
