import assert from "node:assert/strict";
import { execFileSync } from "node:child_process";
import { test } from "node:test";
import fc from "fast-check";
import { hasPrefix, parseCommandsWithAssignments, parsePlainCommands } from "../../../src/tools/policy/shell-parser.ts";

test("plain words, quotes and escapes are parsed as by a shell", () => {
  assert.deepEqual(parsePlainCommands("git status"), [["git", "status"]]);
  assert.deepEqual(parsePlainCommands(`echo 'a b' "c d" e\\ f ''`), [["echo", "a b", "c d", "e f", ""]]);
  assert.deepEqual(parsePlainCommands(`echo a'b'"c"`), [["echo", "abc"]]);
  assert.deepEqual(parsePlainCommands(`echo "a\\"b" "a\\nb"`), [["echo", 'a"b', "a\\nb"]]);
});

test("a line of several commands is parsed into several commands", () => {
  assert.deepEqual(parsePlainCommands("a 1 && b || c; d | e\nf"), [["a", "1"], ["b"], ["c"], ["d"], ["e"], ["f"]]);
  assert.deepEqual(parsePlainCommands("a 1&&b||c;d|e\nf"), [["a", "1"], ["b"], ["c"], ["d"], ["e"], ["f"]]);
  assert.deepEqual(parsePlainCommands("a;\n"), [["a"]]);
  assert.deepEqual(parsePlainCommands("\n a \n\n b \n"), [["a"], ["b"]]);
  assert.deepEqual(parsePlainCommands("a &&\nb"), [["a"], ["b"]]);
});

test("a line whose text does not determine its commands is not parsed", () => {
  const lines = [
    ...["", "  ", ";", "&&", "a &&", "a |", "| a", "a ;; b", "a & b", "a &", "a&b&", "a |& b"],
    ...["a $x", "a $(b)", "a `b`", 'a "$x"', 'a "`b`"', "a > f", "a < f", "a 2>&1", "(a)", "{ a; }"],
    ...["a *", "a ?", "a [b]", "a ~", "a {b,c}", "a # b", "x=1 a", "PATH=/evil ls", "! a", "if a"],
    ...["for x in y", "[[ a", "time a", "a 'b", 'a "b', "a \\", "a \\\nb", "a\0b", "function f"],
  ];
  for (const line of lines) assert.equal(parsePlainCommands(line), null, line);
});

/** A directory in which a misparsed line does no harm. */
const NOWHERE = { cwd: "/proc/self", env: { PATH: "" } };

test("the parsed words equal those of the shell", () => {
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
      const commands = parsePlainCommands(`show ${words.join(" ")}`);
      if (commands?.length !== 1) return;
      // The shell itself splits the same line and prints the arguments.
      const line = `show() { ${script}; }; show ${words.join(" ")}`;
      const shown = execFileSync("/bin/bash", ["-c", line], { encoding: "utf8", stdio: "pipe", ...NOWHERE });
      const expected = shown === "\0" && commands[0]?.length === 1 ? [] : shown.split("\0").slice(0, -1);
      assert.deepEqual(commands[0]?.slice(1), expected, line);
    }),
    { numRuns: 150 },
  );
});

test("the parsed commands equal those of the shell, in the same order", () => {
  const word = fc.oneof(
    fc.stringMatching(/^[a-zA-Z0-9_./:,%@+=-]{1,5}$/),
    fc.stringMatching(/^'[^'\0]{0,5}'$/),
    fc.stringMatching(/^[ -~\n]{1,4}$/),
  );
  const command = fc.tuple(fc.constantFrom("", "A=1 ", "A= ", "A='x y' B+=2 "), fc.array(word, { maxLength: 3 }));
  const separator = fc.constantFrom("; ", " && ", "\n", ";\n", " &&\n");
  const line = fc.array(fc.tuple(command, separator), { minLength: 1, maxLength: 3 });
  fc.assert(
    fc.property(line, (parts) => {
      const text = parts
        .map(([[assigned, words], after], index) => {
          const end = index === parts.length - 1 ? "" : after;
          return `${assigned}show ${words.join(" ")}${end}`;
        })
        .join("");
      const commands = parseCommandsWithAssignments(text);
      if (!commands?.every(({ argv }) => argv[0] === "show")) return;
      const script = `show() { printf "%s\\0" show "$@"; printf "\\1"; }; ${text}`;
      const shown = execFileSync("/bin/bash", ["-c", script], {
        encoding: "utf8",
        stdio: "pipe",
        ...NOWHERE,
      });
      const ran = shown.split("\x01").slice(0, -1);
      assert.deepEqual(
        commands.map(({ argv }) => argv),
        ran.map((one) => one.split("\0").slice(0, -1)),
        text,
      );
    }),
    { numRuns: 150 },
  );
});

test("assignments before a command are distinguished from words", () => {
  assert.deepEqual(parseCommandsWithAssignments("A=1 B+=2 rm x=y"), [{ assigns: true, argv: ["rm", "x=y"] }]);
  assert.deepEqual(parseCommandsWithAssignments("A=1"), [{ assigns: true, argv: [] }]);
  assert.deepEqual(parseCommandsWithAssignments("ls 'A'=1"), [{ assigns: false, argv: ["ls", "A=1"] }]);
  for (const line of ["'A'=1 rm", "1A=2 rm", "A-B=1 rm", "=rm", "env =rm"])
    assert.equal(parseCommandsWithAssignments(line), null, line);
});

test("a prefix is compared word by word", () => {
  assert.ok(hasPrefix(["git", "status", "-s"], ["git", "status"]));
  assert.ok(!hasPrefix(["git", "status-all"], ["git", "status"]));
  assert.ok(!hasPrefix(["git"], ["git", "status"]));
  assert.ok(!hasPrefix(["git"], []), "an empty one would allow everything");
});
