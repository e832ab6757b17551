import type { Terminal } from "@xterm/headless";
import type { TerminalSize } from "../exec-process.ts";
import { useEmojiWidths } from "./emoji-widths.ts";
import { emulatorState } from "./emulator-state.ts";
import { drawRows, drawScreen, isCursorHidden, type Viewport } from "./terminal-screen.ts";

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
  useEmojiWidths(terminal);
  resetOnError(terminal);
  let title = "";
  terminal.onTitleChange((text) => {
    title = text;
  });
  return {
    /** Queues bytes for drawing. The emulator draws at most about 12 ms before it returns to the event loop. */
    queue: (bytes: Uint8Array) => terminal.write(bytes),
    /** Resolves when the bytes and everything queued before are drawn. */
    write: (bytes: Uint8Array) => new Promise<void>((resolve) => terminal.write(bytes, resolve)),
    reset: () => {
      terminal.reset();
      title = "";
    },
    resize: (size: TerminalSize) => terminal.resize(size.cols, size.rows),
    size: (): TerminalSize => ({ rows: terminal.rows, cols: terminal.cols }),
    dispose: () => terminal.dispose(),
    buffer: () => terminal.buffer.active,
    modes: () => terminal.modes,
    title: () => title,
    /** Returns output that draws the screen on another terminal of the same size. */
    drawScreen: () => drawScreen(terminal, title),
    /** Returns one output per row that draws a part of the screen at the top left of another terminal. */
    drawRows: (viewport: Viewport) => drawRows(terminal, viewport),
    isCursorHidden: () => isCursorHidden(terminal),
    /** Called with each reply that the emulator itself produces, while it draws the query. */
    onReply: (listener: (text: string) => void) => terminal.onData(listener),
    parser: terminal.parser,
  };
}

/**
 * Resets the emulator if it fails. It draws in a timer, where an error would end the program, and the output of a process
 * must not end its server.
 */
function resetOnError(terminal: Terminal): void {
  const { _inputHandler: handler } = emulatorState(terminal);
  const parse = handler.parse.bind(handler);
  handler.parse = (...output) => {
    try {
      return parse(...output);
    } catch {
      // The parser is within the sequence that failed.
      handler._parser.reset();
      terminal.reset();
      return undefined;
    }
  };
}
