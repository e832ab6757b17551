interface Turn {
  bytes: number;
  begin: () => void;
}

/**
 * Bounds the bytes that several hold at once: whoever finds no room waits, in the order of asking. One that alone is
 * larger than all of it goes alone.
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

  /** Somebody waits. */
  get isAwaited(): boolean {
    return this.#waiting.length > 0;
  }

  /** Resolves with how to give them back. Rejects with the signal's reason when it is aborted before. */
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
