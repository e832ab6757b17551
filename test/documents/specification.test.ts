import assert from "node:assert/strict";
import { test } from "node:test";
import { fileCosts } from "../../bench/specification/file-costs.ts";
import { exceededCosts } from "../../bench/specification/specification.ts";

test("commands load no more modules, and the console no more bytes, than docs/specification.md states", async () => {
  assert.deepEqual(exceededCosts("files", await fileCosts()), [], "to accept: npm run specification -- --write");
});
