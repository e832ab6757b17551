/** Background tasks that no caller awaits. Reports each failure to `onError`; `settled` waits for all tasks. */
export class TaskSet {
  #tasks = new Set<Promise<void>>();
  #onError: (error: unknown) => void;

  constructor(onError: (error: unknown) => void) {
    this.#onError = onError;
  }

  run(task: () => Promise<unknown>): void {
    const running: Promise<void> = task()
      .then(
        () => undefined,
        (error: unknown) => this.#onError(error),
      )
      .finally(() => this.#tasks.delete(running));
    this.#tasks.add(running);
  }

  get size(): number {
    return this.#tasks.size;
  }

  async settled(): Promise<void> {
    while (this.#tasks.size > 0) await Promise.all(this.#tasks);
  }
}
