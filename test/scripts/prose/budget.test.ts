import assert from "node:assert/strict";
import { describe, test } from "node:test";
import { compareWithBudget } from "../../../scripts/prose/budget.ts";
import { checkText } from "../../../scripts/prose/check-text.ts";
import { formatFailure } from "../../../scripts/prose/report.ts";

const BUDGET = { coreRules: ["tell"], core: 1, perThousandWords: 200, names: 1 };

/** Returns the failure of a checkout with one file. */
function failureOf(text: string, budget = BUDGET): string | null {
  return formatFailure(compareWithBudget({ ...checkText("src/a.ts", text), files: 1 }, budget));
}

describe("prose budget", () => {
  test("passes with as many findings as it allows", () => {
    assert.equal(failureOf("// The server is told the folder by an old client.\nconst told = 1;\n"), null);
  });

  test("fails with one more finding of a core rule", () => {
    const failure = failureOf("// The server told the client, the client told the user the name.\n") ?? "";
    assert.match(failure, /^over 2 findings of core rules; allowed: 1$/m);
    assert.match(failure, /^src\/a\.ts:1: \[tell\] /m);
  });

  test("fails with more findings per 1,000 words", () => {
    assert.match(failureOf("// A folder is a thing.\n") ?? "", /^over 400 findings per 1,000 words; allowed: 200$/m);
  });

  test("fails with one more identifier", () => {
    const failure = failureOf("const told = 1;\nconst asked = 1;\n") ?? "";
    assert.match(failure, /^over 2 identifiers with a banned word; allowed: 1$/m);
    assert.match(failure, /^src\/a\.ts:2: \[name\] asked$/m);
  });

  test("prints the first 40 findings and how to list the others", () => {
    const failure = failureOf("// A folder.\n\n".repeat(50)) ?? "";
    assert.equal(failure.match(/\[folder\]/g)?.length, 40);
    assert.match(failure, /^\.\.\. and 10 more$/m);
    assert.match(failure, /check:prose -- --names --list$/m);
  });

  test("refuses a core rule that does not exist", () => {
    assert.throws(() => failureOf("", { ...BUDGET, coreRules: ["tells"] }), /unknown core rule `tells`/);
  });
});
