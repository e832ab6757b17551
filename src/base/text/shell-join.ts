/**
 * Joins an argv to a command line that a shell splits into the same words. Quotes like the event stream of Codex: plain
 * words stay unquoted, other words get the kind of quotes that covers most characters.
 */
export function shellJoin(argv: readonly string[]): string {
  return argv.map(quoteWord).join(" ");
}

const PLAIN = /^[-+./:@\]_0-9A-Za-z]+$/;
const IN_SINGLE = /^[^'\\]*/;
const IN_DOUBLE = /^[^`$!^]*/;

function quoteWord(word: string): string {
  if (word === "") return "''";
  if (PLAIN.test(word)) return word;
  let rest = word;
  let line = "";
  while (rest !== "") {
    const single = IN_SINGLE.exec(rest)?.[0] ?? "";
    const double = IN_DOUBLE.exec(rest)?.[0] ?? "";
    const isSingle = single.length >= double.length;
    const part = isSingle ? single : double;
    line += isSingle ? `'${part}'` : `"${part.replaceAll(/["\\]/g, "\\$&")}"`;
    rest = rest.slice(part.length);
  }
  return line;
}
