/** Something that has collected what it wants to send. */
export interface Flushable {
  flush(): void;
}

/**
 * Sends what one turn of the event loop produced together: an answer and the output it caused leave in one system call,
 * which costs more than everything else an echo takes.
 */
export class TurnFlusher {
  #waiting: Flushable[] = [];

  /** `target` is flushed at the end of this turn. */
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
