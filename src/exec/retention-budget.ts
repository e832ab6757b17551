import type { ByteLedger } from "../async/byte-ledger.ts";

/** A log that can give back some of what it retains. */
export interface Evictable {
  readonly retainedBytes: number;
  readonly isClosed: boolean;
  evictTo(bytes: number): void;
  /** While true, its process is paused as soon as a little is held for a reader that does not take it. */
  holdLittle?(isTight: boolean): void;
}

/** Of its bound, what retained output keeps whatever others need: reading large files must not empty every log. */
const KEPT_PART = 1 / 4;

/**
 * Bounds the retained output of all processes together. When the total is passed, logs of closed processes give way
 * first, then the largest; what a cursor holds stays. With a ledger it counts there too, gives way when others need the
 * room, and lets processes be paused early while the ledger is full.
 */
export class RetentionBudget {
  readonly #maxBytes: number;
  readonly #ledger: ByteLedger | undefined;
  readonly #logs = new Set<Evictable>();
  #bytes = 0;
  #evicting = false;
  /** When so much is held that nobody can give way, it is not asked for again with every chunk. */
  #nextAt: number;

  constructor(maxBytes: number, ledger?: ByteLedger) {
    this.#maxBytes = maxBytes;
    this.#nextAt = maxBytes;
    this.#ledger = ledger;
    ledger?.onNeed((bytes) => this.#giveWay(Math.max(this.#bytes - bytes, maxBytes * KEPT_PART)));
    ledger?.onFull(() => {
      for (const log of this.#logs) log.holdLittle?.(ledger.isFull);
    });
  }

  get bytes(): number {
    return this.#bytes;
  }

  join(log: Evictable): void {
    this.#logs.add(log);
    if (this.#ledger?.isFull) log.holdLittle?.(true);
  }

  leave(log: Evictable): void {
    this.#logs.delete(log);
  }

  grow(bytes: number): void {
    this.#bytes += bytes;
    this.#ledger?.add(bytes);
    if (this.#bytes > this.#nextAt && !this.#evicting) {
      // Down to 7/8, so that the next chunk does not sort the logs again.
      this.#giveWay(this.#maxBytes - this.#maxBytes / 8);
      this.#nextAt = Math.max(this.#maxBytes, this.#bytes + this.#maxBytes / 16);
    }
  }

  shrink(bytes: number): void {
    this.#bytes -= bytes;
    if (this.#bytes <= this.#maxBytes) this.#nextAt = this.#maxBytes;
    this.#ledger?.remove(bytes);
  }

  #giveWay(target: number): void {
    if (this.#evicting) return;
    this.#evicting = true;
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
    this.#evicting = false;
  }
}
