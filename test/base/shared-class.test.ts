import assert from "node:assert/strict";
import { describe, test } from "node:test";
import { shareInstances } from "../../src/base/shared-class.ts";

/** Returns a copy of a class, as another package would contain it. */
function copyOfClass() {
  class Shared extends Error {
    static {
      shareInstances(Shared, "procwire.test.Shared");
    }
  }
  return Shared;
}

describe("shareInstances", () => {
  test("makes instanceof hold between copies of a class", () => {
    const [First, Second] = [copyOfClass(), copyOfClass()];
    assert.ok(new First() instanceof Second);
    assert.ok(new Second() instanceof First);
    assert.ok(new First() instanceof Error);
    for (const value of [new Error("another"), null, undefined, "text", {}]) assert.ok(!(value instanceof First));
  });

  test("leaves the check of subclasses unchanged", () => {
    const [First, Second] = [copyOfClass(), copyOfClass()];
    class Special extends First {}
    assert.ok(new Special() instanceof Second);
    assert.ok(new Special() instanceof Special);
    assert.ok(!(new First() instanceof Special));
  });
});
