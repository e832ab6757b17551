import type { ByteLedger } from "../../async/memory-budget.ts";

/** A log that can give back some of what it retains. */
export interface Evictable {
  readonly retainedBytes: number;
  readonly isClosed: boolean;
  evictTo(bytes: number): void;
  /** Noticeably more or less can be held than before. */
  roomChanged(): void;
}

/** Of its bound, what retained output keeps whatever others need: reading large files must not empty every log. */
const KEPT_PART = 1 / 4;

/** What one log may hold for a slow reader however much the others hold: a pipe's worth. */
export const LEAST_HELD_BYTES = 64 * 1024;

/**
 * Bounds the retained output of all processes together. When the total is passed, logs of closed processes give way
 * first, then the largest. What a cursor holds stays; so that this is bounded too, no log may hold more than is still
 * free: the more logs hold something, the less each of them may, and together they stay within the total. With a ledger
 * it counts there too, gives way when others need the room, and while that is full no log may hold more than a little.
 */
export class RetentionBudget {
  readonly #maxBytes: number;
  readonly #ledger: ByteLedger | undefined;
  readonly #logs = new Set<Evictable>();
  #bytes = 0;
  #heldBytes = 0;
  /** What was held when all logs looked at the room last. */
  #heldAtLook = 0;
  #evicting = false;
  /** When so much is held that nobody can give way, it is not asked for again with every chunk. */
  #nextAt: number;

  constructor(maxBytes: number, ledger?: ByteLedger) {
    this.#maxBytes = maxBytes;
    this.#nextAt = maxBytes;
    this.#ledger = ledger;
    ledger?.onNeed((bytes) => this.#giveWay(Math.max(this.#bytes - bytes, maxBytes * KEPT_PART)));
    ledger?.onFull(() => {
      for (const log of this.#logs) log.roomChanged();
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

  /** While true, everything kept together is too much: little is retained, and processes are paused early. */
  get isTight(): boolean {
    return this.#ledger?.isFull ?? false;
  }

  /** How much one log may hold now. */
  get roomToHold(): number {
    return this.isTight ? LEAST_HELD_BYTES : Math.max(LEAST_HELD_BYTES, this.#maxBytes - this.#heldBytes);
  }

  /** A log holds that much more, or less, than before. The others are asked to look again when that has added up. */
  hold(bytes: number): void {
    this.#heldBytes += bytes;
    if (Math.abs(this.#heldBytes - this.#heldAtLook) < this.#maxBytes / 16) return;
    this.#heldAtLook = this.#heldBytes;
    for (const log of this.#logs) log.roomChanged();
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
