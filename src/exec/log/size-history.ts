import type { TerminalSize } from "../exec-process.ts";

/** One change of a terminal size. */
export interface SizeChange {
  size: TerminalSize;
  /** The size applies to output after this sequence number. */
  afterSeq: number;
  /** Milliseconds since the start of the process. */
  atMs: number;
}

/** Maximum remembered changes. Output before the oldest change has the size of that change. */
const MAX_CHANGES = 256;

/** Terminal sizes by the output they apply to. Empty until the first change. */
export class SizeHistory {
  readonly #changes: (SizeChange & { number: number })[] = [];
  readonly #listeners = new Set<() => void>();
  #lastNumber = 0;

  /** Number of the last change; pass it to `changesSince`. */
  get lastNumber(): number {
    return this.#lastNumber;
  }

  get last(): TerminalSize | null {
    return this.#changes.at(-1)?.size ?? null;
  }

  /** Returns the changes after this number, in order. */
  changesSince(number: number): SizeChange[] {
    return this.#changes
      .filter((change) => change.number > number)
      .map(({ size, afterSeq, atMs }) => ({ size, afterSeq, atMs }));
  }

  /** Returns the size for output with this sequence number, or null if the size never changed. */
  at(seq: number): TerminalSize | null {
    const change = this.#changes.findLast(({ afterSeq }) => afterSeq < seq) ?? this.#changes[0];
    return change?.size ?? null;
  }

  /** Adds a change. It replaces a change with the same `afterSeq`. */
  add(change: SizeChange): void {
    const at = this.#changes.findLastIndex(({ afterSeq }) => afterSeq <= change.afterSeq);
    const isReplacement = this.#changes[at]?.afterSeq === change.afterSeq;
    const numbered = { ...change, number: ++this.#lastNumber };
    this.#changes.splice(isReplacement ? at : at + 1, isReplacement ? 1 : 0, numbered);
    if (this.#changes.length > MAX_CHANGES) this.#changes.shift();
    for (const listener of [...this.#listeners]) listener();
  }

  /** Calls `listener` after each change. Returns a function that removes it. */
  listen(listener: () => void): () => void {
    this.#listeners.add(listener);
    return () => void this.#listeners.delete(listener);
  }
}
