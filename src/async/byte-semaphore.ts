import type { ByteLedger } from "./memory-budget.ts";

interface Turn {
  bytes: number;
  begin: () => void;
}

/**
 * Bounds the bytes that several holders have at once: one that finds no room waits, in the order of asking. With a ledger
 * the bytes also count there, beside everything else that is kept. One holder alone always goes, however large it is and
 * however full the ledger is, so that a wait always ends.
 */
export class ByteTurns {
  readonly #maxBytes: number;
  readonly #ledger: ByteLedger | undefined;
  #bytes = 0;
  #waiting: Turn[] = [];

  constructor(maxBytes: number, ledger?: ByteLedger) {
    this.#maxBytes = maxBytes;
    this.#ledger = ledger;
  }

  /** Bytes held now. */
  get bytes(): number {
    return this.#bytes;
  }

  /** At least one task waits for room. */
  get isAwaited(): boolean {
    return this.#waiting.length > 0;
  }

  /** Resolves with a function that gives the bytes back. Rejects with the signal's reason when it is aborted before. */
  take(bytes: number, signal: AbortSignal): Promise<() => void> {
    return new Promise((resolve, reject) => {
      const stop = () => {
        this.#waiting = this.#waiting.filter((other) => other !== turn);
        reject(signal.reason);
        this.#proceed();
      };
      const turn: Turn = {
        bytes,
        begin: () => {
          signal.removeEventListener("abort", stop);
          resolve(this.#hold(bytes));
        },
      };
      if (signal.aborted) {
        reject(signal.reason);
        return;
      }
      signal.addEventListener("abort", stop, { once: true });
      this.#waiting.push(turn);
      this.#proceed();
    });
  }

  /** How to give them back, or null when there is no room now. */
  tryTake(bytes: number): (() => void) | null {
    return this.#waiting.length === 0 && this.#fits(bytes) ? this.#hold(bytes) : null;
  }

  #hold(bytes: number): () => void {
    this.#bytes += bytes;
    this.#ledger?.add(bytes);
    let held = bytes;
    return () => {
      const given = held;
      held = 0;
      this.#bytes -= given;
      this.#ledger?.remove(given);
      this.#proceed();
    };
  }

  #fits(bytes: number): boolean {
    if (this.#bytes === 0) return true;
    return this.#bytes + bytes <= this.#maxBytes && (this.#ledger?.makeRoom(bytes) ?? true);
  }

  readonly #proceed = (): void => {
    for (;;) {
      const next = this.#waiting[0];
      if (!next) {
        this.#ledger?.stopWaiting(this.#proceed);
        return;
      }
      if (!this.#fits(next.bytes)) {
        // A release of its own looks again anyway; the ledger tells of room that others left.
        this.#ledger?.whenRoom(next.bytes, this.#proceed);
        return;
      }
      this.#waiting.shift();
      next.begin();
    }
  };
}
