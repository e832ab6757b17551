import type { Terminal } from "@xterm/headless";

/**
 * State of the emulator that its public API does not expose, such as the scroll region and the saved cursor. The
 * version of the emulator is fixed in package.json; `terminal-screen.test.ts` fails if a new version moves a member.
 */
export interface EmulatorState {
  readonly buffers: { readonly normal: BufferState; readonly alt: BufferState; readonly active: BufferState };
  readonly coreService: {
    readonly isCursorHidden: boolean;
    readonly decPrivateModes: { readonly cursorStyle?: CursorStyle; readonly cursorBlink?: boolean };
  };
  readonly coreMouseService: { readonly activeEncoding: "DEFAULT" | "SGR" | "SGR_PIXELS" };
  readonly _charsetService: { readonly glevel: number; readonly _charsets: readonly (Charset | undefined)[] };
  readonly _oscLinkService: { getLinkData(id: number): { id?: string; uri: string } | undefined };
  readonly _inputHandler: {
    /** Draws output. The emulator calls it from a timer. */
    parse(data: string | Uint8Array, promiseResult?: boolean): unknown;
    readonly _curAttrData: CellAttributes;
    /** `precedingJoinState` is not zero if the last output was a character, which a combining character can extend. */
    readonly _parser: { readonly precedingJoinState: number; reset(): void };
  };
}

export type CursorStyle = "block" | "underline" | "bar";

/** A character set: replacements of ASCII characters. Absent: ASCII itself. */
export type Charset = Readonly<Record<string, string | undefined>>;

export interface BufferState {
  readonly x: number;
  readonly y: number;
  readonly ybase: number;
  readonly scrollTop: number;
  readonly scrollBottom: number;
  readonly tabs: Readonly<Record<number, boolean | undefined>>;
  readonly savedX: number;
  readonly savedY: number;
  readonly savedCurAttrData: CellAttributes;
  readonly savedCharset: Charset | undefined;
  readonly lines: { get(row: number): LineState | undefined };
}

export interface LineState {
  readonly isWrapped: boolean;
  readonly length: number;
  loadCell(col: number, cell: CellState): CellState;
}

/** Attributes of a cell or of the cursor. The flags are not zero if set. */
export interface CellAttributes {
  readonly fg: number;
  readonly bg: number;
  /** `underlineColor` and `urlId` are zero if not set. For a cell, valid only if `hasExtendedAttrs`. */
  readonly extended: { readonly underlineColor: number; readonly urlId: number };
  hasExtendedAttrs(): number;
  isBold(): number;
  isDim(): number;
  isItalic(): number;
  isBlink(): number;
  isInverse(): number;
  isInvisible(): number;
  isStrikethrough(): number;
  isOverline(): number;
  isFgRGB(): boolean;
  isFgPalette(): boolean;
  getFgColor(): number;
  isBgRGB(): boolean;
  isBgPalette(): boolean;
  getBgColor(): number;
  getFgColorMode(): number;
  getBgColorMode(): number;
  getUnderlineStyle(): number;
}

export interface CellState extends CellAttributes {
  getChars(): string;
  getWidth(): number;
}

/** Returns the internal state of an emulator. */
export function emulatorState(terminal: Terminal): EmulatorState {
  return (terminal as unknown as { _core: EmulatorState })._core;
}

/** Returns a cell object for `loadCell`. */
export function createCell(terminal: Terminal): CellState {
  return terminal.buffer.normal.getNullCell() as unknown as CellState;
}
