import { Channel } from "../../async/channel.ts";

/** What a reader gets: an event, or how many were left out in its place. */
export type StreamEntry<T> =
  | { type: "event"; value: T; required: boolean }
  | { type: "lagged"; skipped: number };

/** Some seconds of a busy job's events; a reader further behind has stopped reading. */
const DEFAULT_CAPACITY = 4_096;

/**
 * A bounded queue between what happens and what is printed. When the reader is slower than the writer for long, the newest
 * events that may be left out are, and are counted; what is required always arrives. The writer never waits, so an agent
 * cannot be stopped by a full terminal.
 */
export class EventStream<T> {
  readonly #entries: Channel<StreamEntry<T>>;

  constructor(capacity = DEFAULT_CAPACITY) {
    this.#entries = new Channel({
      cost: (entry) => (entry.type === "event" && !entry.required ? 1 : 0),
      capacity,
      shed: dropNewest,
    });
  }

  /** `required` events are kept even when the queue is full. */
  push(value: T, options: { required: boolean }): void {
    this.#entries.push({ type: "event", value, required: options.required });
  }

  /** No more will come; the reader still gets what is queued. */
  end(): void {
    this.#entries.end();
  }

  [Symbol.asyncIterator](): AsyncIterableIterator<StreamEntry<T>> {
    return this.#entries;
  }
}

/** The queue is one event above its capacity, and the newest is the one that may go. */
function dropNewest<T>(queue: StreamEntry<T>[]): number {
  queue.pop();
  const last = queue.at(-1);
  if (last?.type === "lagged") last.skipped++;
  else queue.push({ type: "lagged", skipped: 1 });
  return 1;
}
