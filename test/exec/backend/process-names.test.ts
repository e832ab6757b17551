import assert from "node:assert/strict";
import { describe, test } from "node:test";
import { ProcessNames } from "../../../src/exec/backend/process-names.ts";

describe("ProcessNames", () => {
  test("rejects a name of a live process of the same owner, with its holder", () => {
    const names = new ProcessNames();
    const first = names.reserve("alice", "web", "k3v7");
    assert.throws(() => names.reserve("alice", "web", "other"), /name `web` is in use by process k3v7/);
    names.reserve("bob", "web", "m2x9");
    first.release();
    names.reserve("alice", "web", "other");
  });
});
