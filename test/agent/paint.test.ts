import assert from "node:assert/strict";
import { test } from "node:test";
import { wantsColor } from "../../src/agent/output/ansi-style.ts";

test("colours are used on terminals that can show them, unless an option overrides that", () => {
  const terminal = { isTTY: true };
  assert.equal(wantsColor("auto", terminal, { TERM: "xterm" }), true);
  assert.equal(wantsColor("auto", {}, { TERM: "xterm" }), false);
  assert.equal(wantsColor("auto", terminal, { TERM: "dumb" }), false);
  assert.equal(wantsColor("auto", terminal, { TERM: "xterm", NO_COLOR: "1" }), false);
  assert.equal(
    wantsColor("auto", terminal, { TERM: "xterm", NO_COLOR: "" }),
    true,
    "an empty one says nothing",
  );
  assert.equal(wantsColor("always", {}, { NO_COLOR: "1" }), true);
  assert.equal(wantsColor("never", terminal, { TERM: "xterm" }), false);
});
