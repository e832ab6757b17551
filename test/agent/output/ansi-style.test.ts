import assert from "node:assert/strict";
import { test } from "node:test";
import { shouldUseColor } from "../../../src/agent/output/ansi-style.ts";

test("colors are used on terminals that support them, unless an option overrides that", () => {
  const terminal = { isTTY: true };
  assert.equal(shouldUseColor("auto", terminal, { TERM: "xterm" }), true);
  assert.equal(shouldUseColor("auto", {}, { TERM: "xterm" }), false);
  assert.equal(shouldUseColor("auto", terminal, { TERM: "dumb" }), false);
  assert.equal(shouldUseColor("auto", terminal, { TERM: "xterm", NO_COLOR: "1" }), false);
  assert.equal(shouldUseColor("auto", terminal, { TERM: "xterm", NO_COLOR: "" }), true, "an empty one says nothing");
  assert.equal(shouldUseColor("always", {}, { NO_COLOR: "1" }), true);
  assert.equal(shouldUseColor("never", terminal, { TERM: "xterm" }), false);
});
