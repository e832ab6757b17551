import { isNonNegativeNumber, isObject } from "../../base/type-guards.ts";
import type { TerminalSize } from "../../exec/exec-process.ts";
import { CAST_VERSIONS, type CastEvent, type CastVersion } from "./asciicast.ts";

/** A parsed recording. */
export interface Cast {
  version: CastVersion;
  size: TerminalSize;
  /** Maximum pause of a playback, as the recorder chose it; null without one. */
  idleLimitMs: number | null;
  events: CastEvent[];
  /** Whether the last line is incomplete, as after a crash of the recorder. Its event is missing. */
  isTruncated: boolean;
}

/**
 * An incremental parser of asciicast version 2 and 3. The chunks may be split at any byte. Throws at the first line
 * that is complete and invalid.
 */
export class CastReader {
  readonly #decoder = new TextDecoder();
  readonly #events: CastEvent[] = [];
  #header: Omit<Cast, "events" | "isTruncated"> | null = null;
  #unfinished = "";
  #lineCount = 0;
  #atMs = 0;

  /** Parses the complete lines of the text so far. */
  push(chunk: Uint8Array): void {
    const [first = "", ...rest] = this.#decoder.decode(chunk, { stream: true }).split("\n");
    this.#unfinished += first;
    for (const next of rest) {
      this.#line(this.#unfinished);
      this.#unfinished = next;
    }
  }

  /** Returns the recording. A last line without a line feed counts if it is complete. */
  end(): Cast {
    const last = this.#unfinished + this.#decoder.decode();
    const isTruncated = this.#header !== null && isIncomplete(last);
    if (!isTruncated) this.#line(last);
    if (!this.#header) throw new Error("not an asciicast: the file is empty");
    return { ...this.#header, events: this.#events, isTruncated };
  }

  #line(text: string): void {
    this.#lineCount++;
    const line = text.trim();
    if (line === "" || line.startsWith("#")) return;
    if (!this.#header) this.#header = parseHeader(line, this.#lineCount);
    else this.#events.push(this.#event(line, this.#header.version));
  }

  #event(line: string, version: CastVersion): CastEvent {
    const event = parseJson(line, this.#lineCount);
    const [time, code, data] = Array.isArray(event) ? event : [];
    if (!isNonNegativeNumber(time) || typeof code !== "string" || typeof data !== "string")
      throw new Error(`not an asciicast: line ${this.#lineCount} is not [time, code, data]`);
    this.#atMs = (version === 2 ? 0 : this.#atMs) + time * 1000;
    return { atMs: this.#atMs, code, data };
  }
}

/** Parses a whole recording. */
export function readCast(content: Uint8Array | string): Cast {
  const reader = new CastReader();
  reader.push(typeof content === "string" ? new TextEncoder().encode(content) : content);
  return reader.end();
}

function parseHeader(line: string, number: number): Omit<Cast, "events" | "isTruncated"> {
  const header = parseJson(line, number);
  const version = isObject(header) ? CAST_VERSIONS.find((known) => known === header.version) : undefined;
  if (!isObject(header) || version === undefined)
    throw new Error("not an asciicast: the first line is not a header of version 2 or 3");
  const term = isObject(header.term) ? header.term : {};
  const size =
    version === 2
      ? { rows: Number(header.height), cols: Number(header.width) }
      : { rows: Number(term.rows), cols: Number(term.cols) };
  if (!isSize(size)) throw new Error("not an asciicast: its header does not give the size of the terminal");
  const limit = header.idle_time_limit;
  return { version, size, idleLimitMs: typeof limit === "number" && limit > 0 ? limit * 1000 : null };
}

function isSize({ rows, cols }: TerminalSize): boolean {
  return [rows, cols].every((value) => Number.isInteger(value) && value > 0);
}

/** Reports whether a last line was cut off: it has content, and is neither a comment nor JSON. */
function isIncomplete(line: string): boolean {
  if (line.trim() === "" || line.startsWith("#")) return false;
  try {
    JSON.parse(line);
    return false;
  } catch {
    return true;
  }
}

function parseJson(line: string, number: number): unknown {
  try {
    return JSON.parse(line);
  } catch {
    throw new Error(`not an asciicast: line ${number} is not JSON`);
  }
}
