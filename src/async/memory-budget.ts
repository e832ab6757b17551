/** Gives back at least `bytes` of what it keeps if it can; what it gave back it has told the ledger. */
export type GiveWay = (bytes: number) => void;

/**
 * The bytes that several parts of a program keep, counted in one place against one bound. Each part counts what it keeps
 * and decides by itself what to do at the bound: output that can be forgotten gives way, reads wait for room, producers
 * pause while the ledger is full.
 */
export class ByteLedger {
  readonly maxBytes: number;
  #bytes = 0;
  #isFull = false;
  #isAsking = false;
  /** Above it the parts are asked to give way; it rises while nobody can, so that not every chunk asks again. */
  #askAbove: number;
  readonly #givers: GiveWay[] = [];
  readonly #waiting = new Map<() => void, number>();
  readonly #onFull = new Set<() => void>();

  constructor(maxBytes: number) {
    this.maxBytes = maxBytes;
    this.#askAbove = maxBytes;
  }

  get bytes(): number {
    return this.#bytes;
  }

  /** More is kept than may be, and nobody could give way. It ends when an eighth is free again. */
  get isFull(): boolean {
    return this.#isFull;
  }

  add(bytes: number): void {
    this.#bytes += bytes;
    if (this.#bytes > this.#askAbove && !this.#isAsking) this.#relieve();
  }

  remove(bytes: number): void {
    this.#bytes -= bytes;
    if (this.#bytes <= this.maxBytes) this.#askAbove = this.maxBytes;
    if (this.#isFull && this.#bytes <= this.#lowBytes) this.#setFull(false);
    if (this.#waiting.size > 0 && !this.#isAsking) this.#wake();
  }

  /** Whether so much more fits, after others have given way for it. Counts nothing. */
  makeRoom(bytes: number): boolean {
    const missing = this.#bytes + bytes - this.maxBytes;
    if (missing > 0) this.#ask(missing);
    return this.#bytes + bytes <= this.maxBytes;
  }

  /** Calls once when so much more fits; a second call with the same listener replaces the first. */
  whenRoom(bytes: number, listener: () => void): void {
    this.#waiting.set(listener, bytes);
  }

  stopWaiting(listener: () => void): void {
    this.#waiting.delete(listener);
  }

  /** In the order of registering, those that keep what is missed least come first. */
  onNeed(giveWay: GiveWay): void {
    this.#givers.push(giveWay);
  }

  /** Calls when it becomes full and when it no longer is; returns how to stop. */
  onFull(listener: () => void): () => void {
    this.#onFull.add(listener);
    return () => void this.#onFull.delete(listener);
  }

  get #lowBytes(): number {
    return this.maxBytes - this.maxBytes / 8;
  }

  #relieve(): void {
    this.#ask(this.#bytes - this.#lowBytes);
    this.#askAbove = Math.max(this.maxBytes, this.#bytes + this.maxBytes / 16);
    if (this.#bytes > this.maxBytes && !this.#isFull) this.#setFull(true);
    if (this.#waiting.size > 0) this.#wake();
  }

  #ask(bytes: number): void {
    const target = this.#bytes - bytes;
    this.#isAsking = true;
    for (const giveWay of this.#givers) if (this.#bytes > target) giveWay(this.#bytes - target);
    this.#isAsking = false;
  }

  #setFull(isFull: boolean): void {
    this.#isFull = isFull;
    // A listener may give so much back that it is no longer full: each is told how it is now.
    for (const listener of [...this.#onFull]) listener();
  }

  #wake(): void {
    for (const [listener, bytes] of [...this.#waiting]) {
      if (this.#bytes + bytes > this.maxBytes || !this.#waiting.delete(listener)) continue;
      listener();
    }
  }
}
