import type { Clock } from "../../async/clock.ts";

/**
 * Polling interval of each waiter. The server's watch notifies at once, but a connection has only one watch, and it
 * cannot cover every path. The timer also keeps a Node process alive that waits for nothing else.
 */
const POLL_INTERVAL_MS = 1000;

export interface PathAppearanceDeps {
  exists(path: string): Promise<boolean>;
  /**
   * Requests a notification when one of these paths changes, until the next call; resolves false if it cannot watch.
   */
  watch(params: { watchId: number; missing: string[] }, signal: AbortSignal | undefined): Promise<boolean>;
  clock: Clock;
}

interface Waiter {
  readonly paths: readonly string[];
  wake: () => void;
  /** Why the wait fails; null while the wait is pending. */
  failure: Error | null;
}

/** Waits for paths to appear. All waiters of a client share the one watch of its connection. */
export class PathAppearance {
  readonly #deps: PathAppearanceDeps;
  readonly #waiters = new Set<Waiter>();
  #lastWatchId = 0;
  /** True while the last watch is active: none of its paths existed when it was set. */
  #isWatching = false;

  constructor(deps: PathAppearanceDeps) {
    this.#deps = deps;
  }

  /** Resolves when one of the paths exists; rejects with the signal's reason, or with the error of a call. */
  async waitFor(paths: string[], signal: AbortSignal | undefined): Promise<void> {
    const waiter: Waiter = { paths, wake: () => undefined, failure: null };
    this.#waiters.add(waiter);
    try {
      for (;;) {
        signal?.throwIfAborted();
        if (waiter.failure) throw waiter.failure;
        const woken = Promise.withResolvers<void>();
        waiter.wake = woken.resolve;
        await this.#watchAll(signal);
        for (const path of paths) if (await this.#deps.exists(path)) return;
        await this.#pause(woken, signal);
      }
    } finally {
      this.#waiters.delete(waiter);
      // An existing path prevents a watch. Without this waiter's path, the others may be able to watch again.
      if (!this.#isWatching) this.wakeAll();
    }
  }

  /** Makes all waiters check their paths; called when the watch fires. */
  wakeAll(): void {
    for (const { wake } of this.#waiters) wake();
  }

  /** Makes all waiters reject with this error. */
  failAll(error: Error): void {
    for (const waiter of this.#waiters) waiter.failure = error;
    this.wakeAll();
  }

  /** Sets a watch for the paths of all waiters, because a new watch replaces the previous one. */
  async #watchAll(signal: AbortSignal | undefined): Promise<void> {
    const waiters = [...this.#waiters];
    const missing = new Set(waiters.flatMap(({ paths }) => paths));
    const watchId = ++this.#lastWatchId;
    const isWatching = await this.#deps.watch({ watchId, missing: [...missing] }, signal);
    if (watchId !== this.#lastWatchId) return;
    this.#isWatching = isWatching;
    // The path that prevented the watch may belong to a waiter that has found it and finished meanwhile.
    if (!isWatching && waiters.some((waiter) => !this.#waiters.has(waiter))) this.wakeAll();
  }

  async #pause(woken: PromiseWithResolvers<void>, signal: AbortSignal | undefined): Promise<void> {
    const wake = () => woken.resolve();
    const timer = this.#deps.clock.after(POLL_INTERVAL_MS, wake);
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
