import assert from "node:assert/strict";
import { execFileSync } from "node:child_process";
import { test } from "node:test";
import fc from "fast-check";
import { printableLine, printableText, shellQuote } from "../../../src/base/text/printable-text.ts";

/** Characters that a terminal would interpret, or that a reader could not see. */
const DANGEROUS = /[\x00-\x1f\x7f-\x9f\u061c\u200b\u200e\u200f\u2028-\u202e\u2060-\u206f\ufeff]/;

test("printableLine escapes control and bidirectional characters, and keeps all others", () => {
  assert.equal(printableLine("a\x1b[2Jb"), "a\\x1b[2Jb");
  assert.equal(printableLine("a\nb\tc\rd\x7f"), "a\\nb\\tc\\rd\\x7f");
  assert.equal(printableLine("\x9b31m \u202etxt\u2066 \u{e0041}"), "\\u009b31m \\u202etxt\\u2066 \\U000e0041");
  assert.equal(printableLine("\ud800"), "\\ud800");
  assert.equal(printableLine("größer 漢字 👩‍💻".replaceAll("\u200d", "")), "größer 漢字 👩💻");
});

test("printableText keeps the lines of a text, and escapes characters that would overwrite them", () => {
  assert.equal(printableText("one\r\ntwo\tthree\n"), "one\ntwo\tthree\n");
  assert.equal(printableText("100%\rfake\b\x1b]0;title\x07"), "100%\\rfake\\x08\\x1b]0;title\\x07");
  assert.equal(printableText("👩\u200d💻"), "👩\u200d💻");
});

test("printableLine, printableText and shellQuote leave no dangerous character in any input", () => {
  const text = fc.string({ unit: "binary" });
  fc.assert(
    fc.property(text, (given) => {
      assert.doesNotMatch(printableLine(given), DANGEROUS);
      assert.doesNotMatch(shellQuote(given), DANGEROUS);
      assert.doesNotMatch(printableText(given).replaceAll(/[\n\t]/g, ""), DANGEROUS);
    }),
    { numRuns: 500 },
  );
});

test("shellQuote quotes a word so that a shell reads the same word", () => {
  const words = fc.array(fc.string({ unit: "binary" }), { minLength: 1, maxLength: 40 });
  fc.assert(
    fc.property(words, (given) => {
      const whole = given.map((word) => word.replaceAll("\0", ""));
      const read = execFileSync("/bin/bash", ["-c", `printf '%s\\0' ${whole.map(shellQuote).join(" ")}`], {
        encoding: "utf8",
        env: { LC_ALL: "C.UTF-8" },
        stdio: ["ignore", "pipe", "pipe"],
      });
      assert.deepEqual(read.split("\0").slice(0, -1), whole);
    }),
    { numRuns: 40 },
  );
});
