import type { AttachedProcess } from "../../client/browser.ts";
import type { OutputChunk, TerminalSize } from "../../exec/exec-process.ts";
import { formatBytes } from "../app/format.ts";
import type { ExitInfo } from "../app/state-badge.ts";
import type { TerminalView } from "./terminal-view.ts";

/** Bytes per read of earlier output. */
const PAGE_BYTES = 256 * 1024;
/** Minimum time between two renderings after gaps: bulk output can cause many gaps per second. */
const RENDER_INTERVAL_MS = 1_000;
/** Exit status of a process that the server lost track of. */
const UNKNOWN_EXIT: ExitInfo = { exitCode: null, signal: null };

export interface FollowListener {
  onEnd: (end: ExitInfo) => void;
  onSize: (size: TerminalSize) => void;
  /** Called with whether the terminal lacks retained output before its first line. */
  onEarlierOutput: (isMissing: boolean) => void;
}

/** Draws an attached process on a terminal: its screen first, then new output, and earlier output on demand. */
export class TerminalFollower {
  readonly #process: AttachedProcess;
  readonly #terminal: TerminalView;
  readonly #listener: FollowListener;
  #drawnSeq = 0;
  #hasEarlierOutput = false;
  #hasEnded = false;
  #isClosed = false;
  #renderTimer: ReturnType<typeof setTimeout> | null = null;
  /** Draws one after another: new output waits for the reading of earlier output. */
  #drawing: Promise<void> = Promise.resolve();

  constructor(process: AttachedProcess, terminal: TerminalView, listener: FollowListener) {
    this.#process = process;
    this.#terminal = terminal;
    this.#listener = listener;
  }

  /** Draws until the process closes. */
  async follow(): Promise<void> {
    const { screen } = this.#process;
    this.#process.onResized = () => this.#fit();
    this.#fit();
    if (screen) {
      await this.#queue(() => this.#terminal.show(screen));
      this.#drawnSeq = screen.seq;
      this.#setEarlierOutput(screen.seq > 0 && !screen.alternate);
      this.#fit();
    }
    for await (const event of this.#process.events({ afterSeq: screen?.seq ?? 0 })) {
      switch (event.type) {
        case "output":
          await this.#queue(() => this.#draw(event));
          break;
        case "gap":
          await this.#queue(() => this.#skip(event.toSeq, event.bytes));
          break;
        case "exited":
          this.#end(event);
          break;
        case "failed":
          // The own detachment fails the log too.
          if (!this.#isClosed) this.#end(UNKNOWN_EXIT);
          break;
        case "closed":
          break;
      }
    }
  }

  #end(status: ExitInfo): void {
    if (!this.#hasEnded) this.#listener.onEnd(status);
    this.#hasEnded = true;
  }

  /** Stops drawing. */
  close(): void {
    this.#isClosed = true;
    if (this.#renderTimer !== null) clearTimeout(this.#renderTimer);
  }

  /** Draws all retained output again, so that the scrollback is complete. */
  loadEarlierOutput(): Promise<void> {
    if (!this.#hasEarlierOutput) return Promise.resolve();
    this.#setEarlierOutput(false);
    return this.#queue(() => this.#replay());
  }

  async #replay(): Promise<void> {
    const untilSeq = this.#drawnSeq;
    let isComplete = true;
    this.#terminal.reset();
    for (let afterSeq = 0; afterSeq < untilSeq; ) {
      const { chunks, gap, nextSeq } = await this.#process.read({ afterSeq, maxBytes: PAGE_BYTES });
      if (gap && gap.bytes !== 0) {
        isComplete = false;
        this.#terminal.gap(missingText(gap.bytes));
      }
      this.#drawnSeq = afterSeq;
      for (const chunk of chunks) if (chunk.seq <= untilSeq) await this.#draw(chunk);
      if (nextSeq - 1 <= afterSeq) break;
      afterSeq = nextSeq - 1;
    }
    this.#drawnSeq = untilSeq;
    // The output after evicted output may lack the modes of the program.
    if (!isComplete) await this.#showCurrent();
    this.#fit();
  }

  async #draw({ seq, chunk }: Pick<OutputChunk, "seq" | "chunk">): Promise<void> {
    if (seq <= this.#drawnSeq) return;
    this.#drawnSeq = seq - 1;
    this.#fit();
    this.#drawnSeq = seq;
    await this.#terminal.draw(chunk);
    // A resize may have no output after it.
    this.#fit();
  }

  /** Shows a notice in place of missed output, and soon the screen that includes its effect. */
  async #skip(toSeq: number, bytes: number | null): Promise<void> {
    if (toSeq <= this.#drawnSeq) return;
    this.#drawnSeq = toSeq;
    this.#terminal.gap(missingText(bytes));
    if (this.#process.size === null) return;
    this.#renderTimer ??= setTimeout(() => {
      this.#renderTimer = null;
      void this.#queue(() => this.#showCurrent());
    }, RENDER_INTERVAL_MS);
  }

  async #showCurrent(): Promise<void> {
    if (this.#isClosed) return;
    // A process that has just ended, or a terminal that is too large, has no screen; its output follows as events.
    const screen = await this.#process.renderScreen().catch(() => null);
    if (!screen) return;
    await this.#terminal.show(screen);
    this.#drawnSeq = Math.max(this.#drawnSeq, screen.seq);
  }

  /** Gives the terminal the size at which the process wrote the next output. */
  #fit(): void {
    const size = this.#process.sizeAt(this.#drawnSeq + 1);
    if (!size) return;
    this.#terminal.resize(size);
    this.#listener.onSize(size);
  }

  #setEarlierOutput(isMissing: boolean): void {
    this.#hasEarlierOutput = isMissing;
    this.#listener.onEarlierOutput(isMissing);
  }

  #queue(task: () => Promise<void>): Promise<void> {
    const run = this.#drawing.then(task);
    this.#drawing = run.catch(() => undefined);
    return run;
  }
}

function missingText(bytes: number | null): string {
  return `${bytes === null ? "some output" : formatBytes(bytes)} no longer retained`;
}
