import { abortable } from "./abort.ts";

/**
 * A value whose changes can be awaited. A late receiver sees only the latest value, never a backlog, so slow receivers
 * cost nothing.
 */
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
  /** Resolves with the latest value once it was set after the receiver's previous read. */
  changed(options?: { signal?: AbortSignal }): Promise<T>;
}
