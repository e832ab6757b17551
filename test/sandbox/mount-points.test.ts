import assert from "node:assert/strict";
import { appendFileSync, mkdirSync, readdirSync, readFileSync } from "node:fs";
import { join } from "node:path";
import { test } from "node:test";
import { MountPoints } from "../../src/sandbox/mount-points.ts";
import { scratch } from "./sandbox-fixture.ts";

test("MountPoints removes a mount point with its last release", async () => {
  using scratchDirectory = scratch();
  const paths = [join(scratchDirectory.path, "directory"), join(scratchDirectory.path, "file")];
  const [directory = "", file = ""] = paths;
  const points = new MountPoints();
  for (let count = 0; count < 2; count++) {
    points.acquire(directory);
    points.acquire(file, "contents\n");
  }
  assert.equal(readFileSync(file, "utf8"), "contents\n");
  await points.release(paths);
  assert.deepEqual(readdirSync(scratchDirectory.path), ["directory", "file"]);
  await points.release(paths);
  assert.deepEqual(readdirSync(scratchDirectory.path), []);
  assert.ok(!points.has(directory) && !points.has(file));
});

test("MountPoints keeps a placeholder that another program changed", async () => {
  using scratchDirectory = scratch();
  const [directory, file] = [join(scratchDirectory.path, "directory"), join(scratchDirectory.path, "file")];
  const points = new MountPoints();
  points.acquire(directory);
  points.acquire(file, "contents\n");
  mkdirSync(join(directory, "own"));
  appendFileSync(file, "own\n");
  await points.release([directory, file]);
  assert.deepEqual(readdirSync(directory), ["own"]);
  assert.equal(readFileSync(file, "utf8"), "contents\nown\n");
});

test("MountPoints does not replace an existing file by a placeholder", () => {
  using scratchDirectory = scratch();
  const file = join(scratchDirectory.path, "file");
  appendFileSync(file, "own\n");
  assert.throws(() => new MountPoints().acquire(file, ""), { code: "EEXIST" });
  assert.equal(readFileSync(file, "utf8"), "own\n");
});
