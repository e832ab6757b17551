import assert from "node:assert/strict";
import { describe, it } from "node:test";
import { KnownTrees } from "../../src/local/known-trees.ts";

const MANY = 3000;
const nobody = () => false;

describe("trees that a program has started", () => {
  it("are known by their marks until nothing is left of them", () => {
    const trees = new KnownTrees();
    trees.keep();
    trees.begins(1);
    assert.deepEqual([trees.isStrange(1), trees.isStrange(2), trees.isStrange(0)], [false, true, true]);
    trees.leaderExited(1);
    assert.ok(!trees.isStrange(1), "somebody it left may live");
    trees.forget(1);
    assert.ok(trees.isStrange(1));
  });

  it("make no process strange where one has no mark, began before, or none are kept", () => {
    const unmarked = new KnownTrees();
    unmarked.keep();
    unmarked.begins(0);
    const late = new KnownTrees();
    late.begins(1);
    late.keep();
    for (const trees of [unmarked, late, new KnownTrees()]) assert.ok(!trees.isStrange(7));
  });

  it("are pruned when there are many, and those with a living process stay", () => {
    const trees = new KnownTrees();
    trees.keep();
    for (let mark = 1; mark <= MANY; mark++) {
      trees.begins(mark);
      if (mark % 3 !== 0) trees.leaderExited(mark);
    }
    trees.forgetEnded((mark) => mark % 3 === 1);
    for (let mark = 1; mark <= MANY; mark++) assert.equal(trees.isStrange(mark), mark % 3 === 2);
  });

  it("are not pruned while there are few", () => {
    const trees = new KnownTrees();
    trees.keep();
    trees.begins(1);
    trees.leaderExited(1);
    trees.forgetEnded(nobody);
    assert.ok(!trees.isStrange(1));
  });
});
