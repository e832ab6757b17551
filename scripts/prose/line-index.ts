export interface Location {
  /** From 1. */
  line: number;
  /** From 0. */
  column: number;
  /** Text of the line before the location. */
  before: string;
}

/** Converts offsets in a file to lines and columns. */
export class LineIndex {
  readonly #text: string;
  readonly #starts: number[] = [0];

  constructor(text: string) {
    this.#text = text;
    for (const { index } of text.matchAll(/\n/g)) this.#starts.push(index + 1);
  }

  locate(offset: number): Location {
    let low = 0;
    let high = this.#starts.length - 1;
    while (low < high) {
      const middle = (low + high + 1) >> 1;
      if (this.#start(middle) <= offset) low = middle;
      else high = middle - 1;
    }
    const start = this.#start(low);
    return { line: low + 1, column: offset - start, before: this.#text.slice(start, offset) };
  }

  /** Returns the width of a line, without its line break. */
  columns(line: number): number {
    return this.#start(line) - this.#start(line - 1) - 1;
  }

  #start(index: number): number {
    return this.#starts[index] ?? this.#text.length + 1;
  }
}
