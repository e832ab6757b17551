/**
 * Characters to escape before untrusted text (of a model, a server, a process or a file) is displayed. Terminals execute
 * control characters and reorder text at bidirectional ones, so that a user would see another text. The set: C0, DEL,
 * C1, line and paragraph separators, format characters (bidirectional overrides, zero-width and tag characters) and
 * unpaired surrogates.
 */
const unprintable = () => /[\p{Cc}\p{Cf}\p{Zl}\p{Zp}\p{Cs}]/gu;
/** The same set without line breaks, tabs, and the joiners of scripts and emoji, which multi-line text needs. */
const unprintableInText = () => /(?![\n\t\u200c\u200d])[\p{Cc}\p{Cf}\p{Zl}\p{Zp}\p{Cs}]/gu;

// Most texts are ASCII, which these expressions match faster. Reading a Unicode property alone takes 0.1 ms.
const ASCII_LINE = /^[\x20-\x7e]*$/;
const ASCII_TEXT = /^[\n\t\x20-\x7e]*$/;

/** Escapes unprintable characters, including line breaks. */
export function printableLine(text: string): string {
  return ASCII_LINE.test(text) ? text : text.replace(unprintable(), escapeCharacter);
}

/** Escapes unprintable characters, but keeps line breaks and tabs. */
export function printableText(text: string): string {
  if (ASCII_TEXT.test(text)) return text;
  return text.replaceAll("\r\n", "\n").replace(unprintableInText(), escapeCharacter);
}

/** Quotes text as one shell word. */
export function shellQuote(word: string): string {
  if (/^[\w@%+=:,./-]+$/.test(word)) return word;
  if (ASCII_LINE.test(word) || word.search(unprintable()) < 0) return `'${word.replaceAll("'", "'\\''")}'`;
  return `$'${word.replace(/[\\']/g, "\\$&").replace(unprintable(), escapeCharacter)}'`;
}

/** Joins words to a line of a shell, each quoted by `shellQuote`. */
export function shellQuoteAll(words: readonly string[]): string {
  return words.map(shellQuote).join(" ");
}

/** Returns a value as JSON on one line. Also escapes characters that JSON allows but terminals interpret. */
export function printableJson(value: unknown): string {
  const text = JSON.stringify(value) ?? "null";
  if (ASCII_LINE.test(text)) return text;
  return text.replace(unprintable(), (char) =>
    Array.from({ length: char.length }, (_, at) => `\\u${hex(char.charCodeAt(at), 4)}`).join(""),
  );
}

const SHORT_ESCAPES: Readonly<Record<string, string>> = { "\n": "\\n", "\r": "\\r", "\t": "\\t" };

function escapeCharacter(char: string): string {
  const short = SHORT_ESCAPES[char];
  if (short !== undefined) return short;
  const code = char.codePointAt(0) ?? 0;
  if (code < 0x80) return `\\x${hex(code, 2)}`;
  return code <= 0xffff ? `\\u${hex(code, 4)}` : `\\U${hex(code, 8)}`;
}

function hex(code: number, digits: number): string {
  return code.toString(16).padStart(digits, "0");
}
