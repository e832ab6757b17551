import assert from "node:assert/strict";
import { readFileSync } from "node:fs";
import { test } from "node:test";
import { withScopeTable } from "../../scripts/docs/scope-doc.ts";

test("docs/security.md has the current table of scopes and methods", () => {
  const document = readFileSync("docs/security.md", "utf8");
  assert.equal(document, withScopeTable(document), "run `npm run scope-doc`");
});
