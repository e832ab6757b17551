import { concatBytes } from "../../base/bytes.ts";
import { BEL, ESC } from "./escape-sequences.ts";

/**
 * Recognizes terminal queries in output: device attributes, status and cursor reports, modes, window reports, colors,
 * the clipboard. A terminal sends its reply as input. A viewer that must not reply therefore strips the queries
 * before it displays the output.
 */

/** Maximum length of a query; a longer unfinished sequence is not a query. */
const MAX_QUERY_BYTES = 256;

type Sequence =
  /** The sequence ends before `end`. */
  | { type: "query" | "other"; end: number }
  /** The bytes end before the sequence does. */
  | { type: "incomplete" };

/** Parses the sequence that starts with the escape character at `at`. */
function sequenceAt(bytes: Uint8Array, at: number): Sequence {
  switch (bytes[at + 1]) {
    case undefined:
      return INCOMPLETE;
    case 0x5b: // [
      return controlSequence(bytes, at);
    case 0x5d: // ]
      return stringSequence(bytes, at, isColorQuery);
    case 0x50: // P
      return stringSequence(bytes, at, (text) => /^[+$]q/.test(text));
    case 0x5a: // Z, the obsolete device attributes query
      return { type: "query", end: at + 2 };
    default:
      return { type: "other", end: at + 1 };
  }
}

const INCOMPLETE: Sequence = { type: "incomplete" };

/** `ESC [ parameters intermediates final`. */
function controlSequence(bytes: Uint8Array, at: number): Sequence {
  let end = at + 2;
  while (isWithin(bytes[end], 0x20, 0x3f)) if (++end - at > MAX_QUERY_BYTES) return { type: "other", end };
  const final = bytes[end];
  if (final === undefined) return INCOMPLETE;
  if (!QUERY_FINALS.has(final)) return { type: "other", end };
  const text = String.fromCharCode(...bytes.subarray(at + 2, end + 1));
  return CONTROL_QUERIES.test(text) ? { type: "query", end: end + 1 } : { type: "other", end };
}

const QUERY_FINALS = new Set(Array.from("cnptquxyw", (letter) => letter.charCodeAt(0)));
/** In this order: attributes, status, modes, window reports, version, keyboard, parameters, checksums, states. */
const CONTROL_QUERIES = /^(?:[>=]?[\d;]*c|\??[\d;]*n|\??\d*\$p|1[1-9]t|2[01]t|>\d*q|\?u|[01]?x|[\d;]*\*y|\d*\$w)$/;

/** `ESC introducer text`, up to BEL or `ESC \`. */
function stringSequence(bytes: Uint8Array, at: number, isQuery: (text: string) => boolean): Sequence {
  for (let end = at + 2; end - at <= MAX_QUERY_BYTES; end++) {
    const byte = bytes[end];
    if (byte === undefined || (byte === ESC && bytes[end + 1] === undefined)) return INCOMPLETE;
    if (byte !== BEL && byte !== ESC) continue;
    const length = byte === BEL ? 1 : 2;
    const text = String.fromCharCode(...bytes.subarray(at + 2, end));
    return isQuery(text) ? { type: "query", end: end + length } : { type: "other", end: at + 1 };
  }
  return { type: "other", end: at + 1 };
}

/**
 * Palette, special colors, dynamic colors and clipboard use the same codes for setting and querying; `?` marks a
 * query.
 */
function isColorQuery(text: string): boolean {
  return /^(?:4|5|1\d|52);(?:.*;)?\?$/.test(text);
}

function isWithin(byte: number | undefined, min: number, max: number): boolean {
  return byte !== undefined && byte >= min && byte <= max;
}

interface QueryRange {
  from: number;
  end: number;
}

/** Finds all queries in the bytes, and the start of an incomplete last sequence. */
function scan(bytes: Uint8Array): { queries: QueryRange[]; incompleteFrom: number } {
  const queries: QueryRange[] = [];
  for (let at = bytes.indexOf(ESC); at >= 0; ) {
    const sequence = sequenceAt(bytes, at);
    if (sequence.type === "incomplete") return { queries, incompleteFrom: at };
    if (sequence.type === "query") queries.push({ from: at, end: sequence.end });
    at = bytes.indexOf(ESC, sequence.end);
  }
  return { queries, incompleteFrom: bytes.length };
}

/** Output up to an incomplete last sequence, and the queries in it. */
interface ScannedOutput {
  bytes: Uint8Array;
  queries: QueryRange[];
  /** Number of bytes that belong to earlier chunks. */
  bytesBefore: number;
}

/** Joins output that arrives in chunks; buffers an incomplete last sequence until the next chunk. */
class SequenceBuffer {
  #incomplete: Uint8Array = NOTHING;

  protected scanNext(chunk: Uint8Array): ScannedOutput {
    const bytesBefore = this.#incomplete.length;
    const bytes = bytesBefore === 0 ? chunk : concatBytes([this.#incomplete, chunk]);
    const { queries, incompleteFrom } = scan(bytes);
    // A copy: the memory of the chunk may be reused, and `slice` of a Buffer is a view.
    this.#incomplete = new Uint8Array(bytes.subarray(incompleteFrom));
    return { bytes: bytes.subarray(0, incompleteFrom), queries, bytesBefore };
  }

  /** Returns the buffered bytes at the end of the output. */
  flush(): Uint8Array {
    const rest = this.#incomplete;
    this.#incomplete = NOTHING;
    return rest;
  }
}

/** Finds queries in output that arrives in chunks. */
export class QueryScanner extends SequenceBuffer {
  /** Returns how many bytes before this chunk belong to a query that it completes, or null if it completes none. */
  scan(chunk: Uint8Array): { bytesBefore: number } | null {
    const { queries, bytesBefore } = this.scanNext(chunk);
    return queries.length > 0 ? { bytesBefore } : null;
  }
}

/** Removes queries from output, for a viewer that must not reply to them. */
export class QueryStripper extends SequenceBuffer {
  /** Returns the output without queries; buffers an incomplete sequence until the next chunk. */
  push(chunk: Uint8Array): Uint8Array {
    return stripQueries(this.scanNext(chunk));
  }
}

/**
 * Filters output for a terminal that replies to queries while another terminal may have replied already. It claims
 * queries before it shows them, and removes the queries that are not granted.
 */
export class QueryGate extends SequenceBuffer {
  readonly #claim: (seq: number) => Promise<boolean>;

  /** `claim` reports whether this terminal replies to the queries that end in the output with this sequence number. */
  constructor(claim: (seq: number) => Promise<boolean>) {
    super();
    this.#claim = claim;
  }

  /** Returns the output to show; buffers an incomplete sequence, so that a query is shown whole or not at all. */
  async push(chunk: Uint8Array, seq: number): Promise<Uint8Array> {
    const output = this.scanNext(chunk);
    return output.queries.length === 0 || (await this.#claim(seq)) ? output.bytes : stripQueries(output);
  }
}

/** Returns the output without its queries. */
function stripQueries({ bytes, queries }: ScannedOutput): Uint8Array {
  if (queries.length === 0) return bytes;
  const parts: Uint8Array[] = [];
  let from = 0;
  for (const query of queries) {
    parts.push(bytes.subarray(from, query.from));
    from = query.end;
  }
  parts.push(bytes.subarray(from));
  return concatBytes(parts);
}

const NOTHING = new Uint8Array(0);
