import assert from "node:assert/strict";
import { test } from "node:test";
import { sandboxChoiceFor } from "../../../src/tools/policy/sandbox-mode.ts";

test("a sandbox mode has no network and a private /tmp unless they are chosen", () => {
  const closed = { type: "bubblewrap", network: false, privateTmp: true };
  assert.deepEqual(sandboxChoiceFor("read-only", ["/w"]), { ...closed, writableRoots: [] });
  assert.deepEqual(sandboxChoiceFor("workspace-write", ["/w"]), { ...closed, writableRoots: ["/w"] });
  assert.deepEqual(sandboxChoiceFor("read-only", [], { network: { type: "on" }, sharedTmp: true }), {
    ...{ type: "bubblewrap", writableRoots: [], network: true, privateTmp: "shared" },
  });
  assert.deepEqual(sandboxChoiceFor("none", ["/w"]), { type: "none" });
});
