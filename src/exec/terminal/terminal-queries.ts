/**
 * What a program asks its terminal: device attributes, status and cursor reports, modes, window reports, colours, the
 * clipboard. A terminal answers as if somebody typed it, so whoever shows output without being the one who answers takes the
 * questions out of it.
 */

const ESC = 0x1b;
const BEL = 0x07;
/** A question is short; what is longer and not over yet is something else. */
const MAX_QUERY_BYTES = 256;

type Sequence =
  /** It ends before `end`. */
  | { type: "query" | "other"; end: number }
  /** The bytes end before it does. */
  | { type: "incomplete" };

/** What begins with the escape character at `at`. */
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
    case 0x5a: // Z, an old way to ask for the device attributes
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
  if (!ASKING_FINALS.has(final)) return { type: "other", end };
  const text = String.fromCharCode(...bytes.subarray(at + 2, end + 1));
  return CONTROL_QUERIES.test(text) ? { type: "query", end: end + 1 } : { type: "other", end };
}

const ASKING_FINALS = new Set(Array.from("cnptquxyw", (letter) => letter.charCodeAt(0)));
/** In this order: attributes, status, modes, window reports, version, keyboard, parameters, checksums, states. */
const CONTROL_QUERIES =
  /^(?:[>=]?[\d;]*c|\??[\d;]*n|\??\d*\$p|1[1-9]t|2[01]t|>\d*q|\?u|[01]?x|[\d;]*\*y|\d*\$w)$/;

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

/** The palette, special colours, the dynamic colours and the clipboard are set and asked for by the same words. */
function isColorQuery(text: string): boolean {
  return /^(?:4|5|1\d|52);(?:.*;)?\?$/.test(text);
}

function isWithin(byte: number | undefined, least: number, most: number): boolean {
  return byte !== undefined && byte >= least && byte <= most;
}

interface Found {
  from: number;
  end: number;
}

/** All questions in these bytes, and where the last sequence begins that is not over yet. */
function scan(bytes: Uint8Array): { found: Found[]; openFrom: number } {
  const found: Found[] = [];
  for (let at = bytes.indexOf(ESC); at >= 0; ) {
    const sequence = sequenceAt(bytes, at);
    if (sequence.type === "incomplete") return { found, openFrom: at };
    if (sequence.type === "query") found.push({ from: at, end: sequence.end });
    at = bytes.indexOf(ESC, Math.max(sequence.end, at + 1));
  }
  return { found, openFrom: bytes.length };
}

/** Sees questions in output that comes in pieces. */
export class QueryWatch {
  #open: Uint8Array = NOTHING;

  /** How many of the bytes before this piece belong to a question that is over in it; null when there is none. */
  look(chunk: Uint8Array): { bytesBefore: number } | null {
    if (this.#open.length === 0 && !chunk.includes(ESC)) return null;
    const bytesBefore = this.#open.length;
    const bytes = joined(this.#open, chunk);
    const { found, openFrom } = scan(bytes);
    this.#open = bytes.slice(openFrom);
    return found.length > 0 ? { bytesBefore } : null;
  }
}

/** Output without its questions, for whoever shows it and is not the one who answers. */
export class QueryFilter {
  #open: Uint8Array = NOTHING;

  /** A sequence that is not over yet is kept for the next piece. */
  push(chunk: Uint8Array): Uint8Array {
    if (this.#open.length === 0 && !chunk.includes(ESC)) return chunk;
    const bytes = joined(this.#open, chunk);
    const { found, openFrom } = scan(bytes);
    this.#open = bytes.slice(openFrom);
    return without(found, bytes.subarray(0, openFrom));
  }

  /** What was kept, once nothing follows. */
  rest(): Uint8Array {
    const open = this.#open;
    this.#open = NOTHING;
    return open;
  }
}

/**
 * Output for a terminal that answers what it is shown, where somebody else may have answered already: questions are claimed
 * before they are shown, and taken out when they are not granted.
 */
export class QueryGate {
  readonly #claim: (seq: number) => Promise<boolean>;
  #open: Uint8Array = NOTHING;

  /** `claim` says whether the questions that end in the output of this seq are this terminal's to answer. */
  constructor(claim: (seq: number) => Promise<boolean>) {
    this.#claim = claim;
  }

  /** A sequence that is not over yet is kept for the next piece: a question is shown whole or not at all. */
  async push(chunk: Uint8Array, seq: number): Promise<Uint8Array> {
    if (this.#open.length === 0 && !chunk.includes(ESC)) return chunk;
    const bytes = joined(this.#open, chunk);
    const { found, openFrom } = scan(bytes);
    this.#open = bytes.slice(openFrom);
    const shown = bytes.subarray(0, openFrom);
    return found.length === 0 || (await this.#claim(seq)) ? shown : without(found, shown);
  }

  rest(): Uint8Array {
    const open = this.#open;
    this.#open = NOTHING;
    return open;
  }
}

function without(found: readonly Found[], bytes: Uint8Array): Uint8Array {
  if (found.length === 0) return bytes;
  const parts: Uint8Array[] = [];
  let from = 0;
  for (const query of found) {
    parts.push(bytes.subarray(from, query.from));
    from = query.end;
  }
  parts.push(bytes.subarray(from));
  return joined(...parts);
}

const NOTHING = new Uint8Array(0);

/** Without Node's Buffer: pages use it too. */
function joined(...parts: Uint8Array[]): Uint8Array {
  const [first, second] = parts;
  if (first && second && parts.length === 2 && first.length === 0) return second;
  const bytes = new Uint8Array(parts.reduce((sum, { length }) => sum + length, 0));
  let at = 0;
  for (const part of parts) {
    bytes.set(part, at);
    at += part.length;
  }
  return bytes;
}
