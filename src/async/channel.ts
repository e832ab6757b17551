import { abortable } from "./abort.ts";

export interface ChannelOptions<T> {
  /** What an item counts toward `capacity`; 1 unless given. */
  cost?: (item: T) => number;
  /** Above this `shed` is called; nothing is shed unless given. */
  capacity?: number;
  /** Takes items out of the queue (oldest first in it), or replaces them, and returns by how much the cost went down. */
  shed?: (queue: T[], cost: number) => number;
  /** Called once, when the reader stops reading before the end. */
  onReturn?: () => void;
}

/**
 * A queue with one reader. The writer never waits: where the reader is slower for long, `shed` decides what is given up,
 * and can leave an item in its place that says so.
 */
export class Channel<T extends {}> implements AsyncIterableIterator<T, undefined> {
  readonly #cost: (item: T) => number;
  readonly #capacity: number;
  readonly #shed: ((queue: T[], cost: number) => number) | null;
  readonly #onReturn: (() => void) | null;
  #queue: T[] = [];
  #queuedCost = 0;
  #isEnded = false;
  #waiting: PromiseWithResolvers<void> | null = null;

  constructor(options: ChannelOptions<T> = {}) {
    this.#cost = options.cost ?? (() => 1);
    this.#capacity = options.capacity ?? Number.POSITIVE_INFINITY;
    this.#shed = options.shed ?? null;
    this.#onReturn = options.onReturn ?? null;
  }

  /** Ignored after the end. */
  push(item: T): void {
    if (this.#isEnded) return;
    this.#queue.push(item);
    this.#queuedCost += this.#cost(item);
    if (this.#shed && this.#queuedCost > this.#capacity) {
      this.#queuedCost -= this.#shed(this.#queue, this.#queuedCost);
    }
    this.#wake();
  }

  /** Nothing more comes; the reader still gets what is queued. */
  end(): void {
    this.#isEnded = true;
    this.#wake();
  }

  get isEnded(): boolean {
    return this.#isEnded;
  }

  /** The next item. Rejects with the signal's reason when the wait is given up; nothing is lost by that. */
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
      this.#onReturn?.();
    }
    return { done: true, value: undefined };
  }

  [Symbol.asyncIterator](): this {
    return this;
  }

  async [Symbol.asyncDispose](): Promise<void> {
    await this.return();
  }

  #wake(): void {
    this.#waiting?.resolve();
    this.#waiting = null;
  }
}
