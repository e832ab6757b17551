import type { TerminalSize } from "../../exec/exec-process.ts";

/** One event of a recording: output `o`, input `i`, resize `r`, marker `m`, exit status `x`. */
export interface CastEvent {
  /** Milliseconds since the start of the recording. */
  atMs: number;
  code: string;
  data: string;
}

/** Versions of the asciicast format. Version 2 is for asciinema 2, version 3 for asciinema 3. */
export const CAST_VERSIONS = [2, 3] as const;
export type CastVersion = (typeof CAST_VERSIONS)[number];

export interface CastHead {
  /** Default: 3. */
  version?: CastVersion | undefined;
  size: TerminalSize;
  /** Start of the recording, in milliseconds since the epoch. */
  startedAtMs: number;
  command: string;
}

/**
 * Writes an asciicast: a header, then one line per event. The time of an event counts from the start of the recording in
 * version 2, and from the previous event in version 3. Version 2 has no exit status.
 */
export class CastWriter {
  readonly #write: (line: string) => void;
  readonly #version: CastVersion;
  /** Decodes across chunks, because a character may be split. */
  readonly #text = new TextDecoder();
  #lastMs = 0;

  constructor(head: CastHead, write: (line: string) => void) {
    this.#write = write;
    const { version = 3, size, startedAtMs, command } = head;
    this.#version = version;
    const { rows, cols } = size;
    const terminal = version === 2 ? { width: cols, height: rows } : { term: { cols, rows } };
    this.#line({ version, ...terminal, timestamp: Math.floor(startedAtMs / 1000), command });
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
    if (this.#version !== 2) this.#event(atMs, "x", String(exitCode));
  }

  #event(atMs: number, code: string, data: string): void {
    const previousMs = this.#lastMs;
    // Rounded to microseconds, as asciinema does. The rounding errors of intervals do not add up.
    this.#lastMs = Math.max(previousMs, Math.round(atMs * 1000) / 1000);
    const timeMs = this.#version === 2 ? this.#lastMs : this.#lastMs - previousMs;
    this.#line([Math.round(timeMs * 1000) / 1_000_000, code, data]);
  }

  #line(value: unknown): void {
    this.#write(`${JSON.stringify(value)}\n`);
  }
}
