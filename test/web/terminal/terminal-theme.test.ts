import assert from "node:assert/strict";
import { readFileSync } from "node:fs";
import { test } from "node:test";
import { MIN_CONTRAST, terminalTheme } from "../../../src/web/terminal/terminal-theme.ts";
import { contrast } from "../../support/web/contrast.ts";

test("every ANSI color is readable on the background of the terminal", () => {
  for (const isDark of [false, true]) {
    const { background = "", cursorAccent, selectionBackground = "", ...colors } = terminalTheme(isDark);
    const low = Object.entries(colors).filter(([, color]) => contrast(color, background) < MIN_CONTRAST);
    // Programs use black as a background; xterm.js lightens it where it is text.
    assert.deepEqual(
      low.map(([name]) => name),
      isDark ? ["black"] : [],
    );
    assert.ok(contrast(colors.foreground ?? "", selectionBackground) >= MIN_CONTRAST);
    assert.equal(cursorAccent, background);
  }
});

test("the page around the terminal has the background of the terminal", () => {
  const token = /--color-terminal: light-dark\((#\w+), (#\w+)\)/.exec(readFileSync("src/web/tokens.css", "utf8"));
  assert.deepEqual(token?.slice(1), [terminalTheme(false).background, terminalTheme(true).background]);
});
