/** A sender that collects frames during a tick. */
export interface Flushable {
  flush(): void;
}

/**
 * Flushes senders once per tick of the event loop. A response and the output that it caused leave in one system call,
 * which is the most expensive part of an echo.
 */
export class TickFlusher {
  #waiting: Flushable[] = [];

  /** Schedules a flush of `target` at the end of this tick. */
  add(target: Flushable): void {
    this.#waiting.push(target);
    if (this.#waiting.length === 1) setImmediate(() => this.#run());
  }

  #run(): void {
    const waiting = this.#waiting;
    this.#waiting = [];
    for (const target of waiting) target.flush();
  }
}
