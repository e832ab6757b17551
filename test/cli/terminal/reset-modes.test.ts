import assert from "node:assert/strict";
import { describe, test } from "node:test";
import { AlternateScreenState, resetModes } from "../../../src/cli/terminal/reset-modes.ts";
import { createHeadlessTerminal } from "../../../src/exec/terminal/headless-terminal.ts";

describe("the reset of a terminal", () => {
  for (const [title, output, isAlternate, cursor] of [
    ["keeps the cursor on the normal screen", "one\r\ntwo", false, [3, 1]],
    ["keeps it after an earlier alternate screen", "one\r\n\x1b[?1049hfull\x1b[?1049l\x1b[7;3H", false, [2, 6]],
    ["keeps it with a scroll region", "one\r\ntwo\x1b[2;3r\x1b[5;2H", false, [1, 4]],
    ["restores it from the alternate screen", "one\r\ntwo\x1b[?1049h\x1b[7;3H\x1b[2;3r", true, [3, 1]],
  ] as const)
    test(title, async () => {
      const state = new AlternateScreenState();
      // One byte at a time: sequences span chunks.
      for (const byte of Buffer.from(output)) state.push(Uint8Array.of(byte));
      assert.equal(state.isActive, isAlternate);
      const terminal = await createHeadlessTerminal({ rows: 10, cols: 20 });
      await terminal.write(Buffer.from(output + resetModes({ isAlternate: state.isActive })));
      const { type, cursorX, cursorY } = terminal.buffer();
      assert.deepEqual([type, [cursorX, cursorY]], ["normal", cursor]);
      assert.equal(terminal.buffer().getLine(0)?.translateToString(true), "one");
      terminal.dispose();
    });

  test("follows all sequences of the alternate screen, and a full reset", () => {
    const state = new AlternateScreenState();
    const expected: [string, boolean][] = [
      ["\x1b[?47h", true],
      ["\x1b[?25;1047l", false],
      ["\x1b[?1049;2004h", true],
      ["\x1b[?25h text \x1b[?2004l", true],
      ["\x1bc", false],
    ];
    for (const [output, isActive] of expected) {
      state.push(Buffer.from(output));
      assert.equal(state.isActive, isActive, JSON.stringify(output));
    }
  });
});
