import assert from "node:assert/strict";
import { mkdirSync, mkdtempSync, renameSync, rmdirSync, rmSync } from "node:fs";
import { tmpdir } from "node:os";
import { join } from "node:path";
import { describe, type TestContext, test } from "node:test";
import { directoryIdentity, pinDirectory, pinsOf, restorePins } from "../../src/sandbox/pinned-roots.ts";

function missingDirectory(t: TestContext): string {
  const parent = mkdtempSync(join(tmpdir(), "pinned-roots-"));
  t.after(() => rmSync(parent, { recursive: true }));
  return join(parent, "repository");
}

const MOVED = /was moved or replaced since its first use/;

describe("the directory around a protected path", () => {
  test("is pinned when it first exists", (t) => {
    const directory = missingDirectory(t);
    const scope = {};
    assert.equal(directoryIdentity(directory), null);
    pinDirectory(scope, directory);
    assert.deepEqual(pinsOf(scope), []);
    mkdirSync(directory);
    pinDirectory(scope, directory);
    assert.deepEqual(pinsOf(scope), [{ key: `directory ${directory}`, value: directoryIdentity(directory) }]);
    pinDirectory(scope, directory);
  });

  test("is rejected after it was moved, removed or replaced, also by the next server", (t) => {
    const directory = missingDirectory(t);
    const scope = {};
    mkdirSync(directory);
    pinDirectory(scope, directory);
    renameSync(directory, `${directory}.old`);
    assert.throws(() => pinDirectory(scope, directory), MOVED);
    mkdirSync(directory);
    assert.throws(() => pinDirectory(scope, directory), MOVED);
    const next = {};
    restorePins(next, pinsOf(scope));
    assert.throws(() => pinDirectory(next, directory), MOVED);
    rmdirSync(directory);
    renameSync(`${directory}.old`, directory);
    pinDirectory(next, directory);
  });
});
