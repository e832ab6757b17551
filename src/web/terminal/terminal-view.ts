import { FitAddon } from "@xterm/addon-fit";
import { SearchAddon } from "@xterm/addon-search";
import { SerializeAddon } from "@xterm/addon-serialize";
import { UnicodeGraphemesAddon } from "@xterm/addon-unicode-graphemes";
import { WebLinksAddon } from "@xterm/addon-web-links";
import { Terminal } from "@xterm/xterm";
import type { TerminalScreen, TerminalSize } from "../../exec/exec-process.ts";
import { MIN_CONTRAST, terminalTheme } from "./terminal-theme.ts";

export interface TerminalViewEvents {
  /** Keys, pastes and mouse events, as bytes for the process. */
  onInput(bytes: Uint8Array): void;
  /** The user pressed ctrl-], the only key that the process does not get. */
  onLeave(): void;
  /** The available space on the page changed. */
  onAvailableSize(): void;
  /** The user scrolls up at the first line of the scrollback. */
  onTop(): void;
}

/** Maximum bytes queued for drawing before the page stops reading, so that bulk output cannot exhaust its memory. */
const MAX_UNDRAWN_BYTES = 512 * 1024;
const SCROLLBACK_LINES = 10_000;
const FONT_PIXELS = 14;
/** Minimum font size; a larger terminal scrolls instead. */
const MIN_FONT_PIXELS = 5;
/** Difference of the font sizes that are tried: half a pixel is much for the text of a phone. */
const FONT_STEP_PIXELS = 0.5;

/** Device attributes, status and cursor reports, mode reports. */
const QUERIES = [
  ...[{ final: "c" }, { prefix: ">", final: "c" }, { prefix: "=", final: "c" }],
  ...[{ final: "n" }, { prefix: "?", final: "n" }],
  ...[
    { intermediates: "$", final: "p" },
    { prefix: "?", intermediates: "$", final: "p" },
  ],
];
/** OSC codes that set and query the palette, foreground, background and cursor color. */
const COLORS = [4, 10, 11, 12];

/**
 * A terminal on the page. Draws output asynchronously. It ignores terminal queries: the terminal responder of the server
 * replies to them, and a second reply would be wrong.
 */
export class TerminalView {
  readonly #terminal: Terminal;
  readonly #fit = new FitAddon();
  readonly #search = new SearchAddon();
  readonly #serialize = new SerializeAddon();
  readonly #watcher: ResizeObserver;
  readonly #element: HTMLElement;
  readonly #darkMode = matchMedia("(prefers-color-scheme: dark)");
  #undrawn = 0;
  #size: TerminalSize;
  #isScaled = true;

  constructor(element: HTMLElement, events: TerminalViewEvents) {
    this.#element = element;
    this.#terminal = new Terminal({
      allowProposedApi: true,
      scrollback: SCROLLBACK_LINES,
      fontFamily: "ui-monospace, monospace",
      fontSize: FONT_PIXELS,
      cursorBlink: !matchMedia("(prefers-reduced-motion: reduce)").matches,
      screenReaderMode: true,
      minimumContrastRatio: MIN_CONTRAST,
    });
    this.#applyTheme();
    this.#darkMode.addEventListener("change", this.#applyTheme);
    this.#terminal.loadAddon(this.#fit);
    this.#terminal.loadAddon(this.#search);
    this.#terminal.loadAddon(this.#serialize);
    this.#terminal.loadAddon(new UnicodeGraphemesAddon());
    this.#terminal.loadAddon(new WebLinksAddon(openLink));
    // Programs must not write to the clipboard.
    this.#terminal.parser.registerOscHandler(52, () => true);
    for (const query of QUERIES) this.#terminal.parser.registerCsiHandler(query, () => true);
    for (const color of COLORS) this.#terminal.parser.registerOscHandler(color, (data) => data.includes("?"));
    this.#terminal.attachCustomKeyEventHandler((event) => {
      // For viewers, Tab moves the focus on the page.
      if (event.key === "Tab") return !this.#isScaled;
      if (!event.ctrlKey || event.key !== "]") return true;
      event.preventDefault();
      if (event.type === "keydown") events.onLeave();
      return false;
    });
    this.#terminal.open(element);
    this.#terminal.onData((text) => events.onInput(new TextEncoder().encode(text)));
    this.#terminal.onBinary((text) => events.onInput(Uint8Array.from(text, (letter) => letter.charCodeAt(0))));
    this.#size = { rows: this.#terminal.rows, cols: this.#terminal.cols };
    this.#terminal.attachCustomWheelEventHandler((event) => {
      const { active } = this.#terminal.buffer;
      if (event.deltaY < 0 && active.type === "normal" && active.viewportY === 0) events.onTop();
      return true;
    });
    this.#watcher = new ResizeObserver(() => {
      this.#scale();
      events.onAvailableSize();
    });
    this.#watcher.observe(element);
  }

  readonly #applyTheme = () => {
    this.#terminal.options.theme = terminalTheme(this.#darkMode.matches);
  };

  /** Driver mode: normal font size; the terminal fills the frame. Returns the resulting size, or null while hidden. */
  useOwnSize(): TerminalSize | null {
    this.#isScaled = false;
    this.#element.classList.remove("smaller");
    this.#terminal.options.fontSize = FONT_PIXELS;
    return this.#measure();
  }

  /** Viewer mode: the terminal has the size of the driver; the font shrinks until it fits the frame. */
  useDriverSize(): void {
    this.#isScaled = true;
    this.#scale();
  }

  #measure(): TerminalSize | null {
    const proposed = this.#fit.proposeDimensions();
    return proposed && proposed.rows > 0 && proposed.cols > 0 ? { rows: proposed.rows, cols: proposed.cols } : null;
  }

  /** Sets the terminal size for output that follows. Output queued before is drawn at the old size. */
  resize(size: TerminalSize): void {
    if (size.rows === this.#size.rows && size.cols === this.#size.cols) return;
    this.#size = size;
    this.#terminal.write("", () => {
      this.#terminal.resize(size.cols, size.rows);
      this.#scale();
    });
  }

  #scale(): void {
    this.#scaleFont();
    // A terminal that is smaller than its frame gets an outline.
    const available = this.#measure();
    const { rows, cols } = this.#terminal;
    const isSmaller = available !== null && (available.rows > rows || available.cols > cols);
    this.#element.classList.toggle("smaller", this.#isScaled && isSmaller);
  }

  #scaleFont(): void {
    if (!this.#isScaled) return;
    const { rows, cols, options } = this.#terminal;
    const fits = () => {
      const available = this.#measure();
      return available === null || (available.rows >= rows && available.cols >= cols);
    };
    const before = options.fontSize;
    // Try each size, because the width of a letter is not proportional to its height.
    let pixels = FONT_PIXELS;
    for (; pixels > MIN_FONT_PIXELS; pixels -= FONT_STEP_PIXELS) {
      options.fontSize = pixels;
      if (fits()) break;
    }
    if (options.fontSize !== pixels) options.fontSize = pixels;
    if (before !== pixels) this.#terminal.refresh(0, rows - 1);
  }

  /** Draws output. Resolves when more is accepted: at once, or when this chunk is drawn. */
  draw(bytes: Uint8Array): Promise<void> {
    this.#undrawn += bytes.length;
    return new Promise((resolve) => {
      const isFull = this.#undrawn > MAX_UNDRAWN_BYTES;
      this.#terminal.write(bytes, () => {
        this.#undrawn -= bytes.length;
        if (isFull) resolve();
      });
      if (!isFull) resolve();
    });
  }

  /** Draws a rendered screen. Lines of the former screen stay in the scrollback. */
  async show({ size, data, incomplete }: TerminalScreen): Promise<void> {
    await this.#drawn("");
    const { active } = this.#terminal.buffer;
    const isUsed = active.type === "normal" && (active.cursorY > 0 || active.cursorX > 0);
    // Line feeds in the last row move the used rows into the scrollback.
    if (isUsed) this.#terminal.write(`\x18\x1b[r\x1b[${this.#terminal.rows};1H${"\n".repeat(active.cursorY + 1)}`);
    this.resize(size);
    this.#terminal.write(data);
    await this.#drawn(incomplete);
  }

  /** Resolves when the output and everything before it is drawn. */
  #drawn(output: string | Uint8Array): Promise<void> {
    return new Promise((resolve) => this.#terminal.write(output, resolve));
  }

  /** Clears the screen and the scrollback. */
  reset(): void {
    this.#terminal.write("", () => this.#terminal.reset());
  }

  /** Writes a notice in place of missing output. Cancels an incomplete escape sequence and resets colors. */
  gap(text: string): void {
    this.#terminal.write(`\x18\x1b[0m\r\n\x1b[7m ${text} \x1b[0m\r\n`);
  }

  find(text: string, direction: "next" | "previous"): boolean {
    return direction === "next" ? this.#search.findNext(text) : this.#search.findPrevious(text);
  }

  /** Returns the screen and its scrollback with escape sequences. */
  contents(): string {
    return this.#serialize.serialize();
  }

  focus(): void {
    this.#terminal.focus();
  }

  dispose(): void {
    this.#watcher.disconnect();
    this.#darkMode.removeEventListener("change", this.#applyTheme);
    this.#terminal.dispose();
  }
}

/** Opens http and https links in a new tab without access to this page. */
function openLink(event: MouseEvent, text: string): void {
  event.preventDefault();
  const url = URL.parse(text);
  if (url && (url.protocol === "https:" || url.protocol === "http:")) open(url, "_blank", "noopener,noreferrer");
}
