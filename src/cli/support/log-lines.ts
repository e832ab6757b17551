import { stripVTControlCharacters } from "node:util";
import type { OutputChunk } from "../../exec/exec-process.ts";

/** Output of a process with the time of its arrival, in milliseconds since the epoch. */
export interface LoggedChunk extends Pick<OutputChunk, "stream" | "chunk"> {
  timeMs: number;
}

const LINE_FEED = 10;
/** Size at which an unfinished line counts as a line, so that output without line feeds needs little memory. */
const MAX_LINE_BYTES = 1024 * 1024;

/**
 * Selects the lines that match a pattern. It compares lines without escape sequences and writes them unchanged. A line is
 * selected as a whole, so an unfinished line waits for its end.
 */
export class LineFilter {
  readonly #pattern: RegExp;
  readonly #unfinished = new Map<OutputChunk["stream"], UnfinishedLine>();

  constructor(pattern: RegExp) {
    this.#pattern = pattern;
  }

  push(logged: LoggedChunk): LoggedChunk[] {
    const selected: LoggedChunk[] = [];
    const line = this.#unfinished.get(logged.stream) ?? { pieces: [], bytes: 0 };
    this.#unfinished.set(logged.stream, line);
    for (const piece of splitLines(logged.chunk)) {
      line.pieces.push({ ...logged, chunk: piece });
      line.bytes += piece.length;
      if (piece.at(-1) === LINE_FEED || line.bytes >= MAX_LINE_BYTES) selected.push(...this.#take(line));
    }
    return selected;
  }

  /** Returns the matching unfinished lines at the end of the output. */
  flush(): LoggedChunk[] {
    return [...this.#unfinished.values()].flatMap((line) => this.#take(line));
  }

  #take(line: UnfinishedLine): LoggedChunk[] {
    const pieces = line.pieces.splice(0);
    line.bytes = 0;
    const text = Buffer.concat(pieces.map(({ chunk }) => chunk)).toString();
    return this.#pattern.test(stripVTControlCharacters(text).replace(/\r?\n$/, "")) ? pieces : [];
  }
}

interface UnfinishedLine {
  pieces: LoggedChunk[];
  bytes: number;
}

/** Inserts the time at the start of each line: `2026-01-31T09:30:00.125Z `. */
export class LineTimestamps {
  /** Streams whose last line is unfinished. */
  readonly #open = new Set<OutputChunk["stream"]>();

  push({ stream, chunk, timeMs }: LoggedChunk): Uint8Array {
    const prefix = Buffer.from(`${new Date(timeMs).toISOString()} `);
    const parts: Uint8Array[] = [];
    for (const piece of splitLines(chunk)) {
      if (!this.#open.has(stream)) parts.push(prefix);
      parts.push(piece);
      if (piece.at(-1) === LINE_FEED) this.#open.delete(stream);
      else this.#open.add(stream);
    }
    return Buffer.concat(parts);
  }
}

/** Returns the chunks of the last `count` lines. An unterminated last line counts. */
export function lastLines<C extends Pick<OutputChunk, "chunk">>(chunks: readonly C[], count: number): C[] {
  const selected: C[] = [];
  let lines = 0;
  // A line feed at the end of the output ends the last line; it starts no new one.
  let isEnd = true;
  for (const one of chunks.toReversed()) {
    const { chunk } = one;
    for (let at = chunk.length - 1; at >= 0; at--) {
      const isFinished = chunk[at] === LINE_FEED && !isEnd;
      isEnd = false;
      if (isFinished && ++lines === count) return [{ ...one, chunk: chunk.subarray(at + 1) }, ...selected];
    }
    selected.unshift(one);
  }
  return count === 0 ? [] : selected;
}

/** Splits a chunk after each line feed. */
function splitLines(chunk: Uint8Array): Uint8Array[] {
  const pieces: Uint8Array[] = [];
  for (let start = 0; start < chunk.length; ) {
    const at = chunk.indexOf(LINE_FEED, start);
    const end = at < 0 ? chunk.length : at + 1;
    pieces.push(chunk.subarray(start, end));
    start = end;
  }
  return pieces;
}
