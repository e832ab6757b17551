import assert from "node:assert/strict";
import { describe, test } from "node:test";
import { EvictedModes } from "../../../src/exec/terminal/evicted-modes.ts";

function outputAfter(...chunks: string[]): string {
  const modes = new EvictedModes();
  for (const chunk of chunks) modes.add(Buffer.from(chunk, "latin1"));
  return Buffer.from(modes.toOutput()).toString("latin1");
}

describe("EvictedModes", () => {
  test("keeps each private mode once, in the order of the last change", () => {
    assert.equal(outputAfter("\x1b[?25l\x1b[?1000;1006h", "text\x1b[?25h"), "\x1b[?1000h\x1b[?1006h\x1b[?25h");
    assert.equal(outputAfter("\x1b[?47h\x1b[?1049h"), "\x1b[?1049h");
  });

  test("keeps the last scroll region, insert mode, cursor style, keypad, character set and title", () => {
    const sequences = ["\x1b[2;9r", "\x1b[4h", "\x1b[3 q", "\x1b=", "\x1b(0", "\x1b]0;top\x07"];
    assert.equal(outputAfter("\x1b[1;5r", ...sequences), sequences.join(""));
  });

  test("ignores colors, cursor movements and sequences above 1,024 bytes", () => {
    assert.equal(outputAfter("a\x1b[31mb\x1b[4;1Hc\x1b[K", `\x1b]0;${"x".repeat(1020)}\x07`), "");
    assert.equal(outputAfter(`\x1b]0;${"x".repeat(1019)}\x07`).length, 1024);
  });

  test("continues a sequence that spans chunks, and returns an incomplete one", () => {
    assert.equal(outputAfter("ab\x1b[?2", "5l", "cd"), "\x1b[?25l");
    assert.equal(outputAfter("\x1b[?25l", "ab\x1b[?1", "04"), "\x1b[?25l\x1b[?104");
    assert.equal(outputAfter("ab\x1b[?25lcd"), "\x1b[?25l");
  });

  test("returns an incomplete UTF-8 character at the end", () => {
    for (const part of ["\xc3", "\xe2", "\xe2\x82", "\xf0", "\xf0\x9f", "\xf0\x9f\x98"])
      assert.equal(outputAfter(`\x1b[?25lab${part}`), `\x1b[?25l${part}`, JSON.stringify(part));
    for (const whole of ["\xc3\xa4", "\xe2\x82\xac", "\xf0\x9f\x98\x80", "\x80\x80\x80\x80"])
      assert.equal(outputAfter(`\x1b[?25lab${whole}`), "\x1b[?25l", JSON.stringify(whole));
  });

  test("forgets all modes after a reset", () => {
    for (const reset of ["\x1bc", "\x1b[!p"]) assert.equal(outputAfter("\x1b[?25l\x1b=", reset, "\x1b>"), "\x1b>");
  });

  test("keeps the 64 modes that changed last", () => {
    const numbers = Array.from({ length: 65 }, (_, index) => `${100 + index}`);
    const output = outputAfter(...numbers.map((number) => `\x1b[?${number}h`));
    assert.equal(
      output,
      numbers
        .slice(1)
        .map((number) => `\x1b[?${number}h`)
        .join(""),
    );
  });
});
