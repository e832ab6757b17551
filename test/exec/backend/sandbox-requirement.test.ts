import assert from "node:assert/strict";
import { describe, test } from "node:test";
import { stricterRequirement, toSandboxRequirement } from "../../../src/exec/backend/sandbox-requirement.ts";

describe("stricterRequirement", () => {
  const readOnly = toSandboxRequirement("read-only", null);
  const writable = toSandboxRequirement("workspace-write+network", ["/work"]);

  test("returns the only requirement if the other is null", () => {
    assert.equal(stricterRequirement(readOnly, null), readOnly);
    assert.equal(stricterRequirement(null, writable), writable);
    assert.equal(stricterRequirement(null, null), null);
  });

  test("combines the stricter mode, the stricter network and the roots of the second", () => {
    assert.deepEqual(stricterRequirement(readOnly, writable), { mode: "read-only", network: false, roots: ["/work"] });
    assert.deepEqual(stricterRequirement(writable, readOnly), { mode: "read-only", network: false, roots: null });
    const relaxed = toSandboxRequirement("workspace-write+network", null);
    assert.deepEqual(stricterRequirement(relaxed, writable), writable);
  });
});
