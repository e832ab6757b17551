import { concatBytes } from "../../base/bytes.ts";
import type { TerminalScreen, TerminalSize } from "../exec-process.ts";
import type { EventLog } from "../log/event-log.ts";
import type { SizeHistory } from "../log/size-history.ts";
import { incompleteFrom } from "./escape-sequences.ts";
import { createHeadlessTerminal, type HeadlessTerminal } from "./headless-terminal.ts";

/** Bytes that the emulator draws at once. It returns to the event loop between two slices. */
const SLICE_BYTES = 16 * 1024;
/** Maximum cells of a screen: the emulator needs about 24 bytes for each, and drawing all of them takes 25 ms. */
const MAX_CELLS = 200_000;
/** Memory of an emulator besides its cells. */
const EMULATOR_BYTES = 128 * 1024;
const BYTES_PER_CELL = 24;

export interface ScreenRendererDeps {
  log: EventLog;
  sizes: SizeHistory;
  /** Returns the current terminal size. */
  size: () => TerminalSize;
}

/**
 * Renders the screen of a process on demand from the retained output of its event log. Later renderings draw only new
 * output. After evicted output, the screen starts empty with the modes that the evicted output has set.
 */
export class ScreenRenderer {
  readonly #deps: ScreenRendererDeps;
  #terminal: HeadlessTerminal | null = null;
  #drawnSeq = 0;
  /** Undrawn start of a sequence or character at the end of the drawn output. */
  #incomplete: Uint8Array = NOTHING;

  constructor(deps: ScreenRendererDeps) {
    this.#deps = deps;
  }

  /** Estimated memory of the emulator; zero before the first rendering. */
  get bytes(): number {
    if (!this.#terminal) return 0;
    const { rows, cols } = this.#terminal.size();
    return EMULATOR_BYTES + rows * cols * BYTES_PER_CELL;
  }

  /** Returns the screen with all output of this moment, or null if it is too large. Calls must not overlap. */
  async render(): Promise<TerminalScreen | null> {
    const { log, sizes, size: currentSize } = this.#deps;
    const finalSize = currentSize();
    // Read at once, because output may be evicted during the drawing.
    const { chunks, gap, nextSeq } = log.read({ afterSeq: this.#drawnSeq });
    const prefix = gap || this.#drawnSeq === 0 ? log.evictedModes() : null;
    const sizeAt = (seq: number) => sizes.at(seq) ?? finalSize;
    const isTooLarge = ({ rows, cols }: TerminalSize) => rows * cols > MAX_CELLS;
    if (isTooLarge(finalSize) || chunks.some(({ seq }) => isTooLarge(sizeAt(seq)))) return null;
    const firstSize = sizeAt(chunks[0]?.seq ?? nextSeq);
    this.#terminal ??= await createHeadlessTerminal(firstSize);
    const terminal = this.#terminal;
    if (prefix) {
      terminal.reset();
      terminal.resize(firstSize);
      this.#incomplete = NOTHING;
      this.#queue(terminal, prefix);
    }
    for (const { seq, stream, chunk } of chunks) {
      if (stream !== "pty") continue;
      await resize(terminal, sizeAt(seq));
      this.#queue(terminal, chunk);
    }
    this.#drawnSeq = nextSeq - 1;
    await resize(terminal, finalSize);
    await terminal.write(NOTHING);
    return this.#screen(terminal);
  }

  dispose(): void {
    this.#terminal?.dispose();
    this.#terminal = null;
  }

  #queue(terminal: HeadlessTerminal, chunk: Uint8Array): void {
    const bytes = this.#incomplete.length === 0 ? chunk : concatBytes([this.#incomplete, chunk]);
    const end = incompleteFrom(bytes);
    this.#incomplete = bytes.slice(end);
    for (let at = 0; at < end; at += SLICE_BYTES) terminal.queue(bytes.subarray(at, Math.min(end, at + SLICE_BYTES)));
  }

  #screen(terminal: HeadlessTerminal): TerminalScreen {
    const buffer = terminal.buffer();
    const size = terminal.size();
    return {
      seq: this.#drawnSeq,
      size,
      // Before a wrap, the cursor is logically behind the last column, but terminals display it in the last column.
      cursor: { row: buffer.cursorY, col: Math.min(buffer.cursorX, size.cols - 1) },
      alternate: buffer.type === "alternate",
      title: terminal.title(),
      data: new TextEncoder().encode(terminal.drawScreen()),
      incomplete: this.#incomplete,
    };
  }
}

/** Resizes the terminal after everything queued is drawn. */
async function resize(terminal: HeadlessTerminal, size: TerminalSize): Promise<void> {
  const { rows, cols } = terminal.size();
  if (size.rows === rows && size.cols === cols) return;
  await terminal.write(NOTHING);
  terminal.resize(size);
}

const NOTHING = new Uint8Array(0);
