import { InputError } from "../job.ts";

/** White space and commas between elements. */
const SEPARATOR = /[\s,]/;

/**
 * Splits a JSON array, or a sequence of objects, into the text of its elements. Never holds the whole input in memory.
 */
export async function* jsonElements(
  text: AsyncIterable<string>,
  name: string,
): AsyncGenerator<string, void, undefined> {
  const cutter = new ElementCutter(name);
  for await (const chunk of text) yield* cutter.take(chunk);
  yield* cutter.end();
}

class ElementCutter {
  #name: string;
  #element = "";
  /** Number of open brackets, without the enclosing array. */
  #depth = 0;
  #isInString = false;
  #isEscaped = false;
  #array: "unknown" | "none" | "open" | "closed" = "unknown";

  constructor(name: string) {
    this.#name = name;
  }

  *take(chunk: string): Generator<string, void, undefined> {
    let from = 0;
    for (let at = 0; at < chunk.length; at++) {
      const char = chunk[at] ?? "";
      if (this.#isInString) {
        this.#readString(char);
        continue;
      }
      const isBetween = this.#depth === 0 && this.#element === "" && from === at;
      if (isBetween && SEPARATOR.test(char)) {
        from = at + 1;
      } else if (isBetween && this.#readArrayEdge(char)) {
        from = at + 1;
      } else if (this.#depth === 0 && !isBetween && (SEPARATOR.test(char) || char === "]")) {
        yield this.#cut(chunk.slice(from, at));
        from = at + 1;
        if (char === "]") this.#array = "closed";
      } else if (this.#readBracket(char)) {
        yield this.#cut(chunk.slice(from, at + 1));
        from = at + 1;
      }
    }
    this.#element += chunk.slice(from);
  }

  *end(): Generator<string, void, undefined> {
    if (this.#depth > 0 || this.#isInString || this.#array === "open") {
      throw new InputError(`json input ${this.#name} ends within a value`);
    }
    if (this.#element !== "") yield this.#cut("");
  }

  #cut(rest: string): string {
    const element = this.#element + rest;
    this.#element = "";
    return element;
  }

  #readString(char: string): void {
    if (this.#isEscaped) this.#isEscaped = false;
    else if (char === "\\") this.#isEscaped = true;
    else if (char === '"') this.#isInString = false;
  }

  /** Returns true for a bracket of the enclosing array. */
  #readArrayEdge(char: string): boolean {
    if (this.#array === "closed") throw new InputError(`json input ${this.#name} has data after its end`);
    if (this.#array === "unknown") {
      this.#array = char === "[" ? "open" : "none";
      return char === "[";
    }
    if (char !== "]" || this.#array !== "open") return false;
    this.#array = "closed";
    return true;
  }

  /** Returns true if this character closes the last open bracket. */
  #readBracket(char: string): boolean {
    if (char === '"') this.#isInString = true;
    if (char === "{" || char === "[") this.#depth++;
    if (char !== "}" && char !== "]") return false;
    this.#depth--;
    return this.#depth === 0;
  }
}
