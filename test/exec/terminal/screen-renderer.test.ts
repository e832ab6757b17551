import assert from "node:assert/strict";
import { readFileSync } from "node:fs";
import { describe, test } from "node:test";
import xterm, { type Terminal } from "@xterm/headless";
import type { TerminalSize } from "../../../src/exec/exec-process.ts";
import { EventLog } from "../../../src/exec/log/event-log.ts";
import { SizeHistory } from "../../../src/exec/log/size-history.ts";
import { type BufferState, createCell, emulatorState } from "../../../src/exec/terminal/emulator-state.ts";
import { ScreenRenderer } from "../../../src/exec/terminal/screen-renderer.ts";
import { Random } from "../../simulation/random.ts";
import { repetitions } from "../../support/system/repetitions.ts";

const write = (terminal: Terminal, data: string | Uint8Array) =>
  new Promise<void>((resolve) => terminal.write(data, resolve));

function createTerminal({ rows, cols }: TerminalSize): Terminal & { title?: string } {
  const terminal: Terminal & { title?: string } = new xterm.Terminal({
    rows,
    cols,
    scrollback: 0,
    allowProposedApi: true,
  });
  terminal.onTitleChange((title) => {
    terminal.title = title;
  });
  return terminal;
}

/** Everything that a user can see, and everything that decides how later output is drawn. */
function stateOf(terminal: Terminal & { title?: string }) {
  const state = emulatorState(terminal);
  const cell = createCell(terminal);
  const { active, normal, alt } = state.buffers;
  const attributes = (attr: typeof state._inputHandler._curAttrData) =>
    [
      ...[attr.isBold(), attr.isDim(), attr.isItalic(), attr.isBlink(), attr.isInverse(), attr.isInvisible()].map(
        Boolean,
      ),
      ...[Boolean(attr.isStrikethrough()), attr.getFgColorMode(), attr.getFgColor(), attr.getBgColorMode()],
      ...[attr.getBgColor(), attr.getUnderlineStyle()],
      ...(attr === cell && !cell.hasExtendedAttrs()
        ? [0, ""]
        : [attr.extended.underlineColor, state._oscLinkService.getLinkData(attr.extended.urlId)?.uri]),
    ].join(",");
  const lines = (buffer: BufferState) =>
    Array.from({ length: terminal.rows }, (_, row) => {
      const line = buffer.lines.get(buffer.ybase + row);
      if (!line) return null;
      const cells = Array.from({ length: terminal.cols }, (_, col) => {
        line.loadCell(col, cell);
        return `${cell.getChars() || " "} ${cell.getWidth()} ${attributes(cell)}`;
      });
      return { cells, isWrapped: row > 0 && line.isWrapped };
    });
  const text = (buffer: BufferState) =>
    lines(buffer).map((line) => line?.cells.map((described) => described.split(" ")[0] || " ").join(""));
  return {
    text: text(active),
    active: active === alt ? "alternate" : "normal",
    lines: lines(active),
    normal: active === alt ? lines(normal) : null,
    cursor: { x: active.x, y: active.y },
    attributes: attributes(state._inputHandler._curAttrData),
    region: [active.scrollTop, active.scrollBottom],
    modes: { ...terminal.modes, synchronizedOutputMode: false },
    isCursorHidden: state.coreService.isCursorHidden,
    encoding: state.coreMouseService.activeEncoding,
    title: terminal.title ?? "",
  };
}

interface Step {
  chunk: Uint8Array;
  /** A new size before the chunk. */
  size?: TerminalSize | undefined;
}

/** Draws the steps, takes a rendered screen at `at`, and compares both terminals there and at the end. */
async function compare(steps: readonly Step[], at: number, first: TerminalSize): Promise<void> {
  const log = new EventLog({ limits: { retainedBytes: 16 * 1024 * 1024 } });
  const sizes = new SizeHistory();
  let size = first;
  const renderer = new ScreenRenderer({ log, sizes, size: () => size });
  const whole = createTerminal(first);
  let copy: Terminal | null = null;
  for (const [index, step] of steps.entries()) {
    if (step.size) {
      for (const terminal of [whole, copy]) if (terminal) await write(terminal, "");
      if (sizes.last === null) sizes.add({ size, afterSeq: 0, atMs: 0 });
      size = step.size;
      sizes.add({ size, afterSeq: log.nextSeq - 1, atMs: 0 });
      for (const terminal of [whole, copy]) terminal?.resize(size.cols, size.rows);
    }
    // An earlier rendering, which the renderer continues.
    if (index === Math.floor(at / 2)) await renderer.render();
    log.append("pty", step.chunk);
    whole.write(step.chunk);
    copy?.write(step.chunk);
    if (index !== at) continue;
    await write(whole, "");
    const screen = await renderer.render();
    assert.ok(screen);
    assert.equal(screen.seq, log.nextSeq - 1);
    assert.deepEqual(screen.size, size);
    copy = createTerminal(size);
    // Any state: the screen must not depend on it.
    await write(
      copy,
      "\x1b[?1049h\x1b[2;3r\x1b[?6h\x1b[31mx\x1b(0\x1b[4h\x1b[?25l\x1b[?1000h\x1b[1\x1b]8;;http://a\x1b\\",
    );
    await write(copy, screen.data);
    await write(copy, screen.incomplete);
    assert.deepEqual(stateOf(copy), stateOf(whole), `screen after step ${index}`);
  }
  assert.ok(copy);
  await write(whole, "");
  await write(copy, "");
  assert.deepEqual(stateOf(copy), stateOf(whole), "screen at the end");
  renderer.dispose();
}

const encode = (text: string) => new TextEncoder().encode(text);

/** A random terminal program. */
function randomProgram(random: Random, size: TerminalSize): string {
  const number = (max: number) => 1 + random.int(0, max - 1);
  const pick = <T>(items: readonly [T, ...T[]]): T => random.pick(items);
  const position = () => `\x1b[${number(size.rows)};${number(size.cols)}H`;
  const pieces: [() => string, ...(() => string)[]] = [
    () => "word ".repeat(number(8)),
    () => "x".repeat(number(size.cols + 4)),
    () => "\r\n",
    () => "\n",
    () => pick(["中文字", "e\u0301a\u0308", "漢", "é", "┌──┐"]),
    () => "\b",
    () => "\t",
    position,
    () => `\x1b[${number(5)}${pick(["A", "B", "C", "D", "G", "d"])}`,
    () => `\x1b[${pick(["", "1", "2"])}${pick(["J", "K"])}`,
    () => `\x1b[${number(3)}${pick(["L", "M", "P", "@", "X", "S", "T", "b"])}`,
    () =>
      `\x1b[${pick(["0", "1", "2", "3", "4", "7", "9", "31", "42", "97", "104", "38;5;200", "48;2;1;2;3", "39", "49"])}m`,
    () => {
      const top = number(size.rows - 1);
      return `\x1b[${top};${top + number(size.rows - top)}r`;
    },
    () => "\x1b[r",
    () => `\x1b[?${pick(["1", "25", "45", "66", "1000", "1002", "1004", "1006", "2004"])}${pick(["h", "l"])}`,
    () => `\x1b[?1049${pick(["h", "l"])}`,
    () => `\x1b[4${pick(["h", "l", "l"])}`,
    () => pick(["\x1b7", "\x1b8", "\x1bM", "\x1bD", "\x1bE"]),
    () => pick(["\x1b(0lqqk\x1b(B", "\x1b)0\x0emqqj\x0f"]),
    () => `\x1b]2;title ${number(9)}\x07`,
    () => `\x1b]8;;http://host/${number(9)}\x1b\\link\x1b]8;;\x1b\\`,
    () => `\x1b[${number(6)} q`,
  ];
  return Array.from({ length: 1 + random.int(0, 12 - 1) }, () => pick(pieces)()).join("");
}

/** Cuts bytes anywhere, also within sequences and characters. */
function cut(random: Random, bytes: Uint8Array): Uint8Array[] {
  const chunks: Uint8Array[] = [];
  for (let at = 0; at < bytes.length; ) {
    const end = Math.min(bytes.length, at + 1 + random.int(0, 60 - 1));
    chunks.push(bytes.subarray(at, end));
    at = end;
  }
  return chunks;
}

const PROGRAMS = repetitions(200);
/** About one in a hundred programs leaves state that a resize changes and a screen does not restore, such as wrap flags. */
const RESIZED_PROGRAMS = repetitions(60);

describe("ScreenRenderer", () => {
  test("draws the same screen as the whole log, for random programs", async () => {
    for (let seed = 1; seed <= PROGRAMS; seed++) {
      const random = new Random(seed);
      const size = { rows: random.int(2, 10), cols: random.int(4, 33) };
      const program = Array.from({ length: random.int(1, 20) }, () => randomProgram(random, size)).join("");
      const steps = cut(random, encode(program)).map((chunk) => ({ chunk }));
      await compare(steps, random.int(0, steps.length - 1), size).catch((cause: unknown) => {
        throw new Error(`seed ${seed}: ${JSON.stringify(program)}`, { cause });
      });
    }
  });

  test("draws the same screen as the whole log, for random sizes", async () => {
    for (let seed = 1; seed <= RESIZED_PROGRAMS; seed++) {
      const random = new Random(seed);
      const randomSize = () => ({ rows: random.int(2, 10), cols: random.int(4, 33) });
      const first = randomSize();
      const steps = Array.from({ length: random.int(3, 20) }, () => {
        const size = random.chance(0.3) ? randomSize() : undefined;
        // A full-screen program repaints after a resize.
        const repaint = size ? `\x1b[r\x1b[H\x1b[2J${randomProgram(random, size)}` : randomProgram(random, first);
        return { size, chunk: encode(repaint) };
      });
      await compare(steps, random.int(0, steps.length - 1), first).catch((cause: unknown) => {
        throw new Error(`seed ${seed}`, { cause });
      });
    }
  });

  for (const program of ["vim", "less"]) {
    test(`draws the screens of ${program}`, async () => {
      const bytes = readFileSync(new URL(`../../fixtures/terminal/${program}.bin`, import.meta.url));
      const random = new Random(1);
      const steps = cut(random, bytes).map((chunk) => ({ chunk }));
      for (const share of [0.3, 0.7, 1])
        await compare(steps, Math.floor((steps.length - 1) * share), { rows: 24, cols: 80 });
    });
  }

  test("reports the memory of its emulator once it has drawn", async () => {
    const log = new EventLog({ limits: { retainedBytes: 1024 } });
    const renderer = new ScreenRenderer({ log, sizes: new SizeHistory(), size: () => ({ rows: 10, cols: 20 }) });
    assert.equal(renderer.bytes, 0);
    log.append("pty", encode("x"));
    await renderer.render();
    assert.equal(renderer.bytes, 128 * 1024 + 10 * 20 * 24);
    renderer.dispose();
    assert.equal(renderer.bytes, 0);
  });

  test("renders no screen of more than 200,000 cells, now or in the output to draw", async () => {
    const sizes = new SizeHistory();
    const log = new EventLog();
    let size = { rows: 400, cols: 500 };
    const renderer = new ScreenRenderer({ log, sizes, size: () => size });
    assert.deepEqual((await renderer.render())?.size, size);
    size = { rows: 401, cols: 500 };
    assert.equal(await renderer.render(), null);
    sizes.add({ size, afterSeq: 0, atMs: 0 });
    log.append("pty", encode("x"));
    size = { rows: 2, cols: 20 };
    sizes.add({ size, afterSeq: 1, atMs: 0 });
    assert.equal(await renderer.render(), null);
    renderer.dispose();
  });

  test("starts after evicted output with its modes, at the size of the first output", async () => {
    const log = new EventLog({ limits: { retainedBytes: 20 } });
    const sizes = new SizeHistory();
    let size = { rows: 10, cols: 20 };
    sizes.add({ size, afterSeq: 0, atMs: 0 });
    const renderer = new ScreenRenderer({ log, sizes, size: () => size });
    log.append("pty", encode("\x1b[5;5Hold\x1b["));
    const first = await renderer.render();
    assert.deepEqual(first?.incomplete, encode("\x1b["));
    size = { rows: 6, cols: 20 };
    sizes.add({ size, afterSeq: 1, atMs: 0 });
    log.append("pty", encode("\x1b[2;4r\x1b[?25l"));
    log.append("stderr", encode("not drawn"));
    log.append("pty", encode("new output".padEnd(20, ".")));
    const screen = await renderer.render();
    assert.ok(screen);
    const text = new TextDecoder().decode(screen.data);
    assert.deepEqual([screen.seq, screen.size, screen.incomplete.length], [4, size, 0]);
    // The cursor waits to wrap behind the last column.
    assert.deepEqual([screen.cursor, screen.alternate, screen.title], [{ row: 0, col: 19 }, false, ""]);
    assert.ok(text.includes("\x1b[2;4r") && text.includes("\x1b[?25l"), JSON.stringify(text));
    assert.ok(text.includes("new output") && !text.includes("old") && !text.includes("not drawn"));
    renderer.dispose();
  });

  test("draws underline styles and colors, wrapped rows, tab stops and a cursor that waits to wrap", async () => {
    for (const text of [
      "\x1b[4;58:5:200mpalette",
      "\x1b[4:3;58:2::1:2:3mcurly\x1b[4:2m double\x1b[4m single\x1b[24m none",
      "\x1b[3g\x1b[1;4H\x1bH\x1b[1;9H\x1bH\r\ta\tb",
      `${"x".repeat(20)}`,
      `${"x".repeat(20)}\x1b[31m`,
      ...["ab中", `${"x".repeat(18)}中`, `${"x".repeat(18)}中\x1b[31m`, "中\x1b[4h", "a\x1b[2;4H\x1b[1;3H\x1b[1m"],
      `${"x".repeat(45)}`,
      "\x1b[?7lno wrap at the end of this row",
      "\x1b[2;4r\x1b[?6h\x1b[2;3Horigin",
    ])
      await compare([{ chunk: encode(text) }, { chunk: encode("\u0301y\tz\r\n") }], 0, { rows: 5, cols: 20 });
  });

  test("does not hold the event loop while it draws a full retention", async () => {
    const log = new EventLog();
    for (let row = 0; log.totalBytes < 1024 * 1024; row++)
      log.append("pty", encode(`\x1b[${row % 24};1H\x1b[3${row % 8}m${"text ".repeat(15)}`));
    let ticks = 0;
    const timer = setInterval(() => ticks++, 0);
    const renderer = new ScreenRenderer({ log, sizes: new SizeHistory(), size: () => ({ rows: 24, cols: 80 }) });
    assert.ok(await renderer.render());
    clearInterval(timer);
    renderer.dispose();
    assert.ok(ticks >= 3, `the event loop ran ${ticks} times`);
  });
});
