import assert from "node:assert/strict";
import { globSync, readFileSync } from "node:fs";
import { join } from "node:path";
import { describe, test } from "node:test";

const ROOT = join(import.meta.dirname, "../..");

describe("docs/README.md", () => {
  const text = readFileSync(join(ROOT, "docs/README.md"), "utf8");

  test("lists every page of docs, one per line", () => {
    const listed = new Set(Array.from(text.matchAll(/\]\(((?:protocol\/)?[\w-]+\.md)\)/g), ([, name]) => name));
    const pages = globSync(["*.md", "protocol/*.md"], { cwd: join(ROOT, "docs") }).filter(
      (name) => name !== "README.md",
    );
    assert.deepEqual([...listed].sort(), pages.sort());
  });

  test("numbers its lines in reading order", () => {
    const numbers = Array.from(text.matchAll(/^(\d+)\. \[/gm), ([, number]) => Number(number));
    assert.deepEqual(
      numbers,
      numbers.map((_, index) => index + 1),
    );
    assert.ok(numbers.length > 25);
  });
});
