import assert from "node:assert/strict";
import { describe, test } from "node:test";
import { createHeadlessTerminal } from "../../../src/exec/terminal/headless-terminal.ts";
import type { Viewport } from "../../../src/exec/terminal/terminal-screen.ts";

async function screenOf(output: string): Promise<string> {
  const terminal = await createHeadlessTerminal({ rows: 4, cols: 40 });
  await terminal.write(Buffer.from(output));
  const screen = terminal.drawScreen();
  terminal.dispose();
  return Buffer.from(screen).toString();
}

describe("drawScreen", () => {
  test("sets tab stops only if they differ from every eighth column", async () => {
    assert.ok(!(await screenOf("a\tb")).includes("\x1b[3g"));
    const screen = await screenOf("\x1b[3g\x1b[1;6H\x1bH\x1b[1;20H\x1bH");
    assert.ok(screen.includes("\x1b[3g\x1b[1;6H\x1bH\x1b[1;20H\x1bH"), JSON.stringify(screen));
  });
});

describe("an empty cell of drawScreen", () => {
  test("is erased if it has only a background, and is a blank if it has other attributes", async () => {
    const erased = await screenOf("\x1b[41m\x1b[2X");
    assert.ok(erased.includes("\x1b[1;1H\x1b[0;41m\x1b[X\x1b[1;2H\x1b[X"), JSON.stringify(erased));
    // The second half of the wide character is replaced, so its first half is empty.
    const cut = await screenOf("😀\x1b[31m\x1b[1;2Hx");
    assert.ok(cut.includes("\x1b[1;1H\x1b[0;31m x"), JSON.stringify(cut));
  });
});

describe("a wrapped row of drawScreen", () => {
  test("stays wrapped without a blank in an erased last or first column", async () => {
    const screen = await screenOf(`${"x".repeat(45)}\x1b[1;40H\x1b[K\x1b[2;1H\x1b[1K`);
    for (const drawn of ["\x1b[1;40H  ", "\x1b[1;1H\x1b[0m\x1b[40X", "\x1b[2;1H\x1b[0m\x1b[40X"])
      assert.ok(screen.includes(drawn), JSON.stringify(screen));
  });
});

describe("the saved cursor of drawScreen", () => {
  test("waits to wrap after the last column without a blank in an erased row", async () => {
    const screen = await screenOf("\x1b[2;40Hx\x1b7\x1b[2K");
    assert.ok(screen.includes("\x1b[2;40H "), JSON.stringify(screen));
    assert.ok(screen.includes("\x1b[2;1H\x1b[0m\x1b[40X"), JSON.stringify(screen));
    const inside = await screenOf("\x1b[2;39Hx\x1b7\x1b[2K");
    assert.ok(inside.includes("\x1b[2;40H") && !inside.includes("\x1b[40X"), JSON.stringify(inside));
  });
});

describe("drawRows", () => {
  /** Draws the viewport on another terminal that is full of other characters. */
  async function drawn(output: string, viewport: Viewport) {
    const terminal = await createHeadlessTerminal({ rows: 4, cols: 20 });
    await terminal.write(Buffer.from(output));
    const rows = terminal.drawRows(viewport);
    terminal.dispose();
    const copy = await createHeadlessTerminal({ rows: viewport.rows, cols: viewport.cols });
    await copy.write(Buffer.from(`\x1b[41m${"#".repeat(viewport.rows * viewport.cols)}`));
    for (const row of rows) await copy.write(Buffer.from(row));
    const lines = rows.map((_, row) => copy.buffer().getLine(row)?.translateToString(true));
    copy.dispose();
    return { rows, lines };
  }

  test("draws a part of the screen, and wide characters at its edges as blanks", async () => {
    const output = "abcdef\r\n12😀56\r\n\x1b[31mred\x1b[0m  x";
    const lines = async (viewport: Viewport) => (await drawn(output, viewport)).lines;
    assert.deepEqual(await lines({ top: 0, left: 0, rows: 4, cols: 20 }), ["abcdef", "12😀56", "red  x", ""]);
    assert.deepEqual(await lines({ top: 0, left: 0, rows: 2, cols: 3 }), ["abc", "12 "]);
    assert.deepEqual(await lines({ top: 0, left: 0, rows: 2, cols: 4 }), ["abcd", "12😀"]);
    assert.deepEqual(await lines({ top: 1, left: 3, rows: 2, cols: 3 }), [" 56", "  x"]);
    assert.deepEqual(await lines({ top: 1, left: 2, rows: 1, cols: 5 }), ["😀56"]);
    assert.deepEqual(await lines({ top: 3, left: 18, rows: 3, cols: 5 }), ["", "", ""]);
  });

  test("ends a link with its row, and sets attributes only where they change", async () => {
    const link = "\x1b]8;;http://host/\x1b\\";
    const { rows } = await drawn(`${link}link`, { top: 0, left: 0, rows: 2, cols: 6 });
    const [first = "", second] = rows;
    assert.ok(first.includes(`${link}l`) && first.endsWith("\x1b]8;;\x1b\\"), JSON.stringify(first));
    assert.equal(second, "\x1b[2;1H\x1b[0m\x1b[K");
    const colors = await drawn("a\x1b[1mbc\x1b[0md", { top: 0, left: 1, rows: 1, cols: 3 });
    assert.deepEqual(colors.rows, ["\x1b[1;1H\x1b[0m\x1b[K\x1b[1;1H\x1b[0;1mbc\x1b[0md"]);
  });
});

describe("isCursorHidden", () => {
  test("reports whether the program has hidden the cursor", async () => {
    const terminal = await createHeadlessTerminal({ rows: 2, cols: 9 });
    assert.equal(terminal.isCursorHidden(), false);
    await terminal.write(Buffer.from("\x1b[?25l"));
    assert.equal(terminal.isCursorHidden(), true);
    terminal.dispose();
  });
});
