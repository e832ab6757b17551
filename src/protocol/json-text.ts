/**
 * Parses the text of one message, more strictly than JSON.parse: no key twice in an object, bounded nesting, a bounded
 * number of values, and the literal of a top-level `id` (JSON.parse cannot tell `1.0` from `1`).
 *
 * The scan hops from quote to quote, so the base64 of a large write costs one native search, not a loop over it.
 */

/** Values in one message; more would let a small message build a huge tree. The reference server's number. */
export const MAX_JSON_VALUES = 262_144;
/** Nesting of one message; the reference server's number. */
export const MAX_JSON_DEPTH = 128;

export const TOO_MANY_VALUES = `JSON-RPC message exceeds the limit of ${MAX_JSON_VALUES} JSON values`;

/** Shorter messages are parsed without this first look. */
const WORTH_COUNTING_BYTES = 1024 * 1024;
const QUOTE = 34;
const BACKSLASH = 92;

/**
 * A first look at the bytes of a long message: true when it holds so many strings that it must hold too many values. So a
 * flood of keys becomes neither a text nor a set of keys. Never true for a message within the limits: a value has at
 * most two strings, and a quote that no backslash precedes begins or ends one.
 */
export function holdsTooManyStrings(message: Uint8Array): boolean {
  if (message.length < WORTH_COUNTING_BYTES) return false;
  let quotes = 0;
  for (let at = message.indexOf(QUOTE); at >= 0; at = message.indexOf(QUOTE, at + 1)) {
    if (message[at - 1] !== BACKSLASH && ++quotes > 4 * MAX_JSON_VALUES) return true;
  }
  return false;
}

export type JsonText =
  | { ok: true; value: unknown; idLiteral: string | null }
  | { ok: false; problem: string };

export function parseJsonText(text: string): JsonText {
  // The limits come first: a text of nothing but brackets would become gigabytes of objects before they were counted.
  const scanned = scan(text);
  if (!scanned.ok) return scanned;
  try {
    return { ok: true, value: JSON.parse(text), idLiteral: scanned.idLiteral };
  } catch (error) {
    return { ok: false, problem: error instanceof Error ? error.message : "not JSON" };
  }
}

const Code = {
  quote: 34,
  comma: 44,
  colon: 58,
  openArray: 91,
  backslash: 92,
  closeArray: 93,
  open: 123,
  close: 125,
};

interface Container {
  /** Keys of an object seen so far; null for an array. */
  keys: Set<string> | null;
  /** The next string is a key. */
  expectsKey: boolean;
}

/** Leaves the grammar to JSON.parse: on a text that is not JSON this scan may return anything, as long as it ends. */
function scan(text: string): { ok: true; idLiteral: string | null } | { ok: false; problem: string } {
  const stack: Container[] = [];
  let top: Container | undefined;
  let values = 0;
  let idLiteral: string | null = null;
  let pendingId = false;
  let at = 0;
  const end = text.length;
  while (at < end) {
    const code = text.charCodeAt(at);
    if (code === Code.quote) {
      const close = stringEnd(text, at);
      if (top?.keys && top.expectsKey) {
        const key = close < 0 ? null : unquote(text, at, close);
        if (key === null) return { ok: true, idLiteral };
        if (top.keys.has(key))
          return { ok: false, problem: `duplicate JSON object key \`${key}\` at line 1 column ${at}` };
        top.keys.add(key);
        top.expectsKey = false;
        pendingId = stack.length === 1 && key === "id";
      } else {
        values++;
        pendingId = false;
      }
      // A string without an end: nothing more to find.
      at = close < 0 ? end : close + 1;
      continue;
    }
    if (code === Code.open || code === Code.openArray) {
      values++;
      top = { keys: code === Code.open ? new Set() : null, expectsKey: code === Code.open };
      stack.push(top);
      pendingId = false;
      if (stack.length > MAX_JSON_DEPTH) {
        return { ok: false, problem: `recursion limit exceeded at line 1 column ${at + 1}` };
      }
      at++;
    } else if (code === Code.close || code === Code.closeArray) {
      stack.pop();
      top = stack[stack.length - 1];
      at++;
    } else if (code === Code.comma) {
      if (top?.keys) top.expectsKey = true;
      at++;
    } else if (code <= 32 || code === Code.colon) {
      at++;
    } else {
      const literalEnd = literalEndsAt(text, at);
      if (pendingId) idLiteral = text.slice(at, literalEnd);
      pendingId = false;
      values++;
      at = literalEnd;
    }
    if (values > MAX_JSON_VALUES) {
      return {
        ok: false,
        problem: `${TOO_MANY_VALUES} at line 1 column ${at}`,
      };
    }
  }
  return { ok: true, idLiteral };
}

/** Where the string that opens at `open` closes. */
function stringEnd(text: string, open: number): number {
  let close = text.indexOf('"', open + 1);
  while (close > 0 && isEscaped(text, close)) close = text.indexOf('"', close + 1);
  return close;
}

function isEscaped(text: string, at: number): boolean {
  let slashes = 0;
  while (text.charCodeAt(at - 1 - slashes) === Code.backslash) slashes++;
  return slashes % 2 === 1;
}

/** The text of a key; null when its escapes are not JSON's. */
function unquote(text: string, open: number, close: number): string | null {
  const raw = text.slice(open + 1, close);
  if (!raw.includes("\\")) return raw;
  try {
    return String(JSON.parse(text.slice(open, close + 1)));
  } catch {
    return null;
  }
}

/** A number, true, false or null: ends before a comma, a bracket or white space. */
function literalEndsAt(text: string, at: number): number {
  let end = at;
  while (end < text.length) {
    const code = text.charCodeAt(end);
    if (code === Code.comma || code === Code.close || code === Code.closeArray || code <= 32) break;
    end++;
  }
  return end;
}
