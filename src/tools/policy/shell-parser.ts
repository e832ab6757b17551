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
  const reader = new TokenReader(line);
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
        if (current.argv.length === 0 && RESERVED_WORDS.has(token.text)) return null;
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
const RESERVED_WORDS = new Set(
  "! [[ case coproc do done elif else end esac fi for foreach function if in nocorrect noglob repeat select then time until while { }".split(
    " ",
  ),
);

type Token =
  | { type: "word"; text: string; equals: "none" | "assignment" | "elsewhere" }
  | { type: "separator"; text: string }
  | { type: "end" };

/** Characters with a special meaning in unquoted words. */
const SPECIAL_CHARACTERS = new Set("$`*?[]{}()<>&#~".split(""));

/** Matches an unquoted assignment up to its value. A quoted one is a word. */
const ASSIGNMENT = /^[A-Za-z_]\w*\+?=$/;

class TokenReader {
  readonly #line: string;
  #position = 0;

  constructor(line: string) {
    this.#line = line;
  }

  /** Returns the next token, or null if the line is not plain. */
  next(): Token | null {
    while (this.#peek() === " " || this.#peek() === "\t") this.#position++;
    const char = this.#peek();
    if (char === "") return { type: "end" };
    if (char === "\n" || char === ";") return this.#separator(char);
    const nextTwo = this.#line.slice(this.#position, this.#position + 2);
    if (nextTwo === "&&" || nextTwo === "||") return this.#separator(nextTwo);
    if (nextTwo === "|&") return null;
    if (char === "|") return this.#separator(char);
    return this.#word();
  }

  #peek(): string {
    return this.#line.charAt(this.#position);
  }

  #separator(text: string): Token | null {
    this.#position += text.length;
    // `;;` ends a branch of `case`.
    if (text === ";" && this.#peek() === ";") return null;
    return { type: "separator", text };
  }

  #word(): Token | null {
    let text = "";
    let equals: "none" | "assignment" | "elsewhere" = "none";
    const from = this.#position;
    for (;;) {
      const char = this.#peek();
      if (char === "" || " \t\n;|&".includes(char)) {
        // A single & starts a background job.
        if (char === "&" && this.#line.charAt(this.#position + 1) !== "&") return null;
        return { type: "word", text, equals };
      }
      if (SPECIAL_CHARACTERS.has(char) || char === "\r" || char === "\0") return null;
      this.#position++;
      if (char === "'") {
        const end = this.#line.indexOf("'", this.#position);
        if (end < 0) return null;
        text += this.#line.slice(this.#position, end);
        this.#position = end + 1;
      } else if (char === '"') {
        const quoted = this.#doubleQuoted();
        if (quoted === null) return null;
        text += quoted;
      } else if (char === "\\") {
        const escaped = this.#peek();
        if (escaped === "" || escaped === "\n") return null;
        text += escaped;
        this.#position++;
      } else {
        // zsh replaces `=NAME` by the path of the program NAME.
        if (char === "=" && this.#position - 1 === from) return null;
        if (char === "=" && equals === "none")
          equals = ASSIGNMENT.test(this.#line.slice(from, this.#position)) ? "assignment" : "elsewhere";
        text += char;
      }
    }
  }

  #doubleQuoted(): string | null {
    let text = "";
    for (;;) {
      const char = this.#peek();
      this.#position++;
      if (char === "" || char === "$" || char === "`") return null;
      if (char === '"') return text;
      if (char === "\\") {
        const escaped = this.#peek();
        if (escaped === "" || escaped === "\n") return null;
        text += '$`"\\'.includes(escaped) ? escaped : `\\${escaped}`;
        this.#position++;
      } else text += char;
    }
  }
}
