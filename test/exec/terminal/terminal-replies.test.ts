import assert from "node:assert/strict";
import { describe, test } from "node:test";
import { createHeadlessTerminal } from "../../../src/exec/terminal/headless-terminal.ts";
import { inputStateOf } from "../../../src/exec/terminal/input-state.ts";
import { attachReplies } from "../../../src/exec/terminal/terminal-replies.ts";

const SIZE = { rows: 24, cols: 80 };
const COLOR_13 = "\x1b]13;?\x07";

/** Draws each output on a new terminal and returns the replies of procwire. */
async function replies(...outputs: string[]): Promise<string> {
  const terminal = await createHeadlessTerminal(SIZE);
  const sent: string[] = [];
  attachReplies(terminal, { size: () => SIZE, reply: (text) => sent.push(text) });
  for (const output of outputs) await terminal.write(Buffer.from(output));
  terminal.dispose();
  return sent.join("");
}

const color = (number: number) => replies(`\x1b]4;${number};?\x07`);
const rgb = (number: number, ...channels: string[]) =>
  `\x1b]4;${number};rgb:${channels.map((hex) => hex.repeat(2)).join("/")}\x1b\\`;

describe("terminal replies", () => {
  test("report every window query", async () => {
    const expected: Record<number, string> = {
      ...{
        11: "\x1b[1t",
        13: "\x1b[3;0;0t",
        14: "\x1b[4;384;640t",
        15: "\x1b[5;384;640t",
        16: "\x1b[6;16;8t",
      },
      ...{ 18: "\x1b[8;24;80t", 19: "\x1b[9;24;80t", 20: "\x1b]L\x1b\\", 21: "\x1b]l\x1b\\", 22: "", 3: "" },
    };
    for (const [what, reply] of Object.entries(expected)) assert.equal(await replies(`\x1b[${what}t`), reply, what);
  });

  test("report the cursor, from the scroll region in origin mode", async () => {
    assert.equal(await replies("\x1b[3;7H\x1b[6n"), "\x1b[3;7R");
    assert.equal(await replies("\x1b[3;7H\x1b[?6n"), "\x1b[?3;7R");
    assert.equal(await replies("\x1b[1;80Hx\x1b[6n"), "\x1b[1;80R");
    assert.equal(await replies("\x1b[5;20r\x1b[?6h\x1b[2;3H\x1b[6n"), "\x1b[2;3R");
    assert.equal(await replies("\x1b[5;20r\x1b[2;3H\x1b[6n"), "\x1b[2;3R");
    assert.equal(await replies("\x1b[r\x1b[?6h\x1b[2;3H\x1b[6n"), "\x1b[2;3R");
    // A reset of the terminal, soft or full, resets the scroll region.
    for (const reset of ["\x1b[!p", "\x1bc"])
      assert.equal(await replies(`\x1b[5;20r${reset}\x1b[?6h\x1b[2;3H\x1b[6n`), "\x1b[2;3R");
    assert.equal(await replies("\x1b[7n", "\x1b[?7n"), "");
  });

  test("report device attributes, version and parameters", async () => {
    assert.equal(await replies("\x1b[=c"), "\x1bP!|00000000\x1b\\");
    assert.equal(await replies("\x1b[>q"), "\x1bP>|procwire\x1b\\");
    assert.equal(await replies("\x1b[0x"), "\x1b[2;1;1;128;128;1;0x");
    assert.equal(await replies("\x1b[1x"), "\x1b[3;1;1;128;128;1;0x");
    assert.equal(await replies("\x1bZ"), "\x1b[?1;2c");
    assert.equal(await replies("\x1bP+q544e\x1b\\"), "\x1bP0+r\x1b\\");
  });

  test("report the colors of the palette as in xterm", async () => {
    assert.equal(await color(1), rgb(1, "cd", "00", "00"));
    assert.equal(await color(15), rgb(15, "ff", "ff", "ff"));
    assert.equal(await color(16), rgb(16, "00", "00", "00"));
    assert.equal(await color(67), rgb(67, "5f", "87", "af"));
    assert.equal(await color(231), rgb(231, "ff", "ff", "ff"));
    assert.equal(await color(232), rgb(232, "08", "08", "08"));
    assert.equal(await color(255), rgb(255, "ee", "ee", "ee"));
    assert.equal(await color(256), "");
    assert.equal(await replies("\x1b]4;-1;?\x07", "\x1b]4;?\x07", "\x1b]4;x;?\x07", "\x1b]4;1;red\x07"), "");
    assert.equal(await color(0), rgb(0, "00", "00", "00"));
    const [red, green] = [rgb(1, "cd", "00", "00"), rgb(2, "00", "cd", "00")];
    assert.equal(await replies("\x1b]4;1;?;2;?\x07"), red + green);
  });

  test("report foreground, background and cursor color, each once", async () => {
    const [light, dark] = ["rgb:e5e5/e5e5/e5e5", "rgb:0000/0000/0000"];
    assert.equal(
      await replies("\x1b]10;?;?;?;?\x07"),
      `\x1b]10;${light}\x1b\\\x1b]11;${dark}\x1b\\\x1b]12;${light}\x1b\\`,
    );
    assert.equal(await replies("\x1b]11;?\x07"), `\x1b]11;${dark}\x1b\\`);
    assert.equal(await replies("\x1b]12;?\x07"), `\x1b]12;${light}\x1b\\`);
    assert.equal(await replies("\x1b]10;#ffffff\x07", COLOR_13), "");
  });
});

describe("a headless terminal", () => {
  test("has title, size and content, and no scrollback", async () => {
    const terminal = await createHeadlessTerminal(SIZE);
    terminal.resize({ rows: 2, cols: 80 });
    assert.equal(terminal.buffer().length, 2);
    terminal.resize({ rows: 2, cols: 10 });
    await terminal.write(Buffer.from("\x1b]2;name\x07one\r\ntwo\r\nthree"));
    assert.equal(terminal.title(), "name");
    assert.equal(terminal.buffer().length, 2);
    assert.equal(terminal.buffer().getLine(1)?.translateToString(true), "three");
    terminal.resize({ rows: 2, cols: 3 });
    assert.equal(terminal.buffer().getLine(0)?.length, 3);
    terminal.reset();
    assert.equal(terminal.buffer().getLine(1)?.translateToString(true), "");
    const sent: string[] = [];
    terminal.onReply((text) => sent.push(text));
    await terminal.write(Buffer.from("\x1b[5n"));
    assert.deepEqual(sent, ["\x1b[0n"]);
    terminal.dispose();
  });
});

test("a terminal in raw mode suggests a key, and line mode without echo a secret", () => {
  const tty = { ...SIZE, canonical: true, echo: true };
  assert.equal(inputStateOf(tty), undefined);
  assert.equal(inputStateOf({ ...tty, echo: false }), "secret");
  assert.equal(inputStateOf({ ...tty, canonical: false, echo: false }), "key");
});
