/** Runs tasks of one key in order; tasks of different keys run concurrently. */
export class KeyedQueue<K> {
  #tails = new Map<K, Promise<void>>();

  run<T>(key: K, task: () => Promise<T>): Promise<T> {
    const previous = this.#tails.get(key);
    const running = previous === undefined ? task() : previous.then(task);
    const onIdle = () => {
      if (this.#tails.get(key) === tail) this.#tails.delete(key);
    };
    const tail: Promise<void> = running.then(onIdle, onIdle);
    this.#tails.set(key, tail);
    return running;
  }

  /** Reports whether a task of this key is queued or running. */
  isBusy(key: K): boolean {
    return this.#tails.has(key);
  }

  /** Starts a new queue for this key. Later tasks do not wait for earlier ones, which continue in their order. */
  forget(key: K): void {
    this.#tails.delete(key);
  }
}
