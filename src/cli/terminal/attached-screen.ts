import { clamp } from "../../base/clamp.ts";
import type { AttachedProcess } from "../../client/process/attached-process.ts";
import type { OutputChunk, TerminalScreen, TerminalSize } from "../../exec/exec-process.ts";
import { createHeadlessTerminal, type HeadlessTerminal } from "../../exec/terminal/headless-terminal.ts";
import { QueryStripper } from "../../exec/terminal/terminal-queries.ts";
import { OutputPipe } from "./process-output.ts";
import { localTerminalSize } from "./raw-terminal.ts";
import { AlternateScreenState, resetModes } from "./reset-modes.ts";

/** Interval between two frames of a viewport. */
const FRAME_INTERVAL_MS = 30;
/** Minimum time between two renderings after gaps: bulk output can cause many gaps per second. */
const REDRAW_INTERVAL_MS = 500;
/** Time for which a notice covers the last row. */
const NOTICE_MS = 5_000;

const HIDE_CURSOR = "\x1b[?25l";
const ENTER_VIEWPORT = `\x1b[?1049h\x1b[2J${HIDE_CURSOR}`;
const LEAVE_VIEWPORT = "\x1b[?1049l";

export type ScrollKey = "up" | "down" | "left" | "right" | "pageUp" | "pageDown" | "home" | "end";

/**
 * The screen of an attached process on the local terminal. Output passes through unchanged for the driver, and for a
 * viewer whose terminal has the size of the process. Any other viewer gets a viewport of an emulated terminal.
 */
export class AttachedScreen {
  readonly #child: AttachedProcess;
  readonly #output = new OutputPipe(process.stdout);
  /** Help for a viewer whose terminal is too small. */
  readonly #viewportHelp: string;
  #filter = new QueryStripper();
  /** Output up to this sequence number is drawn. */
  #drawnSeq = 0;
  #viewport: { terminal: HeadlessTerminal; top: number; left: number; isFollowing: boolean } | null = null;
  /** Rows as drawn last, so that a frame contains only changed rows. */
  #drawnRows: string[] = [];
  #frameTimer: NodeJS.Timeout | null = null;
  #redrawTimer: NodeJS.Timeout | null = null;
  #notice: { text: string; timer: NodeJS.Timeout } | null = null;
  #drawing: Promise<void> = Promise.resolve();
  readonly #alternateScreen = new AlternateScreenState();
  #isClosed = false;

  constructor(child: AttachedProcess, viewportHelp: string) {
    this.#child = child;
    this.#viewportHelp = viewportHelp;
  }

  /** True if the local terminal shows only a part of the screen. */
  get isClipped(): boolean {
    const [theirs, own] = [this.#viewport?.terminal.size(), localTerminalSize()];
    return theirs !== undefined && own !== null && (own.rows < theirs.rows || own.cols < theirs.cols);
  }

  /** True if the program left the local terminal on the alternate screen. */
  get isAlternate(): boolean {
    return this.#alternateScreen.isActive;
  }

  /** Draws the first screen. Content of the local terminal scrolls into its scrollback. */
  start(screen: TerminalScreen): Promise<void> {
    const rows = localTerminalSize()?.rows ?? 0;
    return this.#queue(async () => {
      await this.#write(`\x1b[${rows};1H${"\n".repeat(rows)}`);
      await this.#show(screen);
    });
  }

  /** Draws output. Resolves to false if the reader closed the pipe. */
  async draw({ seq, chunk }: Pick<OutputChunk, "seq" | "chunk">): Promise<boolean> {
    let isOpen = true;
    await this.#queue(async () => {
      if (seq <= this.#drawnSeq) return;
      this.#drawnSeq = seq;
      if (this.#viewport) {
        await this.#viewport.terminal.write(chunk);
        this.#scheduleFrame();
      } else isOpen = await this.#pass(this.#filter.push(chunk));
    });
    return isOpen;
  }

  /** Draws the screen again after a gap, a change of role or a change of either terminal size. */
  redraw(): Promise<void> {
    return this.#queue(async () => {
      // A process that has just ended has no screen; its last output follows as events.
      const screen = await this.#child.renderScreen().catch(() => null);
      if (screen) await this.#show(screen);
    });
  }

  /** Draws the screen again soon, because output was missed. */
  skip(): void {
    this.#redrawTimer ??= setTimeout(() => {
      this.#redrawTimer = null;
      void this.redraw();
    }, REDRAW_INTERVAL_MS);
  }

  /** Follows a change of either terminal size. The program of a driver redraws after a resize. */
  resized(): void {
    if (this.#child.role === "viewer") void this.redraw();
  }

  /** Shows one line on the last row, for some seconds or until the next call of `clearNotice`. */
  notify(text: string): void {
    this.clearNotice();
    this.#notice = { text, timer: setTimeout(() => this.clearNotice(), NOTICE_MS) };
    if (this.#viewport) this.#scheduleFrame();
    else void this.#queue(() => this.#write(`\x1b7${this.#lastRow(text)}\x1b8`));
  }

  clearNotice(): void {
    if (!this.#notice) return;
    clearTimeout(this.#notice.timer);
    this.#notice = null;
    if (this.#viewport) this.#scheduleFrame();
    else void this.redraw();
  }

  /** Moves the viewport. */
  scroll(key: ScrollKey): void {
    const viewport = this.#viewport;
    if (!viewport) return;
    const { rows } = this.#viewSize(viewport.terminal.size());
    const last = Number.MAX_SAFE_INTEGER;
    const [down, right] = {
      ...{ up: [-1, 0], down: [1, 0], left: [0, -8], right: [0, 8] },
      ...{ pageUp: [-rows, 0], pageDown: [rows, 0], home: [-last, -last], end: [last, last] },
    }[key] as [number, number];
    viewport.isFollowing = false;
    viewport.top += down;
    viewport.left += right;
    this.#scheduleFrame();
  }

  /**
   * Draws the last frame, and leaves the screen of the program on the local terminal. Resolves to the row with the end of
   * the content of a program that is still running, from 1; to null if the cursor is already below the content.
   */
  async close({ isRunning }: { isRunning: boolean }): Promise<number | null> {
    let lastRow: number | null = null;
    await this.#queue(async () => {
      if (isRunning && !this.#viewport) lastRow = await this.#drawLast();
      this.#isClosed = true;
      if (this.#notice) clearTimeout(this.#notice.timer);
      this.#notice = null;
      if (this.#frameTimer) clearTimeout(this.#frameTimer);
      if (this.#redrawTimer) clearTimeout(this.#redrawTimer);
      if (!this.#viewport) return;
      await this.#write(LEAVE_VIEWPORT);
      const { terminal } = this.#viewport;
      const size = terminal.size();
      const own = localTerminalSize() ?? size;
      const lastUsed = terminal.buffer().type === "alternate" ? 0 : terminal.buffer().cursorY + 1;
      const rows = terminal.drawRows({ top: 0, left: 0, rows: lastUsed, cols: Math.min(own.cols, size.cols) });
      // The rows contain absolute positions; print them below the prompt instead.
      for (const row of rows) await this.#write(`${row.replaceAll(/\x1b\[\d+;(\d+)H/g, "\x1b[$1G")}\x1b[0m\r\n`);
      terminal.dispose();
      this.#viewport = null;
    });
    await this.#output.flush();
    return lastRow;
  }

  /** Draws output that is not drawn yet. Resolves to the last row with content, or of the terminal if it is unknown. */
  async #drawLast(): Promise<number> {
    const screen = await this.#child.renderScreen().catch(() => null);
    if (!screen) return localTerminalSize()?.rows ?? 1;
    // A notice covers a row until the screen is drawn again.
    if (screen.seq > this.#drawnSeq || this.#notice) {
      if (this.#notice) clearTimeout(this.#notice.timer);
      this.#notice = null;
      await this.#show(screen);
    }
    const terminal = await createHeadlessTerminal(screen.size);
    await terminal.write(screen.data);
    await terminal.write(Buffer.from(resetModes({ isAlternate: terminal.buffer().type === "alternate" })));
    const lastRow = contentRows(terminal);
    terminal.dispose();
    return lastRow;
  }

  #queue(task: () => Promise<void>): Promise<void> {
    const run = this.#drawing.then(() => (this.#isClosed ? undefined : task()));
    this.#drawing = run.catch(() => undefined);
    return run;
  }

  async #write(text: string): Promise<void> {
    await this.#pass(Buffer.from(text));
  }

  /** Resolves to false if the reader closed the pipe. */
  #pass(output: Uint8Array): Promise<boolean> {
    this.#alternateScreen.push(output);
    return this.#output.write(output);
  }

  async #show(screen: TerminalScreen): Promise<void> {
    const { size, data, incomplete } = screen;
    const own = localTerminalSize();
    const isSameSize = own?.rows === size.rows && own.cols === size.cols;
    this.#drawnSeq = Math.max(this.#drawnSeq, screen.seq);
    this.#filter = new QueryStripper();
    if (this.#child.role === "driver" || !own || isSameSize) {
      if (this.#viewport) await this.#write(LEAVE_VIEWPORT);
      this.#viewport?.terminal.dispose();
      this.#viewport = null;
      await this.#pass(data);
      await this.#pass(this.#filter.push(incomplete));
      if (this.#notice) await this.#write(`\x1b7${this.#lastRow(this.#notice.text)}\x1b8`);
      return;
    }
    if (!this.#viewport) await this.#write(ENTER_VIEWPORT);
    const former = this.#viewport;
    former?.terminal.dispose();
    const terminal = await createHeadlessTerminal(size);
    terminal.queue(data);
    await terminal.write(incomplete);
    this.#viewport = {
      top: former?.top ?? 0,
      left: former?.left ?? 0,
      isFollowing: former?.isFollowing ?? true,
      terminal,
    };
    this.#drawnRows = [];
    await this.#write("\x1b[0m\x1b[2J");
    await this.#drawFrame();
  }

  #scheduleFrame(): void {
    this.#frameTimer ??= setTimeout(() => {
      this.#frameTimer = null;
      void this.#queue(() => this.#drawFrame());
    }, FRAME_INTERVAL_MS);
  }

  /** Size of the viewport: one row less if a row of help is needed. */
  #viewSize({ rows, cols }: TerminalSize): TerminalSize {
    const own = localTerminalSize() ?? { rows, cols };
    const ownRows = this.isClipped ? Math.max(1, own.rows - 1) : own.rows;
    return { rows: Math.min(rows, ownRows), cols: Math.min(cols, own.cols) };
  }

  async #drawFrame(): Promise<void> {
    if (!this.#viewport) return;
    const { terminal } = this.#viewport;
    const size = terminal.size();
    const view = this.#viewSize(size);
    const { cursorY, cursorX } = terminal.buffer();
    if (this.#viewport.isFollowing) {
      this.#viewport.top = follow(this.#viewport.top, cursorY, view.rows);
      this.#viewport.left = follow(this.#viewport.left, Math.min(cursorX, size.cols - 1), view.cols);
    }
    const top = clamp(this.#viewport.top, 0, size.rows - view.rows);
    const left = clamp(this.#viewport.left, 0, size.cols - view.cols);
    this.#viewport.top = top;
    this.#viewport.left = left;
    const rows = terminal.drawRows({ top, left, ...view });
    // Keys first, because a narrow terminal cuts the end.
    const part = `${this.#viewportHelp}; part of ${size.cols}x${size.rows} at ${left + 1},${top + 1}`;
    const bar = this.#notice?.text ?? (this.isClipped ? part : null);
    if (bar !== null) rows[(localTerminalSize()?.rows ?? view.rows + 1) - 1] = this.#lastRow(bar);
    else if (this.#drawnRows.length > rows.length) this.#drawnRows = [];
    const changed = rows.filter((row, index) => row !== this.#drawnRows[index]);
    const isFullDraw = this.#drawnRows.length === 0;
    this.#drawnRows = rows;
    const isCursorShown =
      !terminal.isCursorHidden() && isWithin(cursorY - top, view.rows) && isWithin(cursorX - left, view.cols);
    const cursor = isCursorShown ? `\x1b[${cursorY - top + 1};${cursorX - left + 1}H\x1b[?25h` : "";
    await this.#write(`${HIDE_CURSOR}${isFullDraw ? "\x1b[0m\x1b[2J" : ""}${changed.join("")}${cursor}`);
  }

  /** Returns output that draws one line over the last row. */
  #lastRow(text: string): string {
    const { rows, cols } = localTerminalSize() ?? { rows: 1, cols: 80 };
    return `\x1b[${rows};1H\x1b[0;7m\x1b[K${`[${text}]`.slice(0, cols)}\x1b[0m`;
  }
}

/** Returns the number of rows down to the last row with content or the cursor. */
function contentRows(terminal: HeadlessTerminal): number {
  const buffer = terminal.buffer();
  const { cursorX, cursorY } = buffer;
  let { rows } = terminal.size();
  while (rows > 1 && !buffer.getLine(rows - 1)?.translateToString(true)) rows--;
  return Math.max(rows, cursorX > 0 ? cursorY + 1 : cursorY);
}

function isWithin(value: number, count: number): boolean {
  return value >= 0 && value < count;
}

/** Returns the start of a range of `count` that contains `position`, moved as little as possible. */
function follow(start: number, position: number, count: number): number {
  if (position < start) return position;
  return position >= start + count ? position - count + 1 : start;
}
