import { Channel } from "../../async/channel.ts";

/** An event, or the number of events that were dropped at this position. */
export type QueueEntry<T> = { type: "event"; value: T; required: boolean } | { type: "lagged"; skipped: number };

/** Some seconds of events of a busy job. A reader that lags further has stopped reading. */
const DEFAULT_CAPACITY = 4_096;

/**
 * A bounded queue between the agent and its output. If the reader is too slow, the newest droppable events are dropped
 * and counted; required events always arrive. The writer never waits, so a blocked terminal cannot stop an agent.
 */
export class BoundedEventQueue<T> {
  readonly #entries: Channel<QueueEntry<T>>;

  constructor(capacity = DEFAULT_CAPACITY) {
    this.#entries = new Channel({
      cost: (entry) => (entry.type === "event" && !entry.required ? 1 : 0),
      capacity,
      onOverflow: dropNewest,
    });
  }

  /** `required` events are queued even if the queue is full. */
  push(value: T, options: { required: boolean }): void {
    this.#entries.push({ type: "event", value, required: options.required });
  }

  /** Ends the queue. The reader still gets the queued events. */
  end(): void {
    this.#entries.end();
  }

  [Symbol.asyncIterator](): AsyncIterableIterator<QueueEntry<T>> {
    return this.#entries;
  }
}

/** Drops the newest event of a queue that exceeds its capacity by one droppable event. */
function dropNewest<T>(queue: QueueEntry<T>[]): number {
  queue.pop();
  const last = queue.at(-1);
  if (last?.type === "lagged") last.skipped++;
  else queue.push({ type: "lagged", skipped: 1 });
  return 1;
}
