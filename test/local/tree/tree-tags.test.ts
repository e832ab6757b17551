import assert from "node:assert/strict";
import { describe, test } from "node:test";
import { TreeTagRegistry } from "../../../src/local/tree/tree-tags.ts";

const MANY = 3000;
const never = () => false;

describe("TreeTagRegistry", () => {
  test("knows a tag until the tree is forgotten", () => {
    const trees = new TreeTagRegistry();
    trees.enable();
    trees.add(1);
    assert.deepEqual([trees.isUnknown(1), trees.isUnknown(2), trees.isUnknown(null)], [false, true, true]);
    trees.leaderExited(1);
    assert.ok(!trees.isUnknown(1), "a descendant may be alive");
    trees.forget(1);
    assert.ok(trees.isUnknown(1));
  });

  test("treats every tag as known if a tree is untagged or older than the recording, and without recording", () => {
    const untagged = new TreeTagRegistry();
    untagged.enable();
    untagged.add(null);
    const late = new TreeTagRegistry();
    late.add(1);
    late.enable();
    for (const trees of [untagged, late, new TreeTagRegistry()]) assert.ok(!trees.isUnknown(7));
  });

  test("prunes exited trees at the limit and retains tags that live processes have", () => {
    const trees = new TreeTagRegistry();
    trees.enable();
    for (let tag = 1; tag <= MANY; tag++) {
      trees.add(tag);
      if (tag % 3 !== 0) trees.leaderExited(tag);
    }
    trees.pruneExited((tag) => tag % 3 === 1);
    for (let tag = 1; tag <= MANY; tag++) assert.equal(trees.isUnknown(tag), tag % 3 === 2);
  });

  test("prunes again once twice as many trees are recorded", () => {
    const trees = new TreeTagRegistry();
    trees.enable();
    for (let tag = 1; tag <= MANY; tag++) trees.add(tag);
    trees.pruneExited(never);
    trees.leaderExited(1);
    for (let tag = MANY + 1; tag < 2 * MANY; tag++) trees.add(tag);
    trees.pruneExited(never);
    assert.ok(!trees.isUnknown(1));
    trees.add(2 * MANY);
    trees.pruneExited(never);
    assert.ok(trees.isUnknown(1));
  });

  test("does not prune below the limit", () => {
    const trees = new TreeTagRegistry();
    trees.enable();
    trees.add(1);
    trees.leaderExited(1);
    trees.pruneExited(never);
    assert.ok(!trees.isUnknown(1));
  });
});
