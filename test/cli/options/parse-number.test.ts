import assert from "node:assert/strict";
import { test } from "node:test";
import { parseAmount } from "../../../src/cli/options/parse-number.ts";

test("parseAmount returns finite numbers of at least 0, and null for all other texts", () => {
  assert.deepEqual(["0", "1.5", " 20 ", "1e3"].map(parseAmount), [0, 1.5, 20, 1000]);
  for (const text of ["", " ", "-1", "x", "Infinity", "1s"]) assert.equal(parseAmount(text), null, text);
});
