import assert from "node:assert/strict";
import { readFileSync } from "node:fs";
import { join } from "node:path";
import { describe, test } from "node:test";
import { INTERNAL_LIMITS } from "../../scripts/docs/internal-limits.ts";
import { LIMITS_DOCUMENT, limitsDocument, numericConstants } from "../../scripts/docs/limits-doc.ts";
import { DOCUMENTED_LIMITS } from "../../scripts/docs/limits-texts.ts";
import { SERVE_FLAGS } from "../../src/cli/options/serve-option-table.ts";

const text = readFileSync(join(import.meta.dirname, "../..", LIMITS_DOCUMENT), "utf8");

describe("docs/limits.md", () => {
  test("is up to date with the sources", () => {
    assert.equal(text, limitsDocument(), "run `npm run limits-doc`");
  });

  test("has a line for every flag of procwire serve", () => {
    const flags = Object.keys(SERVE_FLAGS).filter((name) => name !== "config" && name !== "help");
    assert.ok(flags.length > 40);
    assert.deepEqual(
      flags.filter((flag) => !text.includes(`| \`--${flag}\` |`)),
      [],
    );
  });

  test("documents every limit of the sources, unless it is listed as internal", () => {
    const documented = Object.values(DOCUMENTED_LIMITS)
      .flat()
      .map(({ file, constant }) => `${file} ${constant}`);
    const internal = Object.entries(INTERNAL_LIMITS).flatMap(([file, names]) => names.map((name) => `${file} ${name}`));
    const limits = [...numericConstants().keys()].filter((key) => / (MAX|MIN|DEFAULT|LARGEST)_/.test(key));
    const known = new Set([...documented, ...internal]);
    assert.deepEqual(
      limits.filter((key) => !known.has(key)),
      [],
      "add these limits to scripts/docs/limits-texts.ts, or to internal-limits.ts if no user meets them",
    );
    assert.deepEqual(
      internal.filter((key) => !limits.includes(key) || documented.includes(key)),
      [],
      "remove these names from scripts/docs/internal-limits.ts",
    );
  });
});
