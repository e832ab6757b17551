/** Terminal queries in output with arbitrary chunk boundaries. */

import assert from "node:assert/strict";
import { describe, test } from "node:test";
import { QueryScanner, QueryStripper } from "../../../src/exec/terminal/terminal-queries.ts";

const QUERIES = [
  ...["\x1b[c", "\x1b[0c", "\x1b[>c", "\x1b[>0c", "\x1b[=c", "\x1bZ"],
  ...["\x1b[5n", "\x1b[6n", "\x1b[?6n", "\x1b[?25n", "\x1b[?996n"],
  ...["\x1b[?25$p", "\x1b[4$p", "\x1b[?2026$p"],
  ...["\x1b[11t", "\x1b[13t", "\x1b[14t", "\x1b[16t", "\x1b[18t", "\x1b[19t", "\x1b[20t", "\x1b[21t"],
  ...["\x1b[>q", "\x1b[>0q", "\x1b[?u", "\x1b[x", "\x1b[1x", "\x1b[1;1;1;1;1;1*y", "\x1b[1$w"],
  ...["\x1b]10;?\x07", "\x1b]11;?\x1b\\", "\x1b]12;?\x07", "\x1b]10;?;?\x07"],
  ...["\x1b]4;7;?\x07", "\x1b]4;1;?;2;?\x1b\\", "\x1b]52;c;?\x07"],
  ...["\x1bP+q544e\x1b\\", '\x1bP$q"p\x1b\\', "\x1bP$qm\x1b\\"],
];

/** Sequences that draw, set or move, and need no reply. */
const SHOWN = [
  ...["plain", "\x1b[1;31mred\x1b[0m", "\x1b[2J", "\x1b[5;10H", "\x1b[?25l", "\x1b[?1049h", "\x1b[!p"],
  ...[
    "\x1b]0;what?\x07",
    "\x1b]2;c\x1b\\",
    "\x1b]10;#ffffff\x07",
    "\x1b]4;1;rgb:00/00/00\x07",
    "\x1b]8;;http://a/?\x07",
  ],
  ...["\x1b[8;24;80t", "\x1b[22;0t", "\x1b[2 q", "\x1b[?1c", "\x1b[u", "\x1b[>4;1m", "\x1b[>1u", "\x1b(B", "\x1b7"],
  ...["grüße \u{1f600}", "\x1b[3x", "\x1bPq#0;2;0;0;0\x1b\\"],
];

const filtered = (pieces: Uint8Array[]) => {
  const filter = new QueryStripper();
  return Buffer.concat([...pieces.map((piece) => filter.push(piece)), filter.flush()]).toString();
};

describe("terminal queries", () => {
  for (const query of QUERIES)
    test(`${JSON.stringify(query)} is a query and is stripped`, () => {
      assert.equal(filtered([Buffer.from(`a${query}b`)]), "ab");
      assert.equal(filtered([Buffer.from(`a${query}`)]), "a");
      for (const output of [`a${query}b`, `a${query}`])
        assert.deepEqual(new QueryScanner().scan(Buffer.from(output)), { bytesBefore: 0 });
    });

  for (const shown of SHOWN)
    test(`${JSON.stringify(shown)} is not a query and stays`, () => {
      assert.equal(filtered([Buffer.from(`a${shown}b`)]), `a${shown}b`);
      assert.equal(new QueryScanner().scan(Buffer.from(`a${shown}b`)), null);
    });

  test("have at most 257 bytes", () => {
    const color = (digits: number) => `\x1b]4;${"0".repeat(digits)};?\x07`;
    const attributes = (digits: number) => `\x1b[${"0".repeat(digits)}c`;
    for (const query of [color(250), attributes(254)]) assert.equal(filtered([Buffer.from(query)]), "");
    for (const other of [color(251), attributes(255)]) assert.equal(filtered([Buffer.from(other)]), other);
  });

  test("are found at any chunk boundary", () => {
    const whole = Buffer.from(
      [...SHOWN, ...QUERIES].flatMap((one, at) => [one, SHOWN[at % SHOWN.length] ?? ""]).join(""),
    );
    const expected = filtered([whole]);
    for (let cut = 0; cut <= whole.length; cut++)
      assert.equal(filtered([whole.subarray(0, cut), whole.subarray(cut)]), expected, `cut at ${cut}`);
    assert.equal(filtered(Array.from(whole, (byte) => Buffer.of(byte))), expected);
  });

  test("are found across two chunks, with the number of bytes in the first", () => {
    const watch = new QueryScanner();
    assert.equal(watch.scan(Buffer.from("text \x1b[")), null);
    assert.deepEqual(watch.scan(Buffer.from("6n more")), { bytesBefore: 2 });
    assert.equal(watch.scan(Buffer.from("and more")), null);
  });

  test("never buffer more than the maximum length of a query", () => {
    const filter = new QueryStripper();
    const endless = Buffer.from(`\x1b]0;${"x".repeat(1000)}`);
    assert.equal(Buffer.from(filter.push(endless)).toString(), endless.toString());
    const numbers = Buffer.from(`\x1b[${"1;".repeat(1000)}`);
    assert.equal(Buffer.from(filter.push(numbers)).toString(), numbers.toString());
    assert.equal(filter.flush().length, 0);
  });
});
