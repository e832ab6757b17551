/** Runs tasks of one key one after another, in the order they were given; tasks of different keys do not wait for each other. */
export class Lanes<K> {
  #tails = new Map<K, Promise<void>>();

  run<T>(key: K, task: () => Promise<T>): Promise<T> {
    const before = this.#tails.get(key);
    const running = before === undefined ? task() : before.then(task);
    const tail: Promise<void> = running.then(
      () => this.#ended(key, tail),
      () => this.#ended(key, tail),
    );
    this.#tails.set(key, tail);
    return running;
  }

  /** True while a task of this key has not ended. */
  busy(key: K): boolean {
    return this.#tails.has(key);
  }

  /** Tasks given from now on do not wait for those given before, which go on among themselves. */
  leave(key: K): void {
    this.#tails.delete(key);
  }

  #ended(key: K, tail: Promise<void>): void {
    if (this.#tails.get(key) === tail) this.#tails.delete(key);
  }
}
