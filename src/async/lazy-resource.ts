/**
 * A resource that its first use opens. The use after a failed opening opens it again: an import, for example, fails only
 * while no descriptor is free.
 */
export class LazyResource<T> {
  readonly #open: () => Promise<T>;
  #opened: Promise<T> | null = null;

  constructor(open: () => Promise<T>) {
    this.#open = open;
  }

  get(): Promise<T> {
    this.#opened ??= this.#open().catch((error: unknown) => {
      this.#opened = null;
      throw error;
    });
    return this.#opened;
  }

  /** Calls `close` with the resource if it was opened. Waits for a pending opening, and ignores its failure. */
  async close(close: (resource: T) => unknown): Promise<void> {
    await this.#opened?.then(close, () => undefined);
  }
}
