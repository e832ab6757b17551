import { abortable } from "./abort.ts";

/** A value whose changes can be awaited. A slow receiver gets only the latest value, so it needs no queue. */
export class Watch<T> {
  #value: T;
  #version = 0;
  #waiters = new Set<() => void>();

  constructor(value: T) {
    this.#value = value;
  }

  get value(): T {
    return this.#value;
  }

  set(value: T): void {
    this.#value = value;
    this.#version++;
    if (this.#waiters.size === 0) return;
    const waiters = this.#waiters;
    this.#waiters = new Set();
    for (const wake of waiters) wake();
  }

  subscribe(): WatchReceiver<T> {
    let seen = this.#version;
    return {
      current: () => this.#value,
      changed: async (options) => {
        while (seen === this.#version) {
          const { promise, resolve } = Promise.withResolvers<void>();
          this.#waiters.add(resolve);
          try {
            await abortable(promise, options?.signal);
          } finally {
            this.#waiters.delete(resolve);
          }
        }
        seen = this.#version;
        return this.#value;
      },
    };
  }
}

export interface WatchReceiver<T> {
  current(): T;
  /** Resolves with the latest value once `set` was called after `subscribe` or after the previous `changed`. */
  changed(options?: { signal?: AbortSignal }): Promise<T>;
}
