/**
 * Parses a shell line into commands if it has only plain words: no variables, substitutions, redirections, patterns or
 * background jobs. Returns null for other lines, because their text does not determine what they run. Command rules are
 * safe only for parsed lines.
 */
export function parsePlainCommands(line: string): string[][] | null {
  const commands = parseCommandsWithAssignments(line);
  return commands?.every(({ assigns }) => !assigns) ? commands.map(({ argv }) => argv) : null;
}

export interface AssigningCommand {
  /** Whether assignments precede the command and may change its effect. */
  assigns: boolean;
  /** Empty if the command has only assignments. */
  argv: string[];
}

/** Like `parsePlainCommands`, but also accepts plain assignments before a command. */
export function parseCommandsWithAssignments(line: string): AssigningCommand[] | null {
  const reader = new LineReader(line);
  const commands: AssigningCommand[] = [];
  let current: AssigningCommand | null = null;
  // An operator requires a following command; a semicolon or a line break does not.
  let isCommandRequired = true;
  for (;;) {
    const token = reader.next();
    if (token === null) return null;
    if (token.type === "word") {
      current ??= { assigns: false, argv: [] };
      if (current.argv.length > 0 || token.equals === "none") {
        if (current.argv.length === 0 && RESERVED.has(token.text)) return null;
        current.argv.push(token.text);
      } else if (token.equals === "assignment") current.assigns = true;
      else return null;
      continue;
    }
    if (current) {
      commands.push(current);
      current = null;
      isCommandRequired = token.type === "separator" && token.text !== ";" && token.text !== "\n";
    } else if (token.type === "separator" && token.text !== "\n") return null;
    if (token.type === "end") return isCommandRequired ? null : commands;
  }
}

/** Reports whether the command starts with the words of a non-empty prefix. */
export function hasPrefix(command: readonly string[], prefix: readonly string[]): boolean {
  return prefix.length > 0 && prefix.every((word, index) => command[index] === word);
}

/** Reserved words, which do not start a simple command. */
const RESERVED = new Set(
  "! [[ case coproc do done elif else end esac fi for foreach function if in nocorrect noglob repeat select then time until while { }".split(
    " ",
  ),
);

type Token =
  | { type: "word"; text: string; equals: "none" | "assignment" | "elsewhere" }
  | { type: "separator"; text: string }
  | { type: "end" };

/** Characters with a special meaning in unquoted words. */
const SPECIAL = new Set("$`*?[]{}()<>&#~".split(""));

/** Matches an unquoted assignment up to its value. A quoted one is a word. */
const ASSIGNED = /^[A-Za-z_]\w*\+?=$/;

class LineReader {
  readonly #line: string;
  #at = 0;

  constructor(line: string) {
    this.#line = line;
  }

  /** Returns the next token, or null if the line is not plain. */
  next(): Token | null {
    while (this.#peek() === " " || this.#peek() === "\t") this.#at++;
    const char = this.#peek();
    if (char === "") return { type: "end" };
    if (char === "\n" || char === ";") return this.#separator(char);
    const two = this.#line.slice(this.#at, this.#at + 2);
    if (two === "&&" || two === "||") return this.#separator(two);
    if (two === "|&") return null;
    if (char === "|") return this.#separator(char);
    return this.#word();
  }

  #peek(): string {
    return this.#line.charAt(this.#at);
  }

  #separator(text: string): Token | null {
    this.#at += text.length;
    // `;;` belongs to a case.
    if (text === ";" && this.#peek() === ";") return null;
    return { type: "separator", text };
  }

  #word(): Token | null {
    let text = "";
    let equals: "none" | "assignment" | "elsewhere" = "none";
    const from = this.#at;
    for (;;) {
      const char = this.#peek();
      if (char === "" || " \t\n;|&".includes(char)) {
        // A single & starts a background job.
        if (char === "&" && this.#line.charAt(this.#at + 1) !== "&") return null;
        return { type: "word", text, equals };
      }
      if (SPECIAL.has(char) || char === "\r" || char === "\0") return null;
      this.#at++;
      if (char === "'") {
        const end = this.#line.indexOf("'", this.#at);
        if (end < 0) return null;
        text += this.#line.slice(this.#at, end);
        this.#at = end + 1;
      } else if (char === '"') {
        const quoted = this.#doubleQuoted();
        if (quoted === null) return null;
        text += quoted;
      } else if (char === "\\") {
        const escaped = this.#peek();
        if (escaped === "" || escaped === "\n") return null;
        text += escaped;
        this.#at++;
      } else {
        // zsh replaces `=NAME` by the path of the program NAME.
        if (char === "=" && this.#at - 1 === from) return null;
        if (char === "=" && equals === "none")
          equals = ASSIGNED.test(this.#line.slice(from, this.#at)) ? "assignment" : "elsewhere";
        text += char;
      }
    }
  }

  #doubleQuoted(): string | null {
    let text = "";
    for (;;) {
      const char = this.#peek();
      this.#at++;
      if (char === "" || char === "$" || char === "`") return null;
      if (char === '"') return text;
      if (char === "\\") {
        const escaped = this.#peek();
        if (escaped === "" || escaped === "\n") return null;
        text += '$`"\\'.includes(escaped) ? escaped : `\\${escaped}`;
        this.#at++;
      } else text += char;
    }
  }
}
