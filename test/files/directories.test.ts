import assert from "node:assert/strict";
import { existsSync, statSync } from "node:fs";
import { test } from "node:test";
import { createDirectory, readDirectory } from "../../src/files/directories.ts";
import { canonicalize, getMetadata } from "../../src/files/metadata.ts";
import { FILE_EXISTS, LINK_LOOP, NOT_A_DIRECTORY, NOT_FOUND, refusal, Scratch } from "./scratch.ts";

const HAS_LINK = refusal(-32600, "path contains a symbolic link");

test("fs/createDirectory creates a directory with its parents and accepts an existing directory", async (t) => {
  const scratch = new Scratch(t);
  await createDirectory({ path: scratch.uri("m/n/o") });
  await createDirectory({ path: scratch.uri("m/n/o") });
  assert.ok(statSync(scratch.path("m/n/o")).isDirectory());
});

test("fs/createDirectory requires an existing parent and a free name without `recursive`", async (t) => {
  const scratch = new Scratch(t);
  scratch.directory("m");
  await assert.rejects(createDirectory({ path: scratch.uri("m"), recursive: false }), FILE_EXISTS);
  await assert.rejects(createDirectory({ path: scratch.uri("q/r"), recursive: false }), NOT_FOUND);
  await createDirectory({ path: scratch.uri("m/new"), recursive: false });
  assert.ok(statSync(scratch.path("m/new")).isDirectory());
});

test("fs/createDirectory rejects the path of a file or broken link", async (t) => {
  const scratch = new Scratch(t);
  scratch.file("a.txt");
  scratch.link("link", "a.txt");
  scratch.link("broken", "nowhere");
  for (const name of ["a.txt", "link", "broken"]) {
    await assert.rejects(createDirectory({ path: scratch.uri(name) }), FILE_EXISTS, name);
  }
  await assert.rejects(createDirectory({ path: scratch.uri("a.txt/x") }), NOT_A_DIRECTORY);
});

test("fs/createDirectory creates a directory through a link only with followSymlinks", async (t) => {
  const scratch = new Scratch(t);
  scratch.directory("sub");
  scratch.link("dlink", "sub");
  const withoutFollowing = (name: string, recursive: boolean) =>
    createDirectory({ path: scratch.uri(name), recursive, followSymlinks: false });
  await assert.rejects(withoutFollowing("dlink/x", true), NOT_A_DIRECTORY);
  await assert.rejects(withoutFollowing("dlink/x", false), NOT_A_DIRECTORY);
  await assert.rejects(withoutFollowing("dlink", true), NOT_A_DIRECTORY);
  await assert.rejects(withoutFollowing("dlink", false), FILE_EXISTS);
  assert.equal(existsSync(scratch.path("sub/x")), false);
  await withoutFollowing("deep/er/still", true);
  await withoutFollowing("deep/er/still", true);
  assert.ok(statSync(scratch.path("deep/er/still")).isDirectory());
  await createDirectory({ path: scratch.uri("dlink/x/y") });
  assert.ok(statSync(scratch.path("sub/x/y")).isDirectory());
});

test("fs/getMetadata returns the metadata of a link's target and reports the link", async (t) => {
  const scratch = new Scratch(t);
  scratch.file("a.txt", "hello");
  scratch.link("link", "a.txt");
  scratch.link("broken", "nowhere");
  const file = await getMetadata({ path: scratch.uri("a.txt") });
  const mtime = Math.floor(statSync(scratch.path("a.txt")).mtimeMs);
  assert.deepEqual(
    { ...file, createdAtMs: 0 },
    { isDirectory: false, isFile: true, isSymlink: false, size: 5, createdAtMs: 0, modifiedAtMs: mtime },
  );
  assert.ok(Number.isInteger(file.createdAtMs) && file.createdAtMs >= 0);
  assert.deepEqual(await getMetadata({ path: scratch.uri("link") }), { ...file, isSymlink: true });
  assert.equal((await getMetadata({ path: scratch.uri() })).isDirectory, true);
  const device = await getMetadata({ path: "file:///dev/null" });
  assert.deepEqual([device.isFile, device.isDirectory], [false, false]);
  await assert.rejects(getMetadata({ path: scratch.uri("broken") }), NOT_FOUND);
  await assert.rejects(getMetadata({ path: scratch.uri("zz") }), NOT_FOUND);
});

test("fs/getMetadata rejects links with followSymlinks: false", async (t) => {
  const scratch = new Scratch(t);
  scratch.file("sub/a.txt", "hello");
  scratch.link("link", "sub/a.txt");
  scratch.link("broken", "nowhere");
  scratch.link("dlink", "sub");
  const withoutFollowing = (name: string) => getMetadata({ path: scratch.uri(name), followSymlinks: false });
  await assert.rejects(withoutFollowing("link"), HAS_LINK);
  await assert.rejects(withoutFollowing("broken"), HAS_LINK);
  await assert.rejects(withoutFollowing("dlink"), HAS_LINK);
  await assert.rejects(withoutFollowing("dlink/a.txt"), NOT_A_DIRECTORY);
  assert.equal((await withoutFollowing("sub/a.txt")).size, 5);
  assert.equal((await getMetadata({ path: "file:///", followSymlinks: false })).isDirectory, true);
});

test("fs/canonicalize returns the canonical path of a file", async (t) => {
  const scratch = new Scratch(t);
  scratch.file("sub/a b", "");
  scratch.link("dlink", "sub");
  const real = { path: `${scratch.uri("sub")}/a%20b` };
  assert.deepEqual(await canonicalize({ path: scratch.uri("dlink/a b") }), real);
  assert.deepEqual(await canonicalize({ path: `${scratch.uri("dlink")}/../sub/a%20b` }), real);
  await assert.rejects(canonicalize({ path: scratch.uri("zz") }), NOT_FOUND);
});

test("fs/readDirectory lists hidden names and link targets, and omits broken links", async (t) => {
  const scratch = new Scratch(t);
  scratch.file(".hidden");
  scratch.file("sub/b");
  scratch.link("link", "sub/b");
  scratch.link("dlink", "sub");
  scratch.link("broken", "nowhere");
  scratch.link("loop", "loop");
  scratch.fifo("pipe");
  const { entries } = await readDirectory({ path: scratch.uri() });
  const byName = new Map(entries.map(({ fileName, ...rest }) => [fileName, rest]));
  assert.deepEqual([...byName.keys()].sort(), [".hidden", "dlink", "link", "pipe", "sub"]);
  assert.deepEqual(byName.get("link"), { isDirectory: false, isFile: true });
  assert.deepEqual(byName.get("dlink"), { isDirectory: true, isFile: false });
  assert.deepEqual(byName.get("pipe"), { isDirectory: false, isFile: false });
  await assert.rejects(readDirectory({ path: scratch.uri("zz") }), NOT_FOUND);
  await assert.rejects(readDirectory({ path: scratch.uri("sub/b") }), NOT_A_DIRECTORY);
});

test("fs/readDirectory lists the maximum number of entries and rejects a larger directory", async (t) => {
  const scratch = new Scratch(t);
  for (const name of ["a", "b", "c"]) scratch.file(name);
  assert.equal((await readDirectory({ path: scratch.uri() }, 3)).entries.length, 3);
  await assert.rejects(
    readDirectory({ path: scratch.uri() }, 2),
    refusal(-32603, "fs/readDirectory returned 3 entries; limit is 2"),
  );
});

test("fs/getMetadata reports the system error for a symbolic link that points to itself", async (t) => {
  const scratch = new Scratch(t);
  scratch.link("loop", "loop");
  await assert.rejects(getMetadata({ path: scratch.uri("loop") }), LINK_LOOP);
});
