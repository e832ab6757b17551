/**
 * A bounded queue between what happens and what is printed. When the reader is slower than the writer for long, what may
 * be left out is left out and counted; what must arrive always does. The writer never waits, so an agent cannot be stopped
 * by a full terminal.
 */
export class EventStream<T> {
  #queue: StreamEntry<T>[] = [];
  #droppable = 0;
  #ended = false;
  #wake: (() => void) | null = null;
  #capacity: number;

  constructor(capacity = DEFAULT_CAPACITY) {
    this.#capacity = capacity;
  }

  /** `required` events are kept even when the queue is full. */
  push(value: T, options: { required: boolean }): void {
    if (this.#ended) return;
    if (!options.required) {
      if (this.#droppable >= this.#capacity) {
        const last = this.#queue.at(-1);
        if (last?.type === "lagged") last.skipped++;
        else this.#queue.push({ type: "lagged", skipped: 1 });
        return;
      }
      this.#droppable++;
    }
    this.#queue.push({ type: "event", value, required: options.required });
    this.#notify();
  }

  /** No more will come; the reader still gets what is queued. */
  end(): void {
    this.#ended = true;
    this.#notify();
  }

  async *[Symbol.asyncIterator](): AsyncGenerator<
    { type: "event"; value: T } | { type: "lagged"; skipped: number },
    void,
    undefined
  > {
    for (;;) {
      const entry = this.#queue.shift();
      if (entry) {
        if (entry.type === "event" && !entry.required) this.#droppable--;
        yield entry;
        continue;
      }
      if (this.#ended) return;
      const { promise, resolve } = Promise.withResolvers<void>();
      this.#wake = resolve;
      await promise;
    }
  }

  #notify(): void {
    this.#wake?.();
    this.#wake = null;
  }
}

type StreamEntry<T> = { type: "event"; value: T; required: boolean } | { type: "lagged"; skipped: number };

/** Seconds of a busy job's news; beyond that nobody is reading. */
const DEFAULT_CAPACITY = 4_096;
