import { abortable } from "./abort.ts";

export interface ChannelOptions<T> {
  /** Cost of an item toward `capacity`. Default: 1. */
  cost?: (item: T) => number;
  /** Maximum queued cost before `onOverflow` is called. Default: unlimited. */
  capacity?: number;
  /** Removes or replaces items of the queue (oldest first) and returns the reduction of the cost. */
  onOverflow?: (queue: T[], cost: number) => number;
  /** Called once if the reader stops before the end. */
  onReturn?: () => void;
}

/**
 * A queue with one reader. The writer never waits. If the reader is too slow, `onOverflow` decides which items to drop,
 * and can insert an item that reports the loss.
 */
export class Channel<T extends {}> implements AsyncIterableIterator<T, undefined> {
  readonly #options: ChannelOptions<T>;
  #queue: T[] = [];
  #queuedCost = 0;
  #isEnded = false;
  #waiting: PromiseWithResolvers<void> | null = null;

  constructor(options: ChannelOptions<T> = {}) {
    this.#options = options;
  }

  /** Queues an item. No-op after `end`. */
  push(item: T): void {
    if (this.#isEnded) return;
    this.#queue.push(item);
    this.#queuedCost += this.#cost(item);
    const { capacity = Number.POSITIVE_INFINITY, onOverflow } = this.#options;
    if (onOverflow && this.#queuedCost > capacity) this.#queuedCost -= onOverflow(this.#queue, this.#queuedCost);
    this.#wake();
  }

  /** Ends the channel. The reader still receives the queued items. */
  end(): void {
    this.#isEnded = true;
    this.#wake();
  }

  get isEnded(): boolean {
    return this.#isEnded;
  }

  /** Returns the next item. Rejects with the signal's reason on abort, without losing an item. */
  async next(signal?: AbortSignal): Promise<IteratorResult<T, undefined>> {
    for (;;) {
      const item = this.#queue.shift();
      if (item !== undefined) {
        this.#queuedCost -= this.#cost(item);
        return { done: false, value: item };
      }
      if (this.#isEnded) return { done: true, value: undefined };
      this.#waiting ??= Promise.withResolvers<void>();
      await abortable(this.#waiting.promise, signal);
    }
  }

  async return(): Promise<IteratorResult<T, undefined>> {
    this.#queue = [];
    this.#queuedCost = 0;
    if (!this.#isEnded) {
      this.end();
      this.#options.onReturn?.();
    }
    return { done: true, value: undefined };
  }

  [Symbol.asyncIterator](): this {
    return this;
  }

  async [Symbol.asyncDispose](): Promise<void> {
    await this.return();
  }

  #cost(item: T): number {
    return this.#options.cost?.(item) ?? 1;
  }

  #wake(): void {
    this.#waiting?.resolve();
    this.#waiting = null;
  }
}

/** Delivers every item to every subscriber, each with its own channel. */
export class Broadcast<T extends {}> {
  readonly #options: ChannelOptions<T>;
  readonly #subscribers = new Set<Channel<T>>();
  #isClosed = false;

  constructor(options: Omit<ChannelOptions<T>, "onReturn">) {
    this.#options = options;
  }

  emit(item: T): void {
    for (const subscriber of this.#subscribers) subscriber.push(item);
  }

  /** Returns all further items, also those before the first read. Returns an ended channel after `close`. */
  subscribe(): AsyncIterableIterator<T> {
    const onReturn = () => this.#subscribers.delete(subscriber);
    const subscriber: Channel<T> = new Channel({ ...this.#options, onReturn });
    if (this.#isClosed) subscriber.end();
    else this.#subscribers.add(subscriber);
    return subscriber;
  }

  /** Ends the channels of all subscribers. A later subscriber receives further items. */
  endSubscribers(): void {
    for (const subscriber of this.#subscribers) subscriber.end();
    this.#subscribers.clear();
  }

  close(): void {
    this.#isClosed = true;
    this.endSubscribers();
  }
}
