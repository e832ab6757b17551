import assert from "node:assert/strict";
import { createRequire } from "node:module";
import { describe, test } from "node:test";
import xterm, { type ITerminalAddon } from "@xterm/headless";
import { createHeadlessTerminal } from "../../../src/exec/terminal/headless-terminal.ts";

/** The widths of the console. Loaded with `require`, because its types need a browser. */
const graphemes: { UnicodeGraphemesAddon: new () => ITerminalAddon } = createRequire(import.meta.url)(
  "@xterm/addon-unicode-graphemes",
);

describe("the width of emoji on the server", () => {
  test("is the width in the console, also of sequences", async () => {
    const consoleTerminal = new xterm.Terminal({ rows: 4, cols: 40, allowProposedApi: true });
    consoleTerminal.loadAddon(new graphemes.UnicodeGraphemesAddon());
    const terminal = await createHeadlessTerminal({ rows: 4, cols: 40 });
    for (const text of [
      ...["😀x", "❤️x", "⚙️ x", "👩‍💻x", "👨‍👩‍👧x", "👍🏽x", "⌚x", "✅ ok", "🇩🇪x", "🚀🚀", "a\u{1f600}"],
      ...["中x", "e\u0301x", "©x", "→x", "─x", "▶ x", "#*0"],
      // The first and last code points of the ranges.
      ...["👍🏻x", "👍🏿x", "©\ufe0fx", "⌚\ufe0fx", "㊙\ufe0fx", "㊙🏽x", "🀄x", "\ue000x"],
    ]) {
      await new Promise<void>((resolve) => consoleTerminal.write(`\r\x1b[K${text}`, resolve));
      await terminal.write(Buffer.from(`\r\x1b[K${text}`));
      assert.equal(terminal.buffer().cursorX, consoleTerminal.buffer.active.cursorX, text);
      assert.equal(
        terminal.buffer().getLine(0)?.translateToString(true),
        consoleTerminal.buffer.active.getLine(0)?.translateToString(true),
      );
    }
    terminal.dispose();
    consoleTerminal.dispose();
  });

  test("does not change with a variation selector after other characters", async () => {
    const terminal = await createHeadlessTerminal({ rows: 4, cols: 40 });
    for (const character of ["\ue000", "─", "→"]) {
      await terminal.write(Buffer.from(`\r\x1b[K${character}\ufe0fx`));
      assert.equal(terminal.buffer().cursorX, 2, character);
    }
    terminal.dispose();
  });
});
