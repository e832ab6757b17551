import type { TerminalSize } from "../exec-process.ts";

/** A terminal that nobody looks at: draws what it is given, and tells what stands on it. */
export type HeadlessTerminal = Awaited<ReturnType<typeof newHeadlessTerminal>>;

/** Whoever answers what a program asks about its window has to be asked: the emulator has none. */
const WINDOW_REPORTS = {
  ...{ getWinState: true, getWinPosition: true, getWinSizePixels: true, getWinSizeChars: true },
  ...{ getCellSizePixels: true, getScreenSizePixels: true, getScreenSizeChars: true },
  ...{ getIconTitle: true, getWinTitle: true },
};

/** The emulator is loaded by the first who needs a screen. */
export async function newHeadlessTerminal({ rows, cols }: TerminalSize) {
  const { default: xterm } = await import("@xterm/headless");
  const terminal = new xterm.Terminal({
    ...{ rows, cols, scrollback: 0, allowProposedApi: true },
    windowOptions: WINDOW_REPORTS,
  });
  let title = "";
  terminal.onTitleChange((text) => {
    title = text;
  });
  return {
    /** Resolves when it is drawn. */
    write: (bytes: Uint8Array) => new Promise<void>((resolve) => terminal.write(bytes, resolve)),
    reset: () => terminal.reset(),
    resize: (size: TerminalSize) => {
      if (size.rows !== terminal.rows || size.cols !== terminal.cols) terminal.resize(size.cols, size.rows);
    },
    dispose: () => terminal.dispose(),
    buffer: () => terminal.buffer.active,
    modes: () => terminal.modes,
    title: () => title,
    /** Called with each answer of the emulator's own, while it draws the question. */
    onAnswer: (listener: (text: string) => void) => terminal.onData(listener),
    parser: terminal.parser,
  };
}
