import type { MemoryBudget } from "./memory-budget.ts";

/** Bounds bytes in flight. */
export type ByteLimit = Pick<ByteSemaphore, "acquire" | "tryAcquire" | "hasWaiters">;

/** Returns a limit that bounds one owner by `own`, within the `shared` limit of all owners. */
export function nestedLimit(own: ByteSemaphore, shared: ByteSemaphore): ByteLimit {
  const both = (first: () => void, second: () => void) => () => {
    first();
    second();
  };
  return {
    async acquire(bytes, signal) {
      const release = await own.acquire(bytes, signal);
      try {
        return both(await shared.acquire(bytes, signal), release);
      } catch (error) {
        release();
        throw error;
      }
    },
    tryAcquire(bytes) {
      const release = own.tryAcquire(bytes);
      const granted = release && shared.tryAcquire(bytes);
      if (!granted) release?.();
      return release && granted && both(granted, release);
    },
    get hasWaiters() {
      return own.hasWaiters || shared.hasWaiters;
    },
  };
}

interface Waiter {
  bytes: number;
  grant: () => void;
}

/**
 * Bounds the bytes in flight of several holders; waiters are served in FIFO order. With a memory budget, the bytes are
 * also charged to the budget. A single holder is always admitted, regardless of its size and the budget, so that every
 * wait ends.
 */
export class ByteSemaphore {
  readonly #maxBytes: number;
  readonly #budget: MemoryBudget | undefined;
  #bytes = 0;
  #waiting: Waiter[] = [];

  constructor(maxBytes: number, budget?: MemoryBudget) {
    this.#maxBytes = maxBytes;
    this.#budget = budget;
  }

  /** Bytes currently held. */
  get bytes(): number {
    return this.#bytes;
  }

  get hasWaiters(): boolean {
    return this.#waiting.length > 0;
  }

  /** Resolves with a function that releases the bytes. Rejects with the signal's reason if it aborts first. */
  acquire(bytes: number, signal: AbortSignal): Promise<() => void> {
    return new Promise((resolve, reject) => {
      const onAbort = () => {
        this.#waiting = this.#waiting.filter((other) => other !== waiter);
        reject(signal.reason);
        this.#grantWaiting();
      };
      const waiter: Waiter = {
        bytes,
        grant: () => {
          signal.removeEventListener("abort", onAbort);
          resolve(this.#grant(bytes));
        },
      };
      if (signal.aborted) {
        reject(signal.reason);
        return;
      }
      signal.addEventListener("abort", onAbort, { once: true });
      this.#waiting.push(waiter);
      this.#grantWaiting();
    });
  }

  /** Returns a function that releases the bytes, or null if they are not available now. */
  tryAcquire(bytes: number): (() => void) | null {
    return this.#waiting.length === 0 && this.#fits(bytes) ? this.#grant(bytes) : null;
  }

  #grant(bytes: number): () => void {
    this.#bytes += bytes;
    this.#budget?.charge(bytes);
    let held = bytes;
    return () => {
      const released = held;
      held = 0;
      this.#bytes -= released;
      this.#budget?.release(released);
      this.#grantWaiting();
    };
  }

  #fits(bytes: number): boolean {
    if (this.#bytes === 0) return true;
    return this.#bytes + bytes <= this.#maxBytes && (this.#budget?.tryReserve(bytes) ?? true);
  }

  readonly #grantWaiting = (): void => {
    for (;;) {
      const next = this.#waiting[0];
      if (!next) {
        this.#budget?.cancelWait(this.#grantWaiting);
        return;
      }
      if (!this.#fits(next.bytes)) {
        // A release of this semaphore calls this function anyway; the budget reports releases of other components.
        this.#budget?.waitForBytes(next.bytes, this.#grantWaiting);
        return;
      }
      this.#waiting.shift();
      next.grant();
    }
  };
}
