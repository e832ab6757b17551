import assert from "node:assert/strict";
import {
  existsSync,
  lstatSync,
  mkdirSync,
  readFileSync,
  readlinkSync,
  statSync,
  symlinkSync,
  writeFileSync,
} from "node:fs";
import { test } from "node:test";
import { copy } from "../../src/files/copy.ts";
import { createDirectory, readDirectory } from "../../src/files/directories.ts";
import { canonicalize, getMetadata } from "../../src/files/metadata.ts";
import { remove } from "../../src/files/remove.ts";
import { uriFromPath } from "../../src/protocol/path-uri.ts";
import { FILE_EXISTS, IS_A_DIRECTORY, LINK_LOOP, NOT_A_DIRECTORY, NOT_FOUND, refusal, Scratch } from "./scratch.ts";

const HAS_LINK = refusal(-32600, "path contains a symbolic link");

test("creates a directory with its parents and accepts an existing directory", async (t) => {
  const scratch = new Scratch(t);
  await createDirectory({ path: scratch.uri("m/n/o") });
  await createDirectory({ path: scratch.uri("m/n/o") });
  assert.ok(statSync(scratch.path("m/n/o")).isDirectory());
});

test("requires an existing parent and a free name without `recursive`", async (t) => {
  const scratch = new Scratch(t);
  scratch.directory("m");
  await assert.rejects(createDirectory({ path: scratch.uri("m"), recursive: false }), FILE_EXISTS);
  await assert.rejects(createDirectory({ path: scratch.uri("q/r"), recursive: false }), NOT_FOUND);
  await createDirectory({ path: scratch.uri("m/new"), recursive: false });
  assert.ok(statSync(scratch.path("m/new")).isDirectory());
});

test("rejects creating a directory at the path of a file or broken link", async (t) => {
  const scratch = new Scratch(t);
  scratch.file("a.txt");
  scratch.link("link", "a.txt");
  scratch.link("broken", "nowhere");
  for (const name of ["a.txt", "link", "broken"]) {
    await assert.rejects(createDirectory({ path: scratch.uri(name) }), FILE_EXISTS, name);
  }
  await assert.rejects(createDirectory({ path: scratch.uri("a.txt/x") }), NOT_A_DIRECTORY);
});

test("creates a directory through a link only with followSymlinks", async (t) => {
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

test("returns the metadata of a link's target and reports the link", async (t) => {
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

test("rejects links for metadata with followSymlinks: false", async (t) => {
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

test("returns the canonical path of a file", async (t) => {
  const scratch = new Scratch(t);
  scratch.file("sub/a b", "");
  scratch.link("dlink", "sub");
  const real = { path: `${scratch.uri("sub")}/a%20b` };
  assert.deepEqual(await canonicalize({ path: scratch.uri("dlink/a b") }), real);
  assert.deepEqual(await canonicalize({ path: `${scratch.uri("dlink")}/../sub/a%20b` }), real);
  await assert.rejects(canonicalize({ path: scratch.uri("zz") }), NOT_FOUND);
});

test("lists hidden names and link targets of a directory, and omits broken links", async (t) => {
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

test("lists a directory with the maximum number of entries and rejects a larger directory", async (t) => {
  const scratch = new Scratch(t);
  for (const name of ["a", "b", "c"]) scratch.file(name);
  assert.equal((await readDirectory({ path: scratch.uri() }, 3)).entries.length, 3);
  await assert.rejects(
    readDirectory({ path: scratch.uri() }, 2),
    refusal(-32603, "fs/readDirectory returned 3 entries; limit is 2"),
  );
});

test("removes files, links and trees, but no link targets", async (t) => {
  const scratch = new Scratch(t);
  scratch.file("m/n/o");
  scratch.file("keep/me");
  scratch.link("m/out", "../keep");
  scratch.link("dlink", "keep");
  await assert.rejects(
    remove({ path: scratch.uri("m"), recursive: false }),
    refusal(-32603, "Directory not empty (os error 39)"),
  );
  await remove({ path: scratch.uri("m") });
  await remove({ path: scratch.uri("dlink") });
  assert.equal(existsSync(scratch.path("m")), false);
  assert.equal(existsSync(scratch.path("dlink")), false);
  assert.equal(existsSync(scratch.path("keep/me")), true);
  scratch.directory("empty");
  await remove({ path: scratch.uri("empty"), recursive: false });
  assert.equal(existsSync(scratch.path("empty")), false);
});

test("ignores a missing path unless force is false", async (t) => {
  const scratch = new Scratch(t);
  scratch.file("a.txt");
  await remove({ path: scratch.uri("zz") });
  await remove({ path: scratch.uri("zz/deeper") });
  await assert.rejects(remove({ path: scratch.uri("zz"), force: false }), NOT_FOUND);
  await assert.rejects(remove({ path: scratch.uri("a.txt/x") }), NOT_A_DIRECTORY);
});

test("rejects removing the root directory", async () => {
  await assert.rejects(remove({ path: "file:///" }), { code: -32600 });
  await assert.rejects(remove({ path: "file:///tmp/.." }), { code: -32600 });
});

test("removes one entry with followSymlinks: false and rejects links and trees", async (t) => {
  const scratch = new Scratch(t);
  scratch.file("sub/a");
  scratch.link("dlink", "sub");
  const withoutFollowing = (name: string, recursive = false) =>
    remove({ path: scratch.uri(name), recursive, followSymlinks: false });
  await assert.rejects(withoutFollowing("dlink"), HAS_LINK);
  await assert.rejects(withoutFollowing("dlink/a"), NOT_A_DIRECTORY);
  await assert.rejects(withoutFollowing("sub", true), refusal(-32603, "recursive no-follow removal is unsupported"));
  await withoutFollowing("sub/a");
  await withoutFollowing("sub/a");
  await withoutFollowing("sub");
  assert.equal(existsSync(scratch.path("sub")), false);
});

test("copies a file with its mode over an existing file", async (t) => {
  const scratch = new Scratch(t);
  scratch.file("a", "one", 0o755);
  scratch.file("there", "a longer text");
  await copy({ sourcePath: scratch.uri("a"), destinationPath: scratch.uri("b"), recursive: false });
  await copy({ sourcePath: scratch.uri("a"), destinationPath: scratch.uri("there"), recursive: false });
  assert.equal(readFileSync(scratch.path("there"), "utf8"), "one");
  assert.equal(statSync(scratch.path("b")).mode & 0o777, 0o755 & ~process.umask());
});

test("leaves a file that is copied onto itself unchanged", async (t) => {
  const scratch = new Scratch(t);
  scratch.file("a", "content");
  scratch.link("link", "a");
  await copy({ sourcePath: scratch.uri("a"), destinationPath: scratch.uri("a"), recursive: false });
  await copy({ sourcePath: scratch.uri("a"), destinationPath: scratch.uri("link"), recursive: false });
  assert.equal(readFileSync(scratch.path("a"), "utf8"), "content");
});

test("copies a link as a link and never over an existing entry", async (t) => {
  const scratch = new Scratch(t);
  scratch.file("a");
  scratch.link("link", "a");
  scratch.link("broken", "nowhere");
  const to = (from: string, name: string) =>
    copy({ sourcePath: scratch.uri(from), destinationPath: scratch.uri(name), recursive: false });
  await to("link", "l2");
  await to("broken", "b2");
  assert.equal(readlinkSync(scratch.path("l2")), "a");
  assert.equal(readlinkSync(scratch.path("b2")), "nowhere");
  await assert.rejects(to("link", "a"), FILE_EXISTS);
});

test("copies a tree with its links to a new or existing directory", async (t) => {
  const scratch = new Scratch(t);
  scratch.file("src/deep/f", "1");
  scratch.file("src/g", "2");
  scratch.fifo("src/pipe");
  scratch.link("src/out", "../elsewhere");
  scratch.file("there/g", "old");
  scratch.file("there/own", "kept");
  const to = (name: string, recursive = true) =>
    copy({ sourcePath: scratch.uri("src"), destinationPath: scratch.uri(name), recursive });
  await to("new/below/x");
  assert.equal(readFileSync(scratch.path("new/below/x/deep/f"), "utf8"), "1");
  assert.equal(readlinkSync(scratch.path("new/below/x/out")), "../elsewhere");
  assert.equal(existsSync(scratch.path("new/below/x/pipe")), false);
  await to("there");
  assert.equal(readFileSync(scratch.path("there/g"), "utf8"), "2");
  assert.equal(readFileSync(scratch.path("there/own"), "utf8"), "kept");
  await assert.rejects(
    to("y", false),
    refusal(-32600, "fs/copy requires recursive: true when sourcePath is a directory"),
  );
  await assert.rejects(to("there/g"), FILE_EXISTS);
});

test("rejects copying a tree into itself by any path", async (t) => {
  const scratch = new Scratch(t);
  scratch.file("sub/f");
  scratch.link("dlink", "sub");
  const into = refusal(-32600, "fs/copy cannot copy a directory to itself or one of its descendants");
  for (const name of ["sub", "sub/inner", "sub/a/b/c", "dlink/inner"]) {
    await assert.rejects(
      copy({ sourcePath: scratch.uri("sub"), destinationPath: scratch.uri(name), recursive: true }),
      into,
      name,
    );
  }
  await copy({ sourcePath: scratch.uri("sub"), destinationPath: scratch.uri("subx"), recursive: true });
});

test("rejects devices and pipes as source and destination of a copy", async (t) => {
  const scratch = new Scratch(t);
  scratch.fifo("pipe");
  scratch.file("a");
  const kinds = refusal(-32600, "fs/copy only supports regular files, directories, and symlinks");
  const to = (from: string, name: string) => copy({ sourcePath: from, destinationPath: name, recursive: true });
  await assert.rejects(to(scratch.uri("pipe"), scratch.uri("p2")), kinds);
  await assert.rejects(to("file:///dev/null", scratch.uri("n")), kinds);
  await assert.rejects(to(scratch.uri("a"), scratch.uri("pipe")), kinds);
  await assert.rejects(to(scratch.uri("a"), "file:///dev/null"), kinds);
  await assert.rejects(to(scratch.uri("a"), scratch.uri()), IS_A_DIRECTORY);
  await assert.rejects(to(scratch.uri("zz"), scratch.uri("n")), NOT_FOUND);
  await assert.rejects(to(scratch.uri("a"), scratch.uri("no/such")), NOT_FOUND);
});

test("lists, copies and removes names that are not UTF-8", async (t) => {
  const scratch = new Scratch(t);
  const name = Buffer.from("od\xffd", "latin1");
  const at = (directory: string) => Buffer.concat([Buffer.from(`${scratch.path(directory)}/`), name]);
  mkdirSync(scratch.path("src"));
  writeFileSync(at("src"), "1");
  symlinkSync(name, Buffer.concat([at("src"), Buffer.from("-link")]));
  await copy({ sourcePath: scratch.uri("src"), destinationPath: scratch.uri("dst"), recursive: true });
  assert.equal(readFileSync(at("dst"), "utf8"), "1");
  assert.equal((await readDirectory({ path: scratch.uri("dst") })).entries.length, 2);
  assert.ok(lstatSync(Buffer.concat([at("dst"), Buffer.from("-link")])).isSymbolicLink());
  assert.equal((await canonicalize({ path: `${scratch.uri("dst")}/od%FFd-link` })).path, uriFromPath(at("dst")));
  await remove({ path: uriFromPath(at("dst")) });
  assert.equal(existsSync(at("dst")), false);
});

test("reports the system error for a symbolic link that points to itself", async (t) => {
  const scratch = new Scratch(t);
  scratch.link("loop", "loop");
  await assert.rejects(getMetadata({ path: scratch.uri("loop") }), LINK_LOOP);
});
