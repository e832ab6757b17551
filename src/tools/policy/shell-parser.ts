/**
 * The commands of a shell line, as words, when the line consists of nothing but plain words: no variables, no
 * substitutions, no redirections, no patterns, no background jobs. Null for everything else, since what it would run
 * cannot be told from its text. Rules about commands are safe only on what this understands.
 */
export function plainCommands(line: string): string[][] | null {
  const commands = assigningCommands(line);
  return commands?.every(({ assigns }) => !assigns) ? commands.map(({ words }) => words) : null;
}

export interface AssigningCommand {
  /** Variables are set before it, which may change what it does. */
  assigns: boolean;
  /** Empty when nothing but variables is set. */
  words: string[];
}

/** The same, also for commands with plain assignments before them. */
export function assigningCommands(line: string): AssigningCommand[] | null {
  const reader = new LineReader(line);
  const commands: AssigningCommand[] = [];
  let current: AssigningCommand | null = null;
  // An operator wants a command to follow; a semicolon or a line break does not.
  let wantsMore = true;
  for (;;) {
    const token = reader.next();
    if (token === null) return null;
    if (token.type === "word") {
      current ??= { assigns: false, words: [] };
      if (current.words.length > 0 || token.equals === "none") {
        if (current.words.length === 0 && RESERVED.has(token.text)) return null;
        current.words.push(token.text);
      } else if (token.equals === "assignment") current.assigns = true;
      else return null;
      continue;
    }
    if (current) {
      commands.push(current);
      current = null;
      wantsMore = token.type === "separator" && token.text !== ";" && token.text !== "\n";
    } else if (token.type === "separator" && token.text !== "\n") return null;
    if (token.type === "end") return wantsMore ? null : commands;
  }
}

/** Does one of the prefixes stand at the beginning of the command, word for word? */
export function hasPrefix(command: readonly string[], prefix: readonly string[]): boolean {
  return prefix.length > 0 && prefix.every((word, index) => command[index] === word);
}

/** Words that begin something else than a command. */
const RESERVED = new Set(
  "! [[ case coproc do done elif else end esac fi for foreach function if in nocorrect noglob repeat select then time until while { }".split(
    " ",
  ),
);

type Token =
  | { type: "word"; text: string; equals: "none" | "assignment" | "elsewhere" }
  | { type: "separator"; text: string }
  | { type: "end" };

/** Characters that make the shell do something else than pass a word on. */
const SPECIAL = new Set("$`*?[]{}()<>&#~".split(""));

/** What stands before the value of an assignment; quoted it would be a word. */
const ASSIGNED = /^[A-Za-z_]\w*\+?=$/;

class LineReader {
  readonly #line: string;
  #at = 0;

  constructor(line: string) {
    this.#line = line;
  }

  /** The next token; null when the line is not plain. */
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
        // A single & would put the command into the background.
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
        // zsh puts the path of a program in place of a word that begins so.
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
