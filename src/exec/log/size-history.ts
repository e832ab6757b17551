import type { TerminalSize } from "../exec-process.ts";

/** A size that a terminal was given. */
export interface SizeChange {
  size: TerminalSize;
  /** Output after this seq was written when the terminal had it. */
  afterSeq: number;
  /** In milliseconds since the process began. */
  atMs: number;
}

/** As many are kept; nobody who looks back sees where one of the older sizes ended. */
const MAX_CHANGES = 256;

/** The sizes a terminal has had, by the output they were in force for. Empty until the first change. */
export class SizeHistory {
  readonly #changes: (SizeChange & { number: number })[] = [];
  readonly #listeners = new Set<() => void>();
  #lastNumber = 0;

  /** The number of the last change; with `since`, tells what is new. */
  get lastNumber(): number {
    return this.#lastNumber;
  }

  get last(): TerminalSize | null {
    return this.#changes.at(-1)?.size ?? null;
  }

  /** What was changed after the change of this number, in order. */
  since(number: number): SizeChange[] {
    return this.#changes
      .filter((change) => change.number > number)
      .map(({ size, afterSeq, atMs }) => ({ size, afterSeq, atMs }));
  }

  /** The size that output of this seq was written for; null when it was never changed. */
  at(seq: number): TerminalSize | null {
    const change = this.#changes.findLast(({ afterSeq }) => afterSeq < seq) ?? this.#changes[0];
    return change?.size ?? null;
  }

  /** One that is told again, or another one after the same output, takes the place of the former. */
  add(change: SizeChange): void {
    const at = this.#changes.findLastIndex(({ afterSeq }) => afterSeq <= change.afterSeq);
    const isSamePlace = this.#changes[at]?.afterSeq === change.afterSeq;
    const numbered = { ...change, number: ++this.#lastNumber };
    this.#changes.splice(isSamePlace ? at : at + 1, isSamePlace ? 1 : 0, numbered);
    if (this.#changes.length > MAX_CHANGES) this.#changes.shift();
    for (const listener of [...this.#listeners]) listener();
  }

  /** Calls back after each change; returns how to stop. */
  listen(listener: () => void): () => void {
    this.#listeners.add(listener);
    return () => void this.#listeners.delete(listener);
  }
}
