import { printableLine, printableText } from "../../base/text/printable-text.ts";
import { type StyledText, styleText } from "./ansi-style.ts";
import type { LineSink } from "./line-writer.ts";

/**
 * A status line at the bottom of a terminal, below ordinary lines. Without a terminal, it prints nothing. Text may come
 * from a model or command, so its control characters are neutralized.
 */
export class StatusLine {
  readonly inPlace: boolean;
  #sink: LineSink;
  #color: boolean;
  #shown = "";

  constructor(sink: LineSink, options: { inPlace?: boolean | undefined; color?: boolean | undefined } = {}) {
    this.#sink = sink;
    this.inPlace = options.inPlace ?? sink.isTTY === true;
    this.#color = options.color ?? false;
  }

  get columns(): number {
    return this.#sink.columns ?? 80;
  }

  status(text: string): void {
    if (!this.inPlace || text === this.#shown) return;
    // One column less than the width, because some terminals wrap after a full last column.
    const visible = printableLine(text);
    const fitting = visible.length >= this.columns ? visible.slice(0, this.columns - 1) : visible;
    this.#sink.write(`\r\x1b[2K${fitting}`);
    this.#shown = text;
  }

  line(...parts: readonly (string | StyledText)[]): void {
    const status = this.#shown;
    this.clear();
    this.#sink.write(`${parts.map((part) => this.#visible(part)).join("")}\n`);
    if (status !== "") this.status(status);
  }

  /** Styles are added last, so that escape sequences in the text are neutralized first. */
  #visible(part: string | StyledText): string {
    if (typeof part === "string") return printableText(part);
    const visible = printableText(part.text);
    return this.#color ? styleText(visible, part.style) : visible;
  }

  clear(): void {
    if (this.#shown === "") return;
    this.#sink.write("\r\x1b[2K");
    this.#shown = "";
  }
}
