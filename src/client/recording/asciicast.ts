import { isObject } from "../../base/type-guards.ts";
import type { TerminalSize } from "../../exec/exec-process.ts";

/** One event of a recording: output `o`, input `i`, resize `r`, marker `m`, exit status `x`. */
export interface CastEvent {
  /** Milliseconds since the start of the recording. */
  atMs: number;
  code: string;
  data: string;
}

export interface Cast {
  size: TerminalSize;
  events: CastEvent[];
}

export interface CastHead {
  size: TerminalSize;
  /** Start of the recording, in milliseconds since the epoch. */
  startedAtMs: number;
  command: string;
}

/** Writes asciicast v3: a header, then one line per event with the seconds since the previous one. */
export class CastWriter {
  readonly #write: (line: string) => void;
  /** Decodes across chunks, because a character may be split. */
  readonly #text = new TextDecoder();
  #lastMs = 0;

  constructor(head: CastHead, write: (line: string) => void) {
    this.#write = write;
    const { rows, cols } = head.size;
    this.#line({
      version: 3,
      term: { cols, rows },
      timestamp: Math.floor(head.startedAtMs / 1000),
      command: head.command,
    });
  }

  output(atMs: number, chunk: Uint8Array): void {
    const data = this.#text.decode(chunk, { stream: true });
    if (data !== "") this.#event(atMs, "o", data);
  }

  /** Input is decoded per event, because keystrokes arrive as whole characters. */
  input(atMs: number, chunk: Uint8Array): void {
    this.#event(atMs, "i", new TextDecoder().decode(chunk));
  }

  resized(atMs: number, { rows, cols }: TerminalSize): void {
    this.#event(atMs, "r", `${cols}x${rows}`);
  }

  exited(atMs: number, exitCode: number): void {
    const rest = this.#text.decode();
    if (rest !== "") this.#event(atMs, "o", rest);
    this.#event(atMs, "x", String(exitCode));
  }

  #event(atMs: number, code: string, data: string): void {
    const sinceMs = Math.max(0, atMs - this.#lastMs);
    this.#lastMs += sinceMs;
    this.#line([sinceMs / 1000, code, data]);
  }

  #line(value: unknown): void {
    this.#write(`${JSON.stringify(value)}\n`);
  }
}

/** Reads asciicast v2 and v3. */
export function readCast(text: string): Cast {
  const lines = text.split("\n").filter((line) => line.trim() !== "" && !line.startsWith("#"));
  const header = parseLine(lines[0], 1);
  if (!isObject(header) || (header.version !== 2 && header.version !== 3))
    throw new Error("not an asciicast: the first line is not a header of version 2 or 3");
  const { version } = header;
  const term = isObject(header.term) ? header.term : {};
  const size =
    version === 2
      ? { rows: Number(header.height), cols: Number(header.width) }
      : { rows: Number(term.rows), cols: Number(term.cols) };
  if (!isSize(size)) throw new Error("not an asciicast: its header does not give the size of the terminal");
  let atMs = 0;
  const events = lines.slice(1).map((line, index): CastEvent => {
    const event = parseLine(line, index + 2);
    const [time, code, data] = Array.isArray(event) ? event : [];
    if (typeof time !== "number" || typeof code !== "string" || typeof data !== "string")
      throw new Error(`not an asciicast: line ${index + 2} is not [time, code, data]`);
    // In version 2 times count from the beginning, in version 3 from the previous event.
    atMs = (version === 2 ? 0 : atMs) + time * 1000;
    return { atMs, code, data };
  });
  return { size, events };
}

function isSize({ rows, cols }: TerminalSize): boolean {
  return [rows, cols].every((value) => Number.isInteger(value) && value > 0);
}

function parseLine(line: string | undefined, number: number): unknown {
  try {
    return JSON.parse(line ?? "");
  } catch {
    throw new Error(`not an asciicast: line ${number} is not JSON`);
  }
}
