import type { Terminal } from "@xterm/headless";
import type { TerminalSize } from "../exec-process.ts";
import type { BufferState, CellAttributes, CellState, Charset, EmulatorState } from "./emulator-state.ts";
import { createCell, emulatorState } from "./emulator-state.ts";

const CSI = "\x1b[";
/** Color mode of the 16 named colors in the attributes of the emulator. */
const NAMED_COLOR = 0x1000000;
/** Bits of the kind of a color; all are set for an RGB color. */
const COLOR_KIND = 0x3000000;
/** Flag in the foreground attributes. */
const UNDERLINE = 0x10000000;
/** Position of the flags in the attributes, above the color. */
const FLAGS_SHIFT = 26;
const TAB_WIDTH = 8;
/** Ends a link. */
const END_LINK = "\x1b]8;;\x1b\\";

/** Resets modes, colors, scroll region and screen, so that the state of the receiving terminal does not matter. */
const RESET_SCREEN = [
  ...["\x18", `${CSI}!p`, `${CSI}?1047l`, `${CSI}?6l`, `${CSI}4l`, `${CSI}r`, "\x1b(B\x1b)B\x0f", `${CSI}0m`, END_LINK],
  // Not every terminal resets these with the soft reset above.
  ...[1, 9, 45, 66, 1000, 1002, 1003, 1004, 1006, 1016, 2004].map((mode) => `${CSI}?${mode}l`),
  ...[`${CSI}?7h`, `${CSI}?25h`, `${CSI}0 q`, `${CSI}H`, `${CSI}2J`],
].join("");

/**
 * Returns output that draws the screen of an emulator on another terminal of the same size: both screens, colors,
 * cursor, modes, scroll region, tab stops, saved cursor and title. Scrollback is not part of it.
 */
export function drawScreen(terminal: Terminal, title: string): string {
  const state = emulatorState(terminal);
  const painter = new Painter(terminal, state);
  const { normal, alt, active } = state.buffers;
  let output = RESET_SCREEN + painter.buffer(normal);
  if (active === alt) output += `${CSI}0m${CSI}?1047h${CSI}H${painter.buffer(alt)}`;
  // `\p{Cc}`: the title may contain C1 controls.
  if (title !== "") output += `\x1b]2;${title.replace(/\p{Cc}/gu, "")}\x1b\\`;
  return output + modes(terminal, state) + painter.cursor(active);
}

/** A part of a screen. */
export interface Viewport extends TerminalSize {
  /** First row and column of the screen, zero-based. */
  top: number;
  left: number;
}

/** Returns one output per row that draws a part of the active screen at the top left of another terminal. */
export function drawRows(terminal: Terminal, viewport: Viewport): string[] {
  const state = emulatorState(terminal);
  return Array.from({ length: viewport.rows }, (_, row) => new Painter(terminal, state, viewport).row(row));
}

/** Reports whether the program has hidden the cursor. */
export function isCursorHidden(terminal: Terminal): boolean {
  return emulatorState(terminal).coreService.isCursorHidden;
}

/** Modes that neither move the cursor nor change how characters are printed. */
function modes(terminal: Terminal, { coreService, coreMouseService }: EmulatorState): string {
  const { mouseTrackingMode, ...flags } = terminal.modes;
  const tracking = { none: null, x10: 9, vt200: 1000, drag: 1002, any: 1003 }[mouseTrackingMode];
  const encoding = { DEFAULT: null, SGR: 1006, SGR_PIXELS: 1016 }[coreMouseService.activeEncoding];
  const { cursorStyle, cursorBlink } = coreService.decPrivateModes;
  const enabled = [
    flags.applicationCursorKeysMode ? 1 : null,
    flags.applicationKeypadMode ? 66 : null,
    flags.bracketedPasteMode ? 2004 : null,
    flags.reverseWraparoundMode ? 45 : null,
    flags.sendFocusMode ? 1004 : null,
    tracking,
    encoding,
  ].filter((mode) => mode !== null);
  const style = cursorStyle && { block: 2, underline: 4, bar: 6 }[cursorStyle] - (cursorBlink ? 1 : 0);
  return [
    ...enabled.map((mode) => `${CSI}?${mode}h`),
    style === undefined ? "" : `${CSI}${style} q`,
    coreService.isCursorHidden ? `${CSI}?25l` : "",
  ].join("");
}

/** Draws the buffers of one emulator. */
class Painter {
  readonly #terminal: Terminal;
  readonly #state: EmulatorState;
  readonly #size: Viewport;
  readonly #cell: CellState;
  readonly #nextCell: CellState;
  /** Sequence that set the link of the characters that follow. */
  #link = END_LINK;

  constructor(
    terminal: Terminal,
    state: EmulatorState,
    viewport: Viewport = { top: 0, left: 0, rows: terminal.rows, cols: terminal.cols },
  ) {
    this.#terminal = terminal;
    this.#state = state;
    this.#size = viewport;
    this.#cell = createCell(terminal);
    this.#nextCell = createCell(terminal);
  }

  /** Returns the output that draws one row of the viewport over any other content. */
  row(row: number): string {
    const output = `${CSI}${row + 1};1H${CSI}0m${CSI}K${this.#row(this.#state.buffers.active, row, false)}`;
    return this.#link === END_LINK ? output : output + END_LINK;
  }

  /** Returns the output that draws a buffer on an empty screen. */
  buffer(buffer: BufferState): string {
    const { rows } = this.#size;
    const used = new Set<number>();
    const wraps = this.#wraps(buffer, used);
    const saved = this.#savedCursor(buffer, used);
    const cells = Array.from({ length: rows }, (_, row) => this.#row(buffer, row, used.has(row))).join("");
    const hasRegion = buffer.scrollTop !== 0 || buffer.scrollBottom !== rows - 1;
    const region = hasRegion ? `${CSI}${buffer.scrollTop + 1};${buffer.scrollBottom + 1}r` : "";
    return wraps + saved + cells + this.#tabs(buffer) + region;
  }

  /**
   * Returns the modes that change how characters are printed, and the cursor. They come last: setting the scroll region
   * and origin mode moves the cursor.
   */
  cursor({ x, y, ybase, scrollTop, lines }: BufferState): string {
    const { cols } = this.#size;
    const { originMode, insertMode, wraparoundMode } = this.#terminal.modes;
    const { _inputHandler, _charsetService } = this.#state;
    const attributes = () => this.#attributes(_inputHandler._curAttrData);
    const sets = _charsetService._charsets.map((set, index) => designateCharset(index, set)).join("");
    const charsets = sets + (SHIFTS[_charsetService.glevel] ?? "");
    const prefix = (originMode ? `${CSI}?6h` : "") + (wraparoundMode ? "" : `${CSI}?7l`);
    const line = lines.get(ybase + y);
    const moveTo = (col: number) => `${CSI}${y - (originMode ? scrollTop : 0) + 1};${col + 1}H`;
    const insert = insertMode ? `${CSI}4h` : "";
    // A combining character may follow, and a cursor after the last column waits to wrap: print the last character again.
    const canJoin = _inputHandler._parser.precedingJoinState !== 0 && !insertMode;
    if (x === 0 || !line || (!canJoin && x < cols)) return prefix + moveTo(x) + attributes() + charsets + insert;
    let last = Math.min(x, cols) - 1;
    if (line.loadCell(last, this.#cell).getWidth() === 0 && last > 0) line.loadCell(--last, this.#cell);
    const chars = this.#cell.getChars();
    if (canJoin) {
      const repeated = (chars === "" ? moveTo(Math.min(x, cols - 1)) : moveTo(last)) + attributes() + chars;
      return prefix + charsets + repeated;
    }
    return prefix + moveTo(last) + this.#attributes(this.#cell) + (chars || " ") + attributes() + charsets + insert;
  }

  /** Marks rows that continue the row above. Only a character that wraps does that; `used` gets the rows it is in. */
  #wraps({ lines, ybase }: BufferState, used: Set<number>): string {
    const { rows, cols } = this.#size;
    let output = "";
    for (let row = 1; row < rows; row++) {
      if (!lines.get(ybase + row)?.isWrapped) continue;
      output += `${CSI}${row};${cols}H  `;
      used.add(row - 1).add(row);
    }
    return output;
  }

  #savedCursor({ savedX, savedY, ybase, savedCurAttrData, savedCharset }: BufferState, used: Set<number>): string {
    const { rows, cols } = this.#size;
    const row = Math.min(Math.max(savedY - ybase, 0), rows - 1);
    const set = designateCharset(0, savedCharset);
    // A cursor after the last column waits to wrap; only printing moves it there.
    const isAfterLast = savedX >= cols;
    if (isAfterLast) used.add(row);
    const position = isAfterLast ? `${CSI}${row + 1};${cols}H ` : `${CSI}${row + 1};${savedX + 1}H`;
    // The emulator saves only the flag of an underline.
    const underline = savedCurAttrData.fg & UNDERLINE ? `${CSI}4m` : "";
    return `${set}${position}${this.#attributes(savedCurAttrData)}${underline}\x1b7\x1b(B`;
  }

  #tabs({ tabs }: BufferState): string {
    const { cols } = this.#size;
    const columns = Array.from({ length: cols }, (_, col) => col);
    if (columns.every((col) => (tabs[col] ?? false) === (col % TAB_WIDTH === 0))) return "";
    return `${CSI}3g${columns.flatMap((col) => (tabs[col] ? `${CSI}1;${col + 1}H\x1bH` : [])).join("")}`;
  }

  /** Returns the cells of a row that are not empty. `isUsed`: the row has characters already. */
  #row({ lines, ybase }: BufferState, row: number, isUsed: boolean): string {
    const { top, left, cols: viewCols } = this.#size;
    const line = lines.get(ybase + top + row);
    const cols = left + viewCols;
    let output = isUsed ? `${CSI}${row + 1};1H${CSI}0m${CSI}${cols}X` : "";
    if (!line) return output;
    let [isMoved, style] = [true, ""];
    for (let col = left; col < Math.min(cols, line.length); col++) {
      const cell = line.loadCell(col, this.#cell);
      const width = cell.getWidth();
      // The second half of a wide character.
      if (width === 0) continue;
      // Without automatic wrapping, a character can replace the second half of a wide one.
      const isCut = width === 2 && (col + 1 >= cols || line.loadCell(col + 1, this.#nextCell).getWidth() !== 0);
      const chars = isCut ? " " : cell.getChars();
      if (chars === "" && cell.fg === 0 && cell.bg === 0) {
        isMoved = true;
        continue;
      }
      if (isMoved) output += `${CSI}${row + 1};${col - left + 1}H`;
      const attributes = this.#attributes(cell);
      if (attributes !== style) output += attributes;
      style = attributes;
      // An erased cell has only a background. Other empty cells show their attributes like a blank.
      isMoved = chars === "" && cell.fg === 0 && cell.bg >>> FLAGS_SHIFT === 0;
      output += isMoved ? `${CSI}X` : chars || " ";
    }
    return output;
  }

  /** Returns the sequences that set exactly these attributes, whatever the attributes before are. */
  #attributes(cell: CellAttributes): string {
    const { urlId, underlineColor } = cell === this.#cell && !cell.hasExtendedAttrs() ? NOT_EXTENDED : cell.extended;
    const link = urlId === 0 ? undefined : this.#state._oscLinkService.getLinkData(urlId);
    const url = link ? `\x1b]8;${link.id === undefined ? "" : `id=${link.id}`};${link.uri}\x1b\\` : END_LINK;
    const isSameLink = url === this.#link;
    this.#link = url;
    const rendition = graphicRendition(cell, { isLink: link !== undefined, hasColor: underlineColor !== 0 });
    return isSameLink ? rendition : rendition + url;
  }
}

/** Selects G0 to G3. */
const SHIFTS = ["\x0f", "\x0e", "\x1bn", "\x1bo"];

const NOT_EXTENDED = { urlId: 0, underlineColor: 0 };

/** `hasColor`: the color of the underline differs from the foreground. */
function graphicRendition(cell: CellAttributes, { isLink, hasColor }: { isLink: boolean; hasColor: boolean }): string {
  const style = cell.getUnderlineStyle();
  const underline = isLink && style !== 0 ? 1 : style;
  const codes = [
    ...(cell.isBold() ? [1] : []),
    ...(cell.isDim() ? [2] : []),
    ...(cell.isItalic() ? [3] : []),
    ...(underline === 0 ? [] : [underline === 1 ? 4 : `4:${underline}`]),
    ...(cell.isBlink() ? [5] : []),
    ...(cell.isInverse() ? [7] : []),
    ...(cell.isInvisible() ? [8] : []),
    ...(cell.isStrikethrough() ? [9] : []),
    ...(cell.isOverline() ? [53] : []),
    ...colorCodes(30, cell.getFgColor(), {
      isRgb: cell.isFgRGB(),
      isPalette: cell.isFgPalette(),
      isNamed: cell.getFgColorMode() === NAMED_COLOR,
    }),
    ...colorCodes(40, cell.getBgColor(), {
      isRgb: cell.isBgRGB(),
      isPalette: cell.isBgPalette(),
      isNamed: cell.getBgColorMode() === NAMED_COLOR,
    }),
    ...(hasColor ? underlineColorCodes(cell.extended.underlineColor) : []),
  ];
  return `${CSI}${[0, ...codes].join(";")}m`;
}

/** The emulator stores the color with its kind in the upper byte. */
function underlineColorCodes(color: number): (number | string)[] {
  const isRgb = (color & COLOR_KIND) === COLOR_KIND;
  return colorCodes(50, isRgb ? color & 0xffffff : color & 0xff, { isRgb, isPalette: !isRgb, isNamed: false });
}

/** `base`: 30 for the foreground, 40 for the background, 50 for the underline. */
function colorCodes(
  base: number,
  color: number,
  kind: { isRgb: boolean; isPalette: boolean; isNamed: boolean },
): (number | string)[] {
  if (kind.isNamed) return [color < 8 ? base + color : base + 52 + color];
  // Some terminals know only semicolons in text colors, and only colons in underline colors.
  const separator = base === 50 ? ":" : ";";
  const rgb = [(color >> 16) & 0xff, (color >> 8) & 0xff, color & 0xff];
  if (kind.isRgb) return [[base + 8, 2, ...(base === 50 ? [""] : []), ...rgb].join(separator)];
  return kind.isPalette ? [[base + 8, 5, color].join(separator)] : [];
}

/** Returns the sequence that designates a character set; only line drawing and the British set are recognized. */
function designateCharset(index: number, set: Charset | undefined): string {
  const final = !set ? "B" : set.q === "─" ? "0" : set["#"] === "£" ? "A" : "B";
  return `\x1b${"()*+"[index] ?? "("}${final}`;
}
