import type { TerminalSize } from "../../exec/exec-process.ts";
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
  readonly #size: TerminalSize;
  #terminal: Promise<HeadlessTerminal> | null = null;
  #drawn = 0;
  #drawing: Promise<unknown> = Promise.resolve();

  constructor(archive: OutputArchive, size: TerminalSize) {
    this.#archive = archive;
    this.#size = size;
  }

  async look(): Promise<Screen> {
    const look = this.#drawing.then(() => this.#look());
    this.#drawing = look.catch(() => undefined);
    return look;
  }

  async dispose(): Promise<void> {
    (await this.#terminal)?.dispose();
  }

  async #look(): Promise<Screen> {
    this.#terminal ??= newTerminal(this.#size);
    const terminal = await this.#terminal;
    const until = this.#archive.totalBytes;
    while (this.#drawn < until) {
      const { bytes, offset } = await this.#archive.read(this.#drawn, DRAW_BYTES);
      // What stood there before the hole says nothing about what stands there now.
      if (offset > this.#drawn) terminal.reset();
      await new Promise<void>((resolve) => terminal.write(bytes, resolve));
      this.#drawn = offset + bytes.length;
      if (bytes.length === 0) break;
    }
    return screenOf(terminal, this.#size);
  }
}

type HeadlessTerminal = Awaited<ReturnType<typeof newTerminal>>;

/** Loaded by those who look at a screen only. */
async function newTerminal({ rows, cols }: TerminalSize) {
  const { default: xterm } = await import("@xterm/headless");
  const terminal = new xterm.Terminal({ rows, cols, scrollback: 0, allowProposedApi: true });
  let title = "";
  terminal.onTitleChange((text) => {
    title = text;
  });
  return {
    write: (bytes: Uint8Array, done: () => void) => terminal.write(bytes, done),
    reset: () => terminal.reset(),
    dispose: () => terminal.dispose(),
    buffer: () => terminal.buffer.active,
    title: () => title,
  };
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
