import assert from "node:assert/strict";
import { execFileSync } from "node:child_process";
import { test } from "node:test";
import fc from "fast-check";
import { hasPrefix, plainCommands } from "../../src/tools/shell-words.ts";

test("reads plain words, quotes and escapes as a shell does", () => {
  assert.deepEqual(plainCommands("git status"), [["git", "status"]]);
  assert.deepEqual(plainCommands(`echo 'a b' "c d" e\\ f ''`), [["echo", "a b", "c d", "e f", ""]]);
  assert.deepEqual(plainCommands(`echo a'b'"c"`), [["echo", "abc"]]);
  assert.deepEqual(plainCommands(`echo "a\\"b" "a\\nb"`), [["echo", 'a"b', "a\\nb"]]);
});

test("reads a line of several commands as several", () => {
  assert.deepEqual(plainCommands("a 1 && b || c; d | e\nf"), [["a", "1"], ["b"], ["c"], ["d"], ["e"], ["f"]]);
  assert.deepEqual(plainCommands("a;\n"), [["a"]]);
  assert.deepEqual(plainCommands("\n a \n\n b \n"), [["a"], ["b"]]);
  assert.deepEqual(plainCommands("a &&\nb"), [["a"], ["b"]]);
});

test("does not read what could run something else than it says", () => {
  const lines = [
    ...["", "  ", ";", "&&", "a &&", "a |", "| a", "a ;; b", "a & b", "a &", "a |& b"],
    ...["a $x", "a $(b)", "a `b`", 'a "$x"', 'a "`b`"', "a > f", "a < f", "a 2>&1", "(a)", "{ a; }"],
    ...["a *", "a ?", "a [b]", "a ~", "a {b,c}", "a # b", "x=1 a", "PATH=/evil ls", "! a", "if a"],
    ...["for x in y", "[[ a", "time a", "a 'b", 'a "b', "a \\", "a \\\nb", "a\0b", "function f"],
  ];
  for (const line of lines) assert.equal(plainCommands(line), null, line);
});

/** Where a line that was misread could do no harm. */
const NOWHERE = { cwd: "/proc/self", env: { PATH: "" } };

test("the words it reads are the words the shell passes on", () => {
  const word = fc.oneof(
    fc.stringMatching(/^[a-zA-Z0-9_./:,%@+-]{1,6}$/),
    fc.stringMatching(/^'[^'\0]{0,6}'$/),
    fc.stringMatching(/^"[a-z !;|&*()<>]{0,6}"$/),
    fc.stringMatching(/^\\[^\n\0]$/),
    fc.stringMatching(/^[ -~]{1,5}$/),
  );
  const script = 'printf "%s\\0" "$@"';
  fc.assert(
    fc.property(fc.array(word, { minLength: 1, maxLength: 4 }), (words) => {
      const commands = plainCommands(`show ${words.join(" ")}`);
      if (commands?.length !== 1) return;
      // The shell itself splits the same line, for a function that shows its arguments.
      const line = `show() { ${script}; }; show ${words.join(" ")}`;
      const shown = execFileSync("/bin/bash", ["-c", line], { encoding: "utf8", stdio: "pipe", ...NOWHERE });
      const expected = shown === "\0" && commands[0]?.length === 1 ? [] : shown.split("\0").slice(0, -1);
      assert.deepEqual(commands[0]?.slice(1), expected, line);
    }),
    { numRuns: 150 },
  );
});

test("a prefix is compared word by word", () => {
  assert.ok(hasPrefix(["git", "status", "-s"], ["git", "status"]));
  assert.ok(!hasPrefix(["git", "status-all"], ["git", "status"]));
  assert.ok(!hasPrefix(["git"], ["git", "status"]));
  assert.ok(!hasPrefix(["git"], []), "an empty one would allow everything");
});
