/** Questions to a terminal, found in output that is cut anywhere. */

import assert from "node:assert/strict";
import { describe, it } from "node:test";
import { QueryFilter, QueryWatch } from "../../../src/exec/terminal/terminal-queries.ts";

const QUESTIONS = [
  ...["\x1b[c", "\x1b[0c", "\x1b[>c", "\x1b[>0c", "\x1b[=c", "\x1bZ"],
  ...["\x1b[5n", "\x1b[6n", "\x1b[?6n", "\x1b[?25n", "\x1b[?996n"],
  ...["\x1b[?25$p", "\x1b[4$p", "\x1b[?2026$p"],
  ...["\x1b[11t", "\x1b[13t", "\x1b[14t", "\x1b[16t", "\x1b[18t", "\x1b[19t", "\x1b[20t", "\x1b[21t"],
  ...["\x1b[>q", "\x1b[>0q", "\x1b[?u", "\x1b[x", "\x1b[1x", "\x1b[1;1;1;1;1;1*y", "\x1b[1$w"],
  ...["\x1b]10;?\x07", "\x1b]11;?\x1b\\", "\x1b]12;?\x07", "\x1b]10;?;?\x07"],
  ...["\x1b]4;7;?\x07", "\x1b]4;1;?;2;?\x1b\\", "\x1b]52;c;?\x07"],
  ...["\x1bP+q544e\x1b\\", '\x1bP$q"p\x1b\\', "\x1bP$qm\x1b\\"],
];

/** Sequences that draw, set or move, and need no answer. */
const SHOWN = [
  ...["plain", "\x1b[1;31mred\x1b[0m", "\x1b[2J", "\x1b[5;10H", "\x1b[?25l", "\x1b[?1049h", "\x1b[!p"],
  ...[
    "\x1b]0;what?\x07",
    "\x1b]2;c\x1b\\",
    "\x1b]10;#ffffff\x07",
    "\x1b]4;1;rgb:00/00/00\x07",
    "\x1b]8;;http://a/?\x07",
  ],
  ...[
    "\x1b[8;24;80t",
    "\x1b[22;0t",
    "\x1b[2 q",
    "\x1b[?1c",
    "\x1b[u",
    "\x1b[>4;1m",
    "\x1b[>1u",
    "\x1b(B",
    "\x1b7",
  ],
  ...["grüße \u{1f600}", "\x1b[3x", "\x1bPq#0;2;0;0;0\x1b\\"],
];

const filtered = (pieces: Uint8Array[]) => {
  const filter = new QueryFilter();
  return Buffer.concat([...pieces.map((piece) => filter.push(piece)), filter.rest()]).toString();
};

describe("terminal queries", () => {
  for (const question of QUESTIONS)
    it(`${JSON.stringify(question)} is one, and is not shown`, () => {
      assert.equal(filtered([Buffer.from(`a${question}b`)]), "ab");
      assert.deepEqual(new QueryWatch().look(Buffer.from(`a${question}b`)), { bytesBefore: 0 });
    });

  for (const shown of SHOWN)
    it(`${JSON.stringify(shown)} is none, and is shown`, () => {
      assert.equal(filtered([Buffer.from(`a${shown}b`)]), `a${shown}b`);
      assert.equal(new QueryWatch().look(Buffer.from(`a${shown}b`)), null);
    });

  it("are found wherever the output is cut", () => {
    const whole = Buffer.from(
      [...SHOWN, ...QUESTIONS].flatMap((one, at) => [one, SHOWN[at % SHOWN.length] ?? ""]).join(""),
    );
    const expected = filtered([whole]);
    for (let cut = 0; cut <= whole.length; cut++)
      assert.equal(filtered([whole.subarray(0, cut), whole.subarray(cut)]), expected, `cut at ${cut}`);
    assert.equal(filtered(Array.from(whole, (byte) => Buffer.of(byte))), expected);
  });

  it("that span two chunks are found, with how many of their bytes were in the first", () => {
    const watch = new QueryWatch();
    assert.equal(watch.look(Buffer.from("text \x1b[")), null);
    assert.deepEqual(watch.look(Buffer.from("6n more")), { bytesBefore: 2 });
    assert.equal(watch.look(Buffer.from("and more")), null);
  });

  it("never hold back more than the length of a query", () => {
    const filter = new QueryFilter();
    const endless = Buffer.from(`\x1b]0;${"x".repeat(1000)}`);
    assert.equal(Buffer.from(filter.push(endless)).toString(), endless.toString());
    const numbers = Buffer.from(`\x1b[${"1;".repeat(1000)}`);
    assert.equal(Buffer.from(filter.push(numbers)).toString(), numbers.toString());
    assert.equal(filter.rest().length, 0);
  });
});
