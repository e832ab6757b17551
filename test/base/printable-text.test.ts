import assert from "node:assert/strict";
import { execFileSync } from "node:child_process";
import { test } from "node:test";
import fc from "fast-check";
import { visibleLine, visibleText, visibleWord } from "../../src/base/printable-text.ts";

/** Characters that a terminal would interpret, or that a reader could not see. */
const DANGEROUS = /[\x00-\x1f\x7f-\x9f\u061c\u200b\u200e\u200f\u2028-\u202e\u2060-\u206f\ufeff]/;

test("control and direction characters are shown as escapes, and the rest as it is", () => {
  assert.equal(visibleLine("a\x1b[2Jb"), "a\\x1b[2Jb");
  assert.equal(visibleLine("a\nb\tc\rd\x7f"), "a\\nb\\tc\\rd\\x7f");
  assert.equal(visibleLine("\x9b31m \u202etxt\u2066 \u{e0041}"), "\\u009b31m \\u202etxt\\u2066 \\U000e0041");
  assert.equal(visibleLine("\ud800"), "\\ud800");
  assert.equal(visibleLine("größer 漢字 👩‍💻".replaceAll("\u200d", "")), "größer 漢字 👩💻");
});

test("text keeps its lines, and loses what would overwrite them", () => {
  assert.equal(visibleText("one\r\ntwo\tthree\n"), "one\ntwo\tthree\n");
  assert.equal(visibleText("100%\rfake\b\x1b]0;title\x07"), "100%\\rfake\\x08\\x1b]0;title\\x07");
  assert.equal(visibleText("👩\u200d💻"), "👩\u200d💻");
});

test("no dangerous character is left, whatever the input", () => {
  const text = fc.string({ unit: "binary" });
  fc.assert(
    fc.property(text, (given) => {
      assert.doesNotMatch(visibleLine(given), DANGEROUS);
      assert.doesNotMatch(visibleWord(given), DANGEROUS);
      assert.doesNotMatch(visibleText(given).replaceAll(/[\n\t]/g, ""), DANGEROUS);
    }),
    { numRuns: 500 },
  );
});

test("a word that is shown is the word a shell reads", () => {
  const words = fc.array(fc.string({ unit: "binary" }), { minLength: 1, maxLength: 40 });
  fc.assert(
    fc.property(words, (given) => {
      const whole = given.map((word) => word.replaceAll("\0", ""));
      const read = execFileSync("/bin/bash", ["-c", `printf '%s\\0' ${whole.map(visibleWord).join(" ")}`], {
        encoding: "utf8",
        env: { LC_ALL: "C.UTF-8" },
        stdio: ["ignore", "pipe", "pipe"],
      });
      assert.deepEqual(read.split("\0").slice(0, -1), whole);
    }),
    { numRuns: 40 },
  );
});
