import { decodeUtf8 } from "../../base/text/utf8.ts";

/** A JSON value with its position, so that errors can name the position. Offsets are in bytes. */
export type PositionedValue =
  | { type: "string"; value: string; start: number; end: number }
  | { type: "integer" | "float"; text: string; start: number; end: number }
  | { type: "boolean"; value: boolean; start: number; end: number }
  | { type: "null"; start: number; end: number }
  | { type: "sequence"; items: PositionedValue[]; start: number; end: number }
  | { type: "map"; members: PositionedMember[]; start: number; end: number };

export interface PositionedMember {
  name: string;
  /** Offset after the name. */
  nameEnd: number;
  value: PositionedValue;
}

/**
 * A syntax error with the message of Rust's serde_json, which models know from Codex. `at` is the number of bytes read.
 */
export class JsonSyntaxError extends Error {
  override readonly name = "JsonSyntaxError";
  readonly at: number;

  constructor(message: string, at: number) {
    super(message);
    this.at = at;
  }
}

/** Maximum nesting depth; the limit of serde_json. */
const MAX_DEPTH = 128;

/** Parses a text as one value. Throws a `JsonSyntaxError`. */
export function parsePositionedJson(text: string): PositionedValue {
  return new Reader(new TextEncoder().encode(text)).parse();
}

/** Formats a byte offset as `line 1 column 8`. */
export function formatPosition(text: string, at: number): string {
  const before = new TextEncoder().encode(text).subarray(0, at);
  let line = 1;
  let lineStart = 0;
  for (const [index, byte] of before.entries()) {
    if (byte !== LINE_FEED) continue;
    line++;
    lineStart = index + 1;
  }
  return `line ${line} column ${at - lineStart}`;
}

const LINE_FEED = 0x0a;
const QUOTE = 0x22;
const BACKSLASH = 0x5c;
const WHITE_SPACE = new Set([0x20, LINE_FEED, 0x0d, 0x09]);
const NUMBER = /^-?(?:0|[1-9]\d*)(\.\d+)?([eE][+-]?\d+)?/;

class Reader {
  readonly #bytes: Uint8Array;
  #at = 0;
  #depth = 0;

  constructor(bytes: Uint8Array) {
    this.#bytes = bytes;
  }

  parse(): PositionedValue {
    const value = this.#value();
    if (this.#peek() !== null) throw this.#unexpected("trailing characters");
    return value;
  }

  #value(): PositionedValue {
    const next = this.#peek();
    const start = this.#at;
    switch (next) {
      case null:
        throw new JsonSyntaxError("EOF while parsing a value", this.#at);
      case '"':
        return { type: "string", value: this.#string(), start, end: this.#at };
      case "t":
        return this.#literal("true", { type: "boolean", value: true, start, end: start + 4 });
      case "f":
        return this.#literal("false", { type: "boolean", value: false, start, end: start + 5 });
      case "n":
        return this.#literal("null", { type: "null", start, end: start + 4 });
      case "[":
        return this.#nested(() => this.#sequence(start));
      case "{":
        return this.#nested(() => this.#map(start));
      default:
        return this.#number(start);
    }
  }

  #nested<T>(read: () => T): T {
    if (++this.#depth >= MAX_DEPTH) throw this.#unexpected("recursion limit exceeded");
    const value = read();
    this.#depth--;
    return value;
  }

  #map(start: number): PositionedValue {
    const members: PositionedMember[] = [];
    this.#at++;
    while (this.#hasMore("}", "an object", members.length)) {
      if (this.#peek() !== '"') throw this.#unexpected("key must be a string");
      const name = this.#string();
      const nameEnd = this.#at;
      const colon = this.#peek();
      if (colon === null) throw new JsonSyntaxError("EOF while parsing an object", this.#at);
      if (colon !== ":") throw this.#unexpected("expected `:`");
      this.#at++;
      members.push({ name, nameEnd, value: this.#value() });
      if (this.#endsAfter("}", "an object", "expected `,` or `}`")) break;
    }
    return { type: "map", members, start, end: ++this.#at };
  }

  #sequence(start: number): PositionedValue {
    const items: PositionedValue[] = [];
    this.#at++;
    while (this.#hasMore("]", "a list", items.length)) {
      items.push(this.#value());
      if (this.#endsAfter("]", "a list", "expected `,` or `]`")) break;
    }
    return { type: "sequence", items, start, end: ++this.#at };
  }

  /** Called before a member. Reports whether one follows; the closing bracket is valid only if no member was read. */
  #hasMore(end: string, container: string, read: number): boolean {
    const next = this.#peek();
    if (next === null) throw new JsonSyntaxError(`EOF while parsing ${container}`, this.#at);
    if (next !== end) return true;
    if (read > 0) throw this.#unexpected("trailing comma");
    return false;
  }

  /** Called after a member. Reports whether the closing bracket follows; otherwise consumes a comma. */
  #endsAfter(end: string, container: string, expected: string): boolean {
    const next = this.#peek();
    if (next === null) throw new JsonSyntaxError(`EOF while parsing ${container}`, this.#at);
    if (next === end) return true;
    if (next !== ",") throw this.#unexpected(expected);
    this.#at++;
    return false;
  }

  #literal(word: string, value: PositionedValue): PositionedValue {
    for (const character of word) {
      const byte = this.#bytes[this.#at];
      if (byte === undefined) throw new JsonSyntaxError("EOF while parsing a value", this.#at);
      this.#at++;
      if (byte !== character.charCodeAt(0)) throw new JsonSyntaxError("expected ident", this.#at);
    }
    return value;
  }

  #number(start: number): PositionedValue {
    const first = this.#bytes[start] ?? 0;
    if (first !== 0x2d && (first < 0x30 || first > 0x39)) throw this.#unexpected("expected value");
    // No valid number is longer than 400 bytes.
    const found = NUMBER.exec(decodeUtf8(this.#bytes.subarray(start, start + 400)));
    if (!found) throw new JsonSyntaxError("invalid number", start + 1);
    const [text, fraction, exponent] = found;
    this.#at = start + text.length;
    const isFloat = fraction !== undefined || exponent !== undefined;
    return { type: isFloat ? "float" : "integer", text, start, end: this.#at };
  }

  #string(): string {
    const start = this.#at++;
    for (;;) {
      const byte = this.#bytes[this.#at];
      if (byte === undefined) throw new JsonSyntaxError("EOF while parsing a string", this.#at);
      if (byte === QUOTE) break;
      if (byte < 0x20)
        throw new JsonSyntaxError("control character (\\u0000-\\u001F) found while parsing a string", this.#at);
      this.#at++;
      if (byte === BACKSLASH) this.#escape();
    }
    this.#at++;
    // All escapes were validated above.
    return String(JSON.parse(decodeUtf8(this.#bytes.subarray(start, this.#at))));
  }

  #escape(): void {
    const byte = this.#bytes[this.#at];
    if (byte === undefined) throw new JsonSyntaxError("EOF while parsing a string", this.#at);
    this.#at++;
    const letter = String.fromCharCode(byte);
    if (letter !== "u") {
      if (!'"\\/bfnrt'.includes(letter)) throw new JsonSyntaxError("invalid escape", this.#at);
      return;
    }
    for (let digit = 0; digit < 4; digit++) {
      const next = this.#bytes[this.#at];
      if (next === undefined) throw new JsonSyntaxError("EOF while parsing a string", this.#at);
      this.#at++;
      if (!/[0-9a-fA-F]/.test(String.fromCharCode(next))) throw new JsonSyntaxError("invalid escape", this.#at);
    }
  }

  /** Returns the next character that is not white space, or null at the end. */
  #peek(): string | null {
    for (;;) {
      const byte = this.#bytes[this.#at];
      if (byte === undefined) return null;
      if (!WHITE_SPACE.has(byte)) return String.fromCharCode(byte);
      this.#at++;
    }
  }

  /** Returns an error at the next character. */
  #unexpected(message: string): JsonSyntaxError {
    return new JsonSyntaxError(message, this.#at + 1);
  }
}
