import type { TerminalSize } from "../exec-process.ts";
import type { HeadlessTerminal } from "./headless-terminal.ts";

/**
 * Replies to queries that the emulator does not handle: window size, colors and name. Replies never contain text that
 * a process printed, because a reply is input.
 */

/** Cell size in pixels that replies report; image programs need the ratio. */
const CELL = { width: 8, height: 16 };
/** Light text on a dark background, as in most terminals. */
const FOREGROUND = [0xe5, 0xe5, 0xe5] as const;
const BACKGROUND = [0, 0, 0] as const;
const PALETTE_SIZE = 256;

export interface ReplyDeps {
  size: () => TerminalSize;
  reply: (text: string) => void;
}

const csi = (text: string) => `\x1b[${text}`;
const osc = (text: string) => `\x1b]${text}\x1b\\`;
const dcs = (text: string) => `\x1bP${text}\x1b\\`;

export function attachReplies(terminal: HeadlessTerminal, { size, reply: send }: ReplyDeps): void {
  const { parser, buffer } = terminal;
  const reply = (text: string | null) => {
    if (text !== null) send(text);
    return text !== null;
  };
  const scrollTop = scrollRegionTop(terminal);
  const cursor = () => {
    const row = buffer().cursorY - (terminal.modes().originMode ? scrollTop() : 0);
    // After the last column the cursor waits to wrap, and reports the last column.
    return `${row + 1};${Math.min(buffer().cursorX + 1, size().cols)}R`;
  };
  parser.registerCsiHandler({ final: "n" }, ([code]) => reply(code === 6 ? csi(cursor()) : null));
  parser.registerCsiHandler({ prefix: "?", final: "n" }, ([code]) => reply(code === 6 ? csi(`?${cursor()}`) : null));
  parser.registerCsiHandler({ final: "t" }, ([operation]) => reply(windowReport(Number(operation), size())));
  // Tertiary device attributes: a zero serial number.
  parser.registerCsiHandler({ prefix: "=", final: "c" }, () => reply(dcs("!|00000000")));
  parser.registerCsiHandler({ prefix: ">", final: "q" }, () => reply(dcs(">|procwire")));
  // Terminal parameters: eight bits, no parity, 38400 baud. A pseudo-terminal has no line, so these are fixed.
  parser.registerCsiHandler({ final: "x" }, ([which]) => reply(csi(`${which === 1 ? 3 : 2};1;1;128;128;1;0x`)));
  parser.registerEscHandler({ final: "Z" }, () => reply(csi("?1;2c")));
  parser.registerDcsHandler({ intermediates: "+", final: "q" }, () => reply(dcs("0+r")));
  parser.registerOscHandler(4, (data) => reply(paletteReport(data)));
  for (const which of [10, 11, 12]) parser.registerOscHandler(which, (data) => reply(colorReport(which, data)));
}

/**
 * Tracks the first row of the scroll region, from 0: in origin mode the cursor counts from it. The emulator does not
 * expose it.
 */
function scrollRegionTop({ parser }: HeadlessTerminal): () => number {
  let top = 0;
  const setTop = (row: number) => {
    top = row;
    return false;
  };
  parser.registerCsiHandler({ final: "r" }, ([first]) => setTop(Math.max(0, Number(first) - 1)));
  parser.registerCsiHandler({ intermediates: "!", final: "p" }, () => setTop(0));
  parser.registerEscHandler({ final: "c" }, () => setTop(0));
  return () => top;
}

/** Returns null for window operations that are not queries, such as moving. */
function windowReport(operation: number, { rows, cols }: TerminalSize): string | null {
  switch (operation) {
    case 11:
      return csi("1t");
    case 13:
      return csi("3;0;0t");
    case 14:
    case 15:
      return csi(`${operation - 10};${rows * CELL.height};${cols * CELL.width}t`);
    case 16:
      return csi(`6;${CELL.height};${CELL.width}t`);
    case 18:
    case 19:
      return csi(`${operation - 10};${rows};${cols}t`);
    // The title is empty: the process chose it, and the reply would be input to the next reader.
    case 20:
      return osc("L");
    case 21:
      return osc("l");
    default:
      return null;
  }
}

/** Replies to `10;?;?`: the foreground and the colors that follow it in the list. */
function colorReport(first: number, data: string): string | null {
  const queried = data.split(";").flatMap((word, index) => (word === "?" ? [first + index] : []));
  const known = queried.filter((which) => which <= 12);
  if (known.length === 0) return null;
  return known.map((which) => osc(`${which};${rgb(which === 11 ? BACKGROUND : FOREGROUND)}`)).join("");
}

/** Replies to `1;?;2;?`: pairs of a color number and a question mark. */
function paletteReport(data: string): string | null {
  const words = data.split(";");
  const queried = words.flatMap((word, index) => (word === "?" && words[index - 1] ? Number(words[index - 1]) : []));
  const known = queried.filter((number) => Number.isInteger(number) && number >= 0 && number < PALETTE_SIZE);
  if (known.length === 0) return null;
  return known.map((number) => osc(`4;${number};${rgb(paletteColor(number))}`)).join("");
}

/** Returns the color as in xterm: sixteen named colors, a cube of six by six by six, and a ramp of greys. */
function paletteColor(number: number): readonly number[] {
  if (number >= 232) return Array(3).fill(8 + (number - 232) * 10);
  if (number >= 16) {
    const index = number - 16;
    return [Math.floor(index / 36), Math.floor(index / 6) % 6, index % 6].map((step) =>
      step === 0 ? 0 : 55 + step * 40,
    );
  }
  const color = NAMED_COLORS[number] ?? 0;
  return [color >> 16, (color >> 8) & 0xff, color & 0xff];
}

const NAMED_COLORS = [
  0x000000, 0xcd0000, 0x00cd00, 0xcdcd00, 0x0000ee, 0xcd00cd, 0x00cdcd, 0xe5e5e5, 0x7f7f7f, 0xff0000, 0x00ff00,
  0xffff00, 0x5c5cff, 0xff00ff, 0x00ffff, 0xffffff,
];

/** Formats a color with sixteen bits per channel, as X does. */
function rgb(channels: readonly number[]): string {
  return `rgb:${channels.map((value) => value.toString(16).padStart(2, "0").repeat(2)).join("/")}`;
}
