import type { TerminalSize } from "../../exec/exec-process.ts";
import { createHeadlessTerminal, type HeadlessTerminal } from "../../exec/terminal/headless-terminal.ts";
import type { OutputArchive } from "../output/output-archive.ts";

export interface Screen extends TerminalSize {
  /** One line per row, without trailing blanks. */
  lines: string[];
  /** Zero-based. */
  cursor: { row: number; col: number };
  /** Whether the alternate screen is active, as in full-screen programs. */
  alternate: boolean;
  title: string;
}

/** Bytes written to the emulator at a time, so that it does not block the event loop. */
const DRAW_BYTES = 256 * 1024;

/** The screen of an exec session. Writes new output to an off-screen emulator when the screen is read. */
export class ScreenView {
  readonly #archive: OutputArchive;
  #terminal: Promise<HeadlessTerminal> | null = null;
  #drawnBytes = 0;
  #drawing: Promise<unknown> = Promise.resolve();

  constructor(archive: OutputArchive) {
    this.#archive = archive;
  }

  /** Renders the screen. `size` is the current terminal size, which a driver may have changed. */
  async render(size: TerminalSize): Promise<Screen> {
    const rendering = this.#drawing.then(() => this.#render(size));
    this.#drawing = rendering.catch(() => undefined);
    return rendering;
  }

  async #render(size: TerminalSize): Promise<Screen> {
    this.#terminal ??= createHeadlessTerminal(size);
    const terminal = await this.#terminal;
    terminal.resize(size);
    const endOffset = this.#archive.totalBytes;
    while (this.#drawnBytes < endOffset) {
      const { bytes, offset } = await this.#archive.read(this.#drawnBytes, DRAW_BYTES);
      // After a gap, the screen content before it is meaningless.
      if (offset > this.#drawnBytes) terminal.reset();
      await terminal.write(bytes);
      this.#drawnBytes = offset + bytes.length;
      if (bytes.length === 0) break;
    }
    return readScreen(terminal, size);
  }
}

function readScreen(terminal: HeadlessTerminal, size: TerminalSize): Screen {
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
    // Before a wrap, the cursor is logically behind the last column, but terminals display it in the last column.
    cursor: { row: buffer.cursorY, col: Math.min(buffer.cursorX, size.cols - 1) },
    alternate: buffer.type === "alternate",
    title: terminal.title(),
  };
}
