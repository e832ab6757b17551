import assert from "node:assert/strict";
import { describe, test } from "node:test";
import { incompleteCharacterFrom, incompleteFrom, sequenceEnd } from "../../../src/exec/terminal/escape-sequences.ts";

const bytes = (text: string) => Buffer.from(text, "latin1");

/** Sequences that end exactly at the end of the text. */
const WHOLE = [
  // Control sequences with the first and last parameter, intermediate and final bytes.
  ...[
    "\x1b[m",
    "\x1b[0m",
    "\x1b[?25h",
    "\x1b[ ?A",
    "\x1b[1 q",
    "\x1b[@",
    "\x1b[~",
    "\x1b[\x80",
    "\x1b[1\x18",
    "\x1b[1\x1a",
  ],
  // A terminal executes control characters within a sequence, and ignores DEL.
  ...["\x1b[1\x07;2H", "\x1b[1\x1f\n\x7fm"],
  // Strings: BEL ends only an operating system command.
  ...["\x1b]0;title\x07", "\x1b]0;title\x1b\\", "\x1b]0;a\x18", "\x1b]0;a\x1a", "\x1bPq\x1b\\", "\x1bPq\x07x\x1b\\"],
  ...["\x1bXs\x1b\\", "\x1b^s\x1b\\", "\x1b_s\x1b\\", "\x1bP\x18", "\x1bP1\x1a"],
  // Two-character sequences, with the first and last intermediate bytes.
  ...["\x1b7", "\x1bc", "\x1b0", "\x1b~", "\x1b(B", "\x1b #F", "\x1b/0", "\x1b\x1f", "\x1b\x18", "\x1b(\x1a"],
];

describe("sequenceEnd", () => {
  for (const sequence of WHOLE)
    test(`finds the end of ${JSON.stringify(sequence)}, and none in its beginnings`, () => {
      for (const rest of ["", "c", "cd"])
        assert.equal(sequenceEnd(bytes(`ab${sequence}${rest}`), 2), 2 + sequence.length);
      for (let end = 1; end < sequence.length; end++)
        assert.equal(sequenceEnd(bytes(`ab${sequence.slice(0, end)}`), 2), null, `${end} bytes`);
    });

  test("ends a sequence before the escape character of another one", () => {
    for (const cut of ["\x1b[1", "\x1b]0;a", "\x1bPq", "\x1b(", "\x1b"])
      assert.equal(sequenceEnd(bytes(`${cut}\x1b[1m`), 0), cut.length, JSON.stringify(cut));
  });
});

describe("incompleteFrom", () => {
  test("returns the start of an incomplete last sequence", () => {
    for (const sequence of WHOLE) {
      assert.equal(incompleteFrom(bytes(`ab${sequence}`)), 2 + sequence.length);
      assert.equal(incompleteFrom(bytes(`ab\x1b[1m${sequence.slice(0, -1)}`)), 6, JSON.stringify(sequence));
    }
    assert.equal(incompleteFrom(bytes("\x1b[1")), 0);
    assert.equal(incompleteFrom(bytes("text")), 4);
  });

  test("cuts an incomplete sequence above 64 KiB", () => {
    const image = (length: number) => `\x1bPq`.padEnd(length, "x");
    assert.equal(incompleteFrom(bytes(`a${image(64 * 1024)}`)), 1);
    assert.equal(incompleteFrom(bytes(`a${image(64 * 1024 + 1)}`)), 64 * 1024 + 2);
  });

  test("returns the start of an incomplete last character", () => {
    assert.equal(incompleteFrom(bytes("\x1b[1ma\xc3")), 5);
    for (const character of ["ä", "€", "😀", "\u{10ffff}", "\u0080", "\u0800", "\u{10000}"]) {
      const whole = Buffer.from(character);
      for (let end = 1; end < whole.length; end++)
        for (const before of ["", "a", "abcd", "ä"]) {
          const start = Buffer.byteLength(before);
          const cut = Buffer.concat([Buffer.from(before), whole.subarray(0, end)]);
          assert.equal(incompleteCharacterFrom(cut), start, `${end} bytes of ${character} after ${before}`);
        }
      assert.equal(incompleteCharacterFrom(whole), whole.length);
    }
    assert.equal(incompleteCharacterFrom(bytes("\x80\x80\x80")), 3);
    assert.equal(incompleteCharacterFrom(bytes("\xf0\x80\x80\x80\x80")), 5);
    assert.equal(incompleteCharacterFrom(bytes("\xf0a")), 2);
    assert.equal(incompleteCharacterFrom(bytes("a\xc0")), 1);
    assert.equal(incompleteCharacterFrom(bytes("")), 0);
  });
});
