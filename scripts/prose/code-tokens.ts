export interface Comment {
  type: "comment";
  text: string;
  from: number;
  to: number;
}

export interface StringLiteral {
  type: "string";
  /** Source text between the quotes; interpolations are replaced by one word of the same length. */
  text: string;
  from: number;
  to: number;
  /** Names of the calls around the string, innermost last. */
  calls: string[];
  /** True if no comma precedes the string in the innermost brackets, which may be those of an array or a body. */
  isFirst: boolean;
}

export type CodeToken = Comment | StringLiteral;

const COMMENT = /\/\/[^\n]*|\/\*[\s\S]*?(?:\*\/|$)/y;
/** A literal without an end stops at the end of its line. */
const QUOTED = /"((?:\\[\s\S]|[^"\\\n])*)"?|(?<!\w)'((?:\\[\s\S]|[^'\\\n])*)'?/y;
const REGEX = /\/(?:\\.|\[(?:\\.|[^\]\\\n])*\]|[^/\\[\n])+\/[a-z]*/y;
const WORD = /[\w$#][\w$]*/y;
const PUNCTUATION_BEFORE_REGEX = /[(,=:[!&|?{};+\-*%>~^]/;
const WORDS_BEFORE_REGEX = new Set("return typeof case in of await yield throw else do".split(" "));

/**
 * Yields the comments and strings of TypeScript, JavaScript, C or C++ source. `isScript` enables template literals and
 * regular expressions. The previous token decides whether a slash starts a regular expression. A wrong decision costs
 * at most one line, because regular expressions and quoted strings end with their line.
 */
export function* codeTokens(source: string, isScript: boolean): Generator<CodeToken> {
  const brackets: { callee: string | null; commas: number }[] = [];
  let commas = 0;
  let callee = "";
  let previous = ";";
  let at = 0;
  const take = (pattern: RegExp): RegExpExecArray | null => {
    pattern.lastIndex = at;
    const match = pattern.exec(source);
    if (match !== null) at = pattern.lastIndex;
    return match;
  };
  const literal = (from: number, text: string): StringLiteral => {
    const calls = brackets.flatMap((bracket) => bracket.callee ?? []);
    callee = "";
    previous = '"';
    return { type: "string", text, from, to: at, calls, isFirst: commas === 0 };
  };
  while (at < source.length) {
    const from = at;
    const comment = take(COMMENT);
    if (comment !== null) {
      yield { type: "comment", text: comment[0], from, to: at };
      continue;
    }
    const quoted = take(QUOTED);
    if (quoted !== null) {
      yield literal(from, quoted[1] ?? quoted[2] ?? "");
      continue;
    }
    const char = source.charAt(at);
    if (isScript && char === "`") {
      const template = readTemplate(source, at);
      at = template.to;
      yield literal(from, template.text);
      continue;
    }
    if (isScript && char === "/" && startsRegex(source, at, previous) && take(REGEX) !== null) {
      previous = "/";
      continue;
    }
    const word = take(WORD);
    if (word !== null) {
      callee = previous = word[0];
      continue;
    }
    at++;
    if (/\s/.test(char)) continue;
    if ("([{".includes(char)) {
      brackets.push({ callee: char === "(" ? callee : null, commas });
      commas = 0;
    } else if (")]}".includes(char)) commas = brackets.pop()?.commas ?? 0;
    else if (char === ",") commas++;
    previous = char;
    if (char !== "." && char !== "?") callee = "";
  }
}

/** Returns the source with comments and strings replaced by spaces, at unchanged offsets. */
export function blankTokens(source: string, tokens: readonly CodeToken[]): string {
  let code = "";
  let at = 0;
  for (const { from, to } of tokens) {
    code += source.slice(at, from) + blank(source.slice(from, to));
    at = to;
  }
  return code + source.slice(at);
}

function blank(text: string): string {
  return text.replace(/[^\n]/g, " ");
}

/** `</` and `/>` belong to JSX. */
function startsRegex(source: string, at: number, previous: string): boolean {
  if (source[at + 1] === ">") return false;
  return PUNCTUATION_BEFORE_REGEX.test(previous) || WORDS_BEFORE_REGEX.has(previous);
}

/** Reads the template literal that starts at `from`. Its text has one word in place of each interpolation. */
function readTemplate(source: string, from: number): { text: string; to: number } {
  let text = "";
  let at = from + 1;
  while (at < source.length && source[at] !== "`") {
    const start = at;
    if (source.startsWith("${", at)) {
      at = interpolationEnd(source, at + 2);
      text += `x${blank(source.slice(start + 1, at))}`;
    } else {
      at += source[at] === "\\" ? 2 : 1;
      text += source.slice(start, at);
    }
  }
  return { text, to: at + 1 };
}

/** Returns the offset after the brace that closes an interpolation. */
function interpolationEnd(source: string, from: number): number {
  let depth = 1;
  let at = from;
  while (at < source.length && depth > 0) {
    QUOTED.lastIndex = at;
    if (source[at] === "`") at = readTemplate(source, at).to;
    else if (QUOTED.test(source)) at = QUOTED.lastIndex;
    else {
      if (source[at] === "{") depth++;
      if (source[at] === "}") depth--;
      at++;
    }
  }
  return at;
}
