import assert from "node:assert/strict";
import { globSync, readFileSync } from "node:fs";
import { join } from "node:path";
import { describe, test } from "node:test";
import { WAYS } from "../../scripts/docs/sandbox-ways.ts";

const ROOT = join(import.meta.dirname, "../..");

describe("docs/sandbox-matrix.md", () => {
  const text = readFileSync(join(ROOT, "docs/sandbox-matrix.md"), "utf8");

  test("has a row for every file of the escape suite, and names no other file", () => {
    const files = globSync("*.test.ts", { cwd: join(ROOT, "test/escape") });
    const named = new Set(WAYS.flatMap(({ tests }) => tests.map((name) => `${name}.test.ts`)));
    assert.deepEqual([...named].sort(), files.sort());
    const listed = Array.from(text.matchAll(/^- `([\w-]+\.test\.ts)`$/gm), ([, name]) => name);
    assert.deepEqual(listed, files);
  });

  test("shows every way out once for root and once for an ordinary user", () => {
    const [, asRoot = "", ordinary = ""] = text.split(/^## .*$/m);
    for (const part of [asRoot, ordinary]) {
      const rows = Array.from(part.matchAll(/^\| (?!way out)(.*?) \|/gm), ([, name]) => name);
      assert.deepEqual(
        rows,
        WAYS.map(({ name }) => name),
        "run `npm run sandbox:matrix`",
      );
    }
  });

  test("names the version of Landlock, and every sandbox of procwire holds", () => {
    assert.match(text, /^Measured on Linux [\d.]+ with Landlock version \d+ and bubblewrap [\d.]+\./m);
    for (const [row, , off, on] of text.matchAll(/^\| (.*?) \| (.*?) \| (.*?) \| .*? \| .*? \|$/gm)) {
      assert.doesNotMatch(`${off} ${on}`, /open|not run/, row);
    }
  });
});
