import assert from "node:assert/strict";
import { describe, test } from "node:test";
import { ProcessNames } from "../../../src/exec/backend/process-names.ts";

describe("ProcessNames", () => {
  test("rejects a name of a live process of the same owner, with its holder", () => {
    const names = new ProcessNames();
    const first = names.claim("alice", "web", "k3v7");
    assert.throws(() => names.claim("alice", "web", "other"), /name `web` is in use by process k3v7/);
    names.claim("bob", "web", "m2x9");
    first.release();
    names.claim("alice", "web", "other");
  });
});
