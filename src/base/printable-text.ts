/**
 * Makes text from outside (a model, a server, a process, a file) safe to show. A terminal obeys control characters and
 * reorders text at bidirectional ones, so a reader sees something other than what is there. Here they are shown as
 * escapes: C0, DEL, C1, line and paragraph separators, format characters (bidirectional overrides, zero-width and tag
 * characters) and halves of surrogate pairs.
 */
const UNSEEN = /[\p{Cc}\p{Cf}\p{Zl}\p{Zp}\p{Cs}]/gu;
/** The same set without what text of several lines needs: line breaks, tabs, and the joiners of scripts and emoji. */
const UNSEEN_IN_TEXT = /(?![\n\t\u200c\u200d])[\p{Cc}\p{Cf}\p{Zl}\p{Zp}\p{Cs}]/gu;

/** The text on one line; its line breaks are escaped too. */
export function visibleLine(text: string): string {
  return text.replace(UNSEEN, escapeOf);
}

/** The text with its line breaks and tabs kept. */
export function visibleText(text: string): string {
  return text.replaceAll("\r\n", "\n").replace(UNSEEN_IN_TEXT, escapeOf);
}

/** Quotes a text so that a shell reads exactly it as one word. */
export function visibleWord(word: string): string {
  if (/^[\w@%+=:,./-]+$/.test(word)) return word;
  if (word.search(UNSEEN) < 0) return `'${word.replaceAll("'", "'\\''")}'`;
  return `$'${word.replace(/[\\']/g, "\\$&").replace(UNSEEN, escapeOf)}'`;
}

/** A value as JSON on one line; characters that JSON leaves alone but a terminal would obey are escaped too. */
export function visibleJson(value: unknown): string {
  return (JSON.stringify(value) ?? "null").replace(UNSEEN, (char) =>
    Array.from({ length: char.length }, (_, at) => `\\u${hex(char.charCodeAt(at), 4)}`).join(""),
  );
}

const SHORT: Readonly<Record<string, string>> = { "\n": "\\n", "\r": "\\r", "\t": "\\t" };

function escapeOf(char: string): string {
  const short = SHORT[char];
  if (short !== undefined) return short;
  const code = char.codePointAt(0) ?? 0;
  if (code < 0x80) return `\\x${hex(code, 2)}`;
  return code <= 0xffff ? `\\u${hex(code, 4)}` : `\\U${hex(code, 8)}`;
}

function hex(code: number, digits: number): string {
  return code.toString(16).padStart(digits, "0");
}
