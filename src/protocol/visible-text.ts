/**
 * Text from outside (a model, a server, a process, a file) made fit to be shown. A terminal obeys control characters and
 * turns text around at bidirectional ones; a reader then sees something else than what is there. Here they are shown as
 * escapes: C0, DEL, C1, line and paragraph separators, format characters (bidirectional overrides, zero-width and tag
 * characters) and halves of surrogate pairs.
 */
const UNSEEN = /[\p{Cc}\p{Cf}\p{Zl}\p{Zp}\p{Cs}]/gu;
/** The same but for what ordinary text of several lines needs: line breaks, tabs, and the joiners of scripts and emoji. */
const UNSEEN_IN_TEXT = /(?![\n\t\u200c\u200d])[\p{Cc}\p{Cf}\p{Zl}\p{Zp}\p{Cs}]/gu;

/** On one line, whatever it holds. */
export function visibleLine(text: string): string {
  return text.replace(UNSEEN, escapeOf);
}

/** With its line breaks and tabs. */
export function visibleText(text: string): string {
  return text.replaceAll("\r\n", "\n").replace(UNSEEN_IN_TEXT, escapeOf);
}

/** One word as a shell would need it to get exactly this text. */
export function visibleWord(word: string): string {
  if (/^[\w@%+=:,./-]+$/.test(word)) return word;
  if (word.search(UNSEEN) < 0) return `'${word.replaceAll("'", "'\\''")}'`;
  return `$'${word.replace(/[\\']/g, "\\$&").replace(UNSEEN, escapeOf)}'`;
}

/** A value as JSON on one line, with what JSON leaves as it is and a terminal would obey escaped as well. */
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
