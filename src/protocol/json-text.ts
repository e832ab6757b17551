/**
 * Parses one message more strictly than JSON.parse. It rejects duplicate keys and bounds nesting and number of values.
 * It also returns the literal of a top-level `id`, because JSON.parse does not distinguish `1.0` from `1`.
 *
 * The scan jumps from quote to quote: the base64 of a large write costs one native search instead of a loop.
 */

/** Maximum values in one message, so that a small message cannot build a huge tree. Same limit as Codex. */
export const MAX_JSON_VALUES = 262_144;
/** Maximum nesting of one message. Same limit as Codex. */
export const MAX_JSON_DEPTH = 128;

export const TOO_MANY_VALUES = `JSON-RPC message exceeds the limit of ${MAX_JSON_VALUES} JSON values`;

/** Minimum size of a message whose quotes are counted before parsing. */
const MIN_CHECKED_BYTES = 1024 * 1024;

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

/**
 * Reports whether a large message has so many strings that it must exceed MAX_JSON_VALUES. The check counts quotes in
 * the raw bytes, so that a message with too many keys is rejected before they become text or a set. It has no false
 * positives: a value has at most two strings, and a quote without a preceding backslash begins or ends a string.
 */
export function exceedsStringLimit(message: Uint8Array): boolean {
  if (message.length < MIN_CHECKED_BYTES) return false;
  let quotes = 0;
  for (let at = message.indexOf(Code.quote); at >= 0; at = message.indexOf(Code.quote, at + 1)) {
    if (message[at - 1] !== Code.backslash && ++quotes > 4 * MAX_JSON_VALUES) return true;
  }
  return false;
}

export type ParsedJson = { ok: true; value: unknown; idLiteral: string | null } | { ok: false; problem: string };

export function parseJsonText(text: string): ParsedJson {
  // Check the limits first: text of only brackets would otherwise become gigabytes of objects.
  const scanned = scan(text);
  if (!scanned.ok) return scanned;
  try {
    return { ok: true, value: JSON.parse(text), idLiteral: scanned.idLiteral };
  } catch (error) {
    return { ok: false, problem: error instanceof Error ? error.message : "not JSON" };
  }
}

interface Container {
  /** Keys of the object so far; null for an array. */
  keys: Set<string> | null;
  /** Whether the next string is a key. */
  expectsKey: boolean;
}

/** Checks limits and keys, and leaves the grammar to JSON.parse. The result for invalid JSON is unspecified. */
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
      const close = findStringEnd(text, at);
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
      // An unterminated string: stop scanning; JSON.parse reports the error.
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
      const literalEnd = findLiteralEnd(text, at);
      if (pendingId) idLiteral = text.slice(at, literalEnd);
      pendingId = false;
      values++;
      at = literalEnd;
    }
    if (values > MAX_JSON_VALUES) {
      return { ok: false, problem: `${TOO_MANY_VALUES} at line 1 column ${at}` };
    }
  }
  return { ok: true, idLiteral };
}

/** Returns the position of the closing quote of the string that opens at `open`, or a negative number. */
function findStringEnd(text: string, open: number): number {
  let close = text.indexOf('"', open + 1);
  while (close > 0 && isEscaped(text, close)) close = text.indexOf('"', close + 1);
  return close;
}

function isEscaped(text: string, at: number): boolean {
  let slashes = 0;
  while (text.charCodeAt(at - 1 - slashes) === Code.backslash) slashes++;
  return slashes % 2 === 1;
}

/** Returns the text of a key, or null if it has invalid escapes. */
function unquote(text: string, open: number, close: number): string | null {
  const raw = text.slice(open + 1, close);
  if (!raw.includes("\\")) return raw;
  try {
    return String(JSON.parse(text.slice(open, close + 1)));
  } catch {
    return null;
  }
}

/** Returns the end of a number, true, false or null, which a comma, a bracket or white space follows. */
function findLiteralEnd(text: string, at: number): number {
  let end = at;
  while (end < text.length) {
    const code = text.charCodeAt(end);
    if (code === Code.comma || code === Code.close || code === Code.closeArray || code <= 32) break;
    end++;
  }
  return end;
}
