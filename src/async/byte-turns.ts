interface Turn {
  bytes: number;
  begin: () => void;
}

/**
 * Bounds the bytes that several tasks hold at once. A task that finds no room waits, first come first served; one that
 * needs more than the whole bound runs alone.
 */
export class ByteTurns {
  readonly #maxBytes: number;
  #bytes = 0;
  #waiting: Turn[] = [];

  constructor(maxBytes: number) {
    this.#maxBytes = maxBytes;
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
          this.#bytes += bytes;
          resolve(this.#release(bytes));
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

  #release(bytes: number): () => void {
    let held = bytes;
    return () => {
      this.#bytes -= held;
      held = 0;
      this.#proceed();
    };
  }

  #proceed(): void {
    for (;;) {
      const next = this.#waiting[0];
      if (!next || (this.#bytes > 0 && this.#bytes + next.bytes > this.#maxBytes)) return;
      this.#waiting.shift();
      next.begin();
    }
  }
}
