import assert from "node:assert/strict";
import { test } from "node:test";
import { createHeadlessTerminal } from "../../../src/exec/terminal/headless-terminal.ts";

test("a terminal emulator that fails is reset and draws later output, and the program continues", async () => {
  const terminal = await createHeadlessTerminal({ rows: 2, cols: 20 });
  terminal.parser.registerCsiHandler({ final: "y" }, () => {
    throw new Error("a fault of the emulator");
  });
  await terminal.write(Buffer.from("before\x1b[1yrest"));
  await terminal.write(Buffer.from("after"));
  assert.equal(terminal.buffer().getLine(0)?.translateToString(true), "after");
  terminal.dispose();
});
