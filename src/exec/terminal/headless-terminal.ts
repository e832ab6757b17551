import type { TerminalSize } from "../exec-process.ts";

/** A terminal emulator without a display. */
export type HeadlessTerminal = Awaited<ReturnType<typeof createHeadlessTerminal>>;

/** Enables window queries, so that the handlers of `terminal-replies.ts` reply to them: the emulator has no window. */
const WINDOW_REPORTS = {
  ...{ getWinState: true, getWinPosition: true, getWinSizePixels: true, getWinSizeChars: true },
  ...{ getCellSizePixels: true, getScreenSizePixels: true, getScreenSizeChars: true },
  ...{ getIconTitle: true, getWinTitle: true },
};

/** Creates a terminal. The emulator is loaded on first use. */
export async function createHeadlessTerminal({ rows, cols }: TerminalSize) {
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
    /** Resolves when the bytes are drawn. */
    write: (bytes: Uint8Array) => new Promise<void>((resolve) => terminal.write(bytes, resolve)),
    reset: () => terminal.reset(),
    resize: (size: TerminalSize) => {
      if (size.rows !== terminal.rows || size.cols !== terminal.cols) terminal.resize(size.cols, size.rows);
    },
    dispose: () => terminal.dispose(),
    buffer: () => terminal.buffer.active,
    modes: () => terminal.modes,
    title: () => title,
    /** Called with each reply that the emulator itself produces, while it draws the query. */
    onReply: (listener: (text: string) => void) => terminal.onData(listener),
    parser: terminal.parser,
  };
}
