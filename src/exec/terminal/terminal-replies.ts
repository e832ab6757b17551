import type { TerminalSize } from "../exec-process.ts";
import type { HeadlessTerminal } from "./headless-terminal.ts";

/**
 * Answers to what the emulator leaves to a window: its size, colours and name. Nothing a program has printed is ever part of
 * an answer: it would be typed.
 */

/** What a letter is said to measure, since programs that ask want to draw pictures in proportion. */
const CELL = { width: 8, height: 16 };
/** Light letters on a dark ground, as most terminals have. */
const FOREGROUND = [0xe5, 0xe5, 0xe5] as const;
const BACKGROUND = [0, 0, 0] as const;
const PALETTE_SIZE = 256;

export interface ReplyDeps {
  size: () => TerminalSize;
  answer: (text: string) => void;
}

const csi = (text: string) => `\x1b[${text}`;
const osc = (text: string) => `\x1b]${text}\x1b\\`;
const dcs = (text: string) => `\x1bP${text}\x1b\\`;

export function answerQueries(terminal: HeadlessTerminal, { size, answer }: ReplyDeps): void {
  const { parser, buffer } = terminal;
  const reply = (text: string | null) => {
    if (text !== null) answer(text);
    return text !== null;
  };
  // Behind the last column the cursor waits for the next character to wrap, and is said to be in the last.
  const topOf = scrollRegionTop(terminal);
  const cursor = () => {
    const row = buffer().cursorY - (terminal.modes().originMode ? topOf() : 0);
    return `${row + 1};${Math.min(buffer().cursorX + 1, size().cols)}R`;
  };
  parser.registerCsiHandler({ final: "n" }, ([what]) => reply(what === 6 ? csi(cursor()) : null));
  parser.registerCsiHandler({ prefix: "?", final: "n" }, ([what]) =>
    reply(what === 6 ? csi(`?${cursor()}`) : null),
  );
  parser.registerCsiHandler({ final: "t" }, ([what]) => reply(windowReport(Number(what), size())));
  // Device attributes of the third kind: a serial number nobody has.
  parser.registerCsiHandler({ prefix: "=", final: "c" }, () => reply(dcs("!|00000000")));
  parser.registerCsiHandler({ prefix: ">", final: "q" }, () => reply(dcs(">|procwire")));
  // Eight bits, no parity, 38400 baud: what there is to say of a line that is none.
  parser.registerCsiHandler({ final: "x" }, ([which]) =>
    reply(csi(`${which === 1 ? 3 : 2};1;1;128;128;1;0x`)),
  );
  parser.registerEscHandler({ final: "Z" }, () => reply(csi("?1;2c")));
  parser.registerDcsHandler({ intermediates: "+", final: "q" }, () => reply(dcs("0+r")));
  parser.registerOscHandler(4, (data) => reply(paletteReport(data)));
  for (const which of [10, 11, 12])
    parser.registerOscHandler(which, (data) => reply(colorReport(which, data)));
}

/** Where the lines begin that scroll, from 0: in origin mode the cursor is counted from there. The emulator does not tell. */
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

/** Null for what only a window does, such as moving. */
function windowReport(what: number, { rows, cols }: TerminalSize): string | null {
  switch (what) {
    case 11:
      return csi("1t");
    case 13:
      return csi("3;0;0t");
    case 14:
    case 15:
      return csi(`${what - 10};${rows * CELL.height};${cols * CELL.width}t`);
    case 16:
      return csi(`6;${CELL.height};${CELL.width}t`);
    case 18:
    case 19:
      return csi(`${what - 10};${rows};${cols}t`);
    // A title is what the program chose; it would be typed into whatever reads next.
    case 20:
      return osc("L");
    case 21:
      return osc("l");
    default:
      return null;
  }
}

/** `10;?;?` asks for the foreground and what follows it in the list, one after the other. */
function colorReport(first: number, data: string): string | null {
  const asked = data.split(";").flatMap((word, index) => (word === "?" ? [first + index] : []));
  const known = asked.filter((which) => which <= 12);
  if (known.length === 0) return null;
  return known.map((which) => osc(`${which};${rgb(which === 11 ? BACKGROUND : FOREGROUND)}`)).join("");
}

/** `1;?;2;?`: pairs of a number and a question. */
function paletteReport(data: string): string | null {
  const words = data.split(";");
  const asked = words.flatMap((word, index) => (word === "?" ? Number(words[index - 1] || Number.NaN) : []));
  const known = asked.filter((number) => Number.isInteger(number) && number >= 0 && number < PALETTE_SIZE);
  if (known.length === 0) return null;
  return known.map((number) => osc(`4;${number};${rgb(paletteColor(number))}`)).join("");
}

/** As xterm has them: sixteen by name, a cube of six by six by six, and a ramp of greys. */
function paletteColor(number: number): readonly number[] {
  if (number >= 232) return Array(3).fill(8 + (number - 232) * 10);
  if (number >= 16) {
    const place = number - 16;
    return [Math.floor(place / 36), Math.floor(place / 6) % 6, place % 6].map((step) =>
      step === 0 ? 0 : 55 + step * 40,
    );
  }
  return NAMED_COLORS[number] ?? BACKGROUND;
}

const NAMED_COLORS: readonly (readonly number[])[] = [
  ...[
    [0, 0, 0],
    [0xcd, 0, 0],
    [0, 0xcd, 0],
    [0xcd, 0xcd, 0],
  ],
  ...[
    [0, 0, 0xee],
    [0xcd, 0, 0xcd],
    [0, 0xcd, 0xcd],
    [0xe5, 0xe5, 0xe5],
  ],
  ...[
    [0x7f, 0x7f, 0x7f],
    [0xff, 0, 0],
    [0, 0xff, 0],
    [0xff, 0xff, 0],
  ],
  ...[
    [0x5c, 0x5c, 0xff],
    [0xff, 0, 0xff],
    [0, 0xff, 0xff],
    [0xff, 0xff, 0xff],
  ],
];

/** Sixteen bits a channel, as X writes colours. */
function rgb(channels: readonly number[]): string {
  return `rgb:${channels.map((value) => value.toString(16).padStart(2, "0").repeat(2)).join("/")}`;
}
