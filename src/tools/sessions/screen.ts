import type { TerminalSize } from "../../exec/exec-process.ts";
import { type HeadlessTerminal, newHeadlessTerminal } from "../../exec/terminal/headless-terminal.ts";
import type { OutputArchive } from "../output/output-archive.ts";

export interface Screen extends TerminalSize {
  /** One for each row, without trailing blanks. */
  lines: string[];
  /** From 0. */
  cursor: { row: number; col: number };
  /** A full-screen program has the alternate screen. */
  alternate: boolean;
  title: string;
}

/** How much is drawn before others get a turn. */
const DRAW_BYTES = 256 * 1024;

/** Draws what a session has written onto a terminal of its own, up to the present, whenever the screen is read. */
export class ScreenView {
  readonly #archive: OutputArchive;
  #terminal: Promise<HeadlessTerminal> | null = null;
  #drawn = 0;
  #drawing: Promise<unknown> = Promise.resolve();

  constructor(archive: OutputArchive) {
    this.#archive = archive;
  }

  /** `size` is what the terminal has now: whoever drives it may have changed it. */
  async look(size: TerminalSize): Promise<Screen> {
    const look = this.#drawing.then(() => this.#look(size));
    this.#drawing = look.catch(() => undefined);
    return look;
  }

  async dispose(): Promise<void> {
    (await this.#terminal)?.dispose();
  }

  async #look(size: TerminalSize): Promise<Screen> {
    this.#terminal ??= newHeadlessTerminal(size);
    const terminal = await this.#terminal;
    terminal.resize(size);
    const until = this.#archive.totalBytes;
    while (this.#drawn < until) {
      const { bytes, offset } = await this.#archive.read(this.#drawn, DRAW_BYTES);
      // What stood there before the hole says nothing about what stands there now.
      if (offset > this.#drawn) terminal.reset();
      await terminal.write(bytes);
      this.#drawn = offset + bytes.length;
      if (bytes.length === 0) break;
    }
    return screenOf(terminal, size);
  }
}

function screenOf(terminal: HeadlessTerminal, size: TerminalSize): Screen {
  const buffer = terminal.buffer();
  const lines = Array.from(
    { length: size.rows },
    (_, row) =>
      buffer
        .getLine(buffer.baseY + row)
        ?.translateToString(true)
        .trimEnd() ?? "",
  );
  return {
    ...size,
    lines,
    // Behind the last column it waits for the next character to wrap; a person sees it in the last.
    cursor: { row: buffer.cursorY, col: Math.min(buffer.cursorX, size.cols - 1) },
    alternate: buffer.type === "alternate",
    title: terminal.title(),
  };
}
