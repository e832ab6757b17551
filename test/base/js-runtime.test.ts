import assert from "node:assert/strict";
import { test } from "node:test";
import { detectOtherRuntime, MISSING_RUNTIME_SUPPORT, OTHER_RUNTIME } from "../../src/base/js-runtime.ts";

test("detectOtherRuntime names Bun and Deno, and returns null for Node", () => {
  assert.equal(detectOtherRuntime({ node: "24.3.0", bun: "1.4.4" }), "Bun 1.4.4");
  assert.equal(detectOtherRuntime({ node: "24.3.0", deno: "2.9.6" }), "Deno 2.9.6");
  assert.equal(detectOtherRuntime({ node: "24.3.0" }), null);
  assert.deepEqual([OTHER_RUNTIME, MISSING_RUNTIME_SUPPORT], [null, null]);
});
