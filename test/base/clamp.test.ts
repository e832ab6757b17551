import assert from "node:assert/strict";
import { test } from "node:test";
import { clamp } from "../../src/base/clamp.ts";

test("clamp returns the closest number in the range, and the minimum of an empty range", () => {
  assert.deepEqual([clamp(-1, 0, 9), clamp(4, 0, 9), clamp(10, 0, 9), clamp(4, 0, -1)], [0, 4, 9, 0]);
});
