import type { Clock } from "../../async/clock.ts";

/**
 * How often each waiter polls. The server's watch notifies at once, but a connection has only one, and it cannot
 * watch every path; the timer also keeps a program alive that waits for nothing else.
 */
const LOOK_EVERY_MS = 1000;

export interface MissingPathsDeps {
  exists(path: string): Promise<boolean>;
  /** Tells by a notification when one of these changes, until the next call; false when it cannot. */
  watch(params: { watchId: number; missing: string[] }, signal: AbortSignal | undefined): Promise<boolean>;
  clock: Clock;
}

interface Waiter {
  readonly paths: readonly string[];
  wake: () => void;
}

/** All waiters of a client share the one watch of its connection. */
export class MissingPaths {
  readonly #deps: MissingPathsDeps;
  readonly #waiters = new Set<Waiter>();
  #lastWatchId = 0;
  /** The last watch stands: no path of it had appeared before it was set. */
  #isWatching = false;

  constructor(deps: MissingPathsDeps) {
    this.#deps = deps;
  }

  /** Resolves when one of the paths exists; rejects with the signal's reason, or as a call does. */
  async appear(paths: string[], signal: AbortSignal | undefined): Promise<void> {
    const waiter: Waiter = { paths, wake: () => undefined };
    this.#waiters.add(waiter);
    try {
      for (;;) {
        signal?.throwIfAborted();
        const woken = Promise.withResolvers<void>();
        waiter.wake = woken.resolve;
        await this.#watchAll(signal);
        for (const path of paths) if (await this.#deps.exists(path)) return;
        await this.#pause(woken, signal);
      }
    } finally {
      this.#waiters.delete(waiter);
      // A path that is there keeps a watch from being set: without this waiter's, the others can watch again.
      if (!this.#isWatching) this.wakeAll();
    }
  }

  /** The watch has fired: all waiters look. */
  wakeAll(): void {
    for (const { wake } of this.#waiters) wake();
  }

  /** A new watch replaces the one before, so it covers the paths of all waiters. */
  async #watchAll(signal: AbortSignal | undefined): Promise<void> {
    const waiters = [...this.#waiters];
    const missing = new Set(waiters.flatMap(({ paths }) => paths));
    const watchId = ++this.#lastWatchId;
    const isWatching = await this.#deps.watch({ watchId, missing: [...missing] }, signal);
    if (watchId !== this.#lastWatchId) return;
    this.#isWatching = isWatching;
    // The path that kept it from being set may be that of a waiter who has found it and left meanwhile.
    if (!isWatching && waiters.some((waiter) => !this.#waiters.has(waiter))) this.wakeAll();
  }

  async #pause(woken: PromiseWithResolvers<void>, signal: AbortSignal | undefined): Promise<void> {
    const wake = () => woken.resolve();
    const timer = this.#deps.clock.after(LOOK_EVERY_MS, wake);
    signal?.addEventListener("abort", wake, { once: true });
    if (signal?.aborted) wake();
    try {
      await woken.promise;
    } finally {
      timer.cancel();
      signal?.removeEventListener("abort", wake);
    }
  }
}
