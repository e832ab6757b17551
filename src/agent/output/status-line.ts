import { visibleLine, visibleText } from "../../base/printable-text.ts";
import { type Painted, paint } from "./ansi-style.ts";
import type { LineSink } from "./line-writer.ts";

/**
 * One line at the bottom of a terminal that is written over, with ordinary lines above it. Not a terminal: no status. What
 * is written may come from a model or a command: nothing in it is obeyed.
 */
export class StatusLine {
  #sink: LineSink;
  #inPlace: boolean;
  #color: boolean;
  #shown = "";

  constructor(sink: LineSink, options: { inPlace?: boolean | undefined; color?: boolean | undefined } = {}) {
    this.#sink = sink;
    this.#inPlace = options.inPlace ?? sink.isTTY === true;
    this.#color = options.color ?? false;
  }

  get inPlace(): boolean {
    return this.#inPlace;
  }

  get columns(): number {
    return this.#sink.columns ?? 80;
  }

  status(text: string): void {
    if (!this.#inPlace || text === this.#shown) return;
    // One short of the width: a full last column makes some terminals wrap.
    const visible = visibleLine(text);
    const fitting = visible.length >= this.columns ? visible.slice(0, this.columns - 1) : visible;
    this.#sink.write(`\r\x1b[2K${fitting}`);
    this.#shown = text;
  }

  line(...parts: readonly (string | Painted)[]): void {
    const status = this.#shown;
    this.clear();
    this.#sink.write(`${parts.map((part) => this.#visible(part)).join("")}\n`);
    if (status !== "") this.status(status);
  }

  /** Colours come last, so that none of the text's own pass. */
  #visible(part: string | Painted): string {
    if (typeof part === "string") return visibleText(part);
    const visible = visibleText(part.text);
    return this.#color ? paint(visible, part.style) : visible;
  }

  clear(): void {
    if (this.#shown === "") return;
    this.#sink.write("\r\x1b[2K");
    this.#shown = "";
  }
}
