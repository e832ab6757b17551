/**
 * An argv as one line that a shell would split into the same words, quoted as the original's event stream quotes it: a word
 * is plain where it can be, else in the quotes that reach furthest.
 */
export function shownCommand(argv: readonly string[]): string {
  return argv.map(quoted).join(" ");
}

const PLAIN = /^[-+./:@\]_0-9A-Za-z]+$/;
const IN_SINGLE = /^[^'\\]*/;
const IN_DOUBLE = /^[^`$!^]*/;

function quoted(word: string): string {
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
