import assert from "node:assert/strict";
import { describe, test } from "node:test";
import { longInstructions, walkProblems } from "../../../scripts/check/check-documents.ts";
import { duplicatePairs } from "../../../scripts/check/check-duplicates.ts";
import { duplicateFileNames, fullDirectories } from "../../../scripts/check/check-layout.ts";

const repeat = <T>(count: number, line: (index: number) => T) => Array.from({ length: count }, (_, at) => line(at));

describe("layout budget", () => {
  test("rejects a directory with 21 files, and counts a header and its source once", () => {
    assert.deepEqual(fullDirectories(repeat(20, (at) => `src/a/${at}.ts`)), []);
    assert.deepEqual(fullDirectories(repeat(20, (at) => [`native/a/${at}.cc`, `native/a/${at}.h`]).flat()), []);
    assert.deepEqual(fullDirectories(repeat(21, (at) => `src/a/${at}.ts`)), [
      "src/a has 21 files, at most 20 are allowed",
    ]);
  });

  test("rejects two source files of the same name", () => {
    assert.deepEqual(duplicateFileNames(["src/a/x.ts", "src/b/x.ts", "src/b/y.ts"]), [
      "src/b/x.ts has the same name as src/a/x.ts",
    ]);
  });
});

describe("walk budget", () => {
  const walk = (steps: string[]) => `## Walk: one\n\n${steps.map((step, at) => `${at + 1}. ${step}\n`).join("")}`;
  const others = repeat(4, () => walk(["`src/a.ts` `a`: works."])).join("");

  test("rejects a first walk of 26 files", () => {
    const named = (count: number) => repeat(count, (at) => `\`src/${at}.ts\` \`name\``).join(" and ");
    assert.deepEqual(walkProblems(walk([named(25)]) + others), []);
    assert.deepEqual(walkProblems(walk([named(26)]) + others), [
      "the first walk names 26 files, at most 25 are allowed",
    ]);
  });

  test("rejects a walk of 21 steps, a step without a symbol and a missing walk", () => {
    const steps = repeat(21, () => "`src/a.ts` `a`: works.");
    assert.deepEqual(walkProblems(walk(steps) + others), ["Walk: one: 21 steps, at most 20 are allowed"]);
    assert.deepEqual(walkProblems(walk(["It works."]) + others), ["Walk: one: step 1 names no symbol"]);
    assert.deepEqual(walkProblems(others), ["ARCHITECTURE.md has 4 walks instead of 5"]);
  });
});

test("rejects instructions of more than ten steps", () => {
  const section = (count: number) => `# C\n\n## Add a tool\n\n${repeat(count, (at) => `${at + 1}. Do it.\n`).join("")}`;
  assert.deepEqual(longInstructions(section(10)), []);
  assert.deepEqual(longInstructions(section(11)), ["CONTRIBUTING.md, Add a tool: 11 steps, at most 10 are allowed"]);
});

test("reports six equal lines of code in two files, but not equal comments and imports", () => {
  const code = (count: number) => repeat(count, (at) => `  call${at}();`).join("\n// a comment\n");
  const comments = repeat(9, (at) => `// line ${at}\nimport {\n  x\n} from "x";`).join("\n");
  const pairs = (a: string, b: string) => duplicatePairs(new Map(Object.entries({ "a.ts": a, "b.ts": b })));
  assert.deepEqual(pairs(code(5), code(5)), []);
  assert.deepEqual(pairs(comments, comments), []);
  assert.deepEqual(pairs(code(7), `start();\n${code(7)}`), ["a.ts:1 ~ b.ts:2"]);
});
