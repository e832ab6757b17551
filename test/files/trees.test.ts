/** Copying and removing files and directory trees, by the addon's threads and by Node. */
import assert from "node:assert/strict";
import {
  chmodSync,
  existsSync,
  lstatSync,
  mkdirSync,
  readdirSync,
  readFileSync,
  readlinkSync,
  renameSync,
  rmSync,
  statSync,
  symlinkSync,
  writeFileSync,
} from "node:fs";
import { join } from "node:path";
import { describe, test } from "node:test";
import { setImmediate } from "node:timers/promises";
import fc from "fast-check";
import { hasErrorCode } from "../../src/base/error-code.ts";
import { readDirectory } from "../../src/files/directories.ts";
import type { FileTrees } from "../../src/files/file-trees.ts";
import { createLocalFileSystem, plainFileTrees } from "../../src/files/local-file-system.ts";
import { canonicalize } from "../../src/files/metadata.ts";
import { loadAddon } from "../../src/native/load-addon.ts";
import { nativeFileTrees } from "../../src/native/native-file-trees.ts";
import { uriFromPath } from "../../src/protocol/path-uri.ts";
import { FILE_EXISTS, IS_A_DIRECTORY, NOT_A_DIRECTORY, NOT_FOUND, refusal, Scratch } from "./scratch.ts";

const HAS_LINK = refusal(-32600, "path contains a symbolic link");
const KINDS = refusal(-32600, "fs/copy only supports regular files, directories, and symlinks");
const loaded = loadAddon();
assert.equal(loaded.type, "loaded");
const implementations: [string, FileTrees][] = [
  ["the addon", nativeFileTrees(loaded.type === "loaded" ? loaded.addon : assert.fail())],
  ["Node", plainFileTrees],
];

for (const [name, trees] of implementations) {
  const { copy, remove } = createLocalFileSystem(trees);

  describe(`trees by ${name}`, () => {
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
      await assert.rejects(
        withoutFollowing("sub", true),
        refusal(-32603, "recursive no-follow removal is unsupported"),
      );
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

    test("copies and removes a tree that is deeper than the limit of descriptors", async (t) => {
      const scratch = new Scratch(t);
      const deep = Array.from({ length: 1_200 }, () => "d").join("/");
      scratch.file(`src/${deep}/f`, "deep");
      await copy({ sourcePath: scratch.uri("src"), destinationPath: scratch.uri("dst"), recursive: true });
      assert.equal(readFileSync(scratch.path(`dst/${deep}/f`), "utf8"), "deep");
      for (const root of ["src", "dst"]) await remove({ path: scratch.uri(root) });
      assert.deepEqual(readdirSync(scratch.path("")), []);
    });

    test("stops a copy of a tree at an entry that it cannot replace", async (t) => {
      const scratch = new Scratch(t);
      scratch.file("src/a/f", "1");
      scratch.fifo("dst/a/f");
      const copied = copy({ sourcePath: scratch.uri("src"), destinationPath: scratch.uri("dst"), recursive: true });
      await assert.rejects(copied, KINDS);
      scratch.file("other/a", "a file where the tree has a directory");
      const replaced = copy({ sourcePath: scratch.uri("src"), destinationPath: scratch.uri("other"), recursive: true });
      await assert.rejects(replaced, FILE_EXISTS);
    });

    test("writes through a link of the destination to the file that it names", async (t) => {
      const scratch = new Scratch(t);
      scratch.file("src/f", "new");
      scratch.file("src/g", "new");
      scratch.file("target", "a longer old text");
      scratch.link("dst/f", "../target");
      scratch.link("dst/g", "../missing");
      await copy({ sourcePath: scratch.uri("src"), destinationPath: scratch.uri("dst"), recursive: true });
      for (const written of ["target", "missing"]) assert.equal(readFileSync(scratch.path(written), "utf8"), "new");
    });

    test("removes a tree with many directories of different depth", async (t) => {
      const scratch = new Scratch(t);
      for (let n = 0; n < 200; n++) scratch.file(`src/${n % 40}/${"d/".repeat(n % 7)}${n}`);
      scratch.file("keep/me");
      scratch.link("src/3/out", "../../keep");
      await remove({ path: scratch.uri("src") });
      assert.deepEqual(readdirSync(scratch.path("")), ["keep"]);
      assert.equal(existsSync(scratch.path("keep/me")), true);
    });

    test("runs many operations at once", async (t) => {
      const scratch = new Scratch(t);
      for (let n = 0; n < 50; n++) scratch.file(`src/${n % 5}/${n}`, `${n}`);
      const copies = Array.from({ length: 12 }, (_, n) =>
        copy({ sourcePath: scratch.uri("src"), destinationPath: scratch.uri(`copy-${n}`), recursive: true }),
      );
      await Promise.all(copies);
      for (let n = 0; n < 12; n++) assert.equal(readFileSync(scratch.path(`copy-${n}/4/49`), "utf8"), "49");
      await Promise.all(copies.map((_, n) => remove({ path: scratch.uri(`copy-${n}`) })));
      assert.deepEqual(readdirSync(scratch.path("")), ["src"]);
    });
  });
}

/** Everything below a directory that a copy preserves: kinds, contents, link targets and the modes of files. */
function manifest(root: string): string[] {
  return readdirSync(root, { recursive: true, withFileTypes: true })
    .map((entry) => {
      const path = join(entry.parentPath, entry.name);
      const shown = path.slice(root.length);
      if (entry.isSymbolicLink()) return `${shown} -> ${readlinkSync(path)}`;
      if (!entry.isFile()) return `${shown}/`;
      return `${shown} ${(lstatSync(path).mode & 0o7777).toString(8)} ${readFileSync(path, "latin1")}`;
    })
    .toSorted();
}

type Node = { name: string; mode: number } & (
  | { type: "file"; bytes: number }
  | { type: "link" }
  | { type: "directory" }
);

const nodeName = fc.constantFrom("a", "b", "c", "d e", "\u00fc");
const node: fc.Arbitrary<{ path: string[]; node: Node }> = fc.record({
  path: fc.array(nodeName, { maxLength: 3 }),
  node: fc.oneof(
    fc.record({
      type: fc.constant("file" as const),
      name: nodeName,
      mode: fc.constantFrom(0o600, 0o644, 0o755, 0o400),
      bytes: fc.constantFrom(0, 1, 5_000, 300_000),
    }),
    fc.record({ type: fc.constant("link" as const), name: nodeName, mode: fc.constant(0) }),
    fc.record({ type: fc.constant("directory" as const), name: nodeName, mode: fc.constant(0) }),
  ),
});

/** Creates the nodes whose place is free. */
function build(root: string, nodes: readonly { path: string[]; node: Node }[]): void {
  mkdirSync(root);
  for (const { path, node: made } of nodes) {
    const at = join(root, ...path, made.name);
    try {
      mkdirSync(join(root, ...path), { recursive: true });
      if (made.type === "directory") mkdirSync(at);
      else if (made.type === "link") symlinkSync("some/target", at);
      else {
        writeFileSync(at, "x".repeat(made.bytes), { flag: "wx" });
        chmodSync(at, made.mode);
      }
    } catch {
      // Another node has this place.
    }
  }
}

async function listed(trees: FileTrees, path: string): Promise<unknown[]> {
  const { walk, readDirectory } = createLocalFileSystem(trees);
  const limits = { maxDepth: 10, maxDirectories: 50, maxEntries: 50 };
  const walked = [true, false].map((followDirectorySymlinks) =>
    walk({ path: uriFromPath(path), options: { ...limits, followDirectorySymlinks } }),
  );
  const { entries } = await readDirectory({ path: uriFromPath(path) });
  return [...(await Promise.all(walked)), entries.toSorted((a, b) => (a.fileName < b.fileName ? -1 : 1))];
}

test("the addon removes nothing behind a link that replaces a directory during the removal", async (t) => {
  const [, trees] = implementations[0] ?? assert.fail();
  const { remove } = createLocalFileSystem(trees);
  const scratch = new Scratch(t);
  const count = 200;
  for (let n = 0; n < count; n++) scratch.file(`keep/${n}/f`);
  for (let run = 0; run < 4; run++) {
    for (let n = 0; n < count; n++) scratch.file(`src/a/${n}/f`);
    const removal = remove({ path: scratch.uri("src") }).catch(() => "stopped at the link");
    // The removal has begun in `a` once a file is missing.
    while (existsSync(scratch.path("src/a/0/f")) && existsSync(scratch.path(`src/a/${count - 1}/f`)))
      await setImmediate();
    try {
      renameSync(scratch.path("src/a"), scratch.path("moved"));
      symlinkSync("../keep", scratch.path("src/a"));
    } catch (error) {
      // The removal was faster.
      assert.ok(hasErrorCode(error, "ENOENT", "ENOTEMPTY"), String(error));
    }
    await removal;
    const kept = readdirSync(scratch.path("keep")).filter((name) => existsSync(scratch.path(`keep/${name}/f`)));
    assert.equal(kept.length, count);
    for (const path of ["src", "moved"]) rmSync(scratch.path(path), { recursive: true, force: true });
  }
});

test("the addon and Node list the same entries", async (t) => {
  const scratch = new Scratch(t);
  for (const name of ["b", "a b", "é", "sub/x", "sub/.hidden/y"]) scratch.file(name);
  writeFileSync(Buffer.concat([Buffer.from(`${scratch.path("")}/`), Buffer.from([0x61, 0xff])]), "");
  for (const [name, target] of Object.entries({ broken: "nowhere", loop: "loop", to: "sub", file: "b" }))
    scratch.link(name, target);
  scratch.fifo("pipe");
  const [byAddon, byNode] = await Promise.all(implementations.map(([, trees]) => listed(trees, scratch.path(""))));
  assert.deepEqual(byAddon, byNode);
  for (const [, trees] of implementations) {
    assert.equal((await trees.list(scratch.path(""), 3)).truncated, true);
    await assert.rejects(trees.list(scratch.path("b"), 3), { code: "ENOTDIR" });
    await assert.rejects(trees.list(scratch.path("missing"), 3), { code: "ENOENT" });
  }
});

test("the addon and Node copy the same trees over the same destinations", async (t) => {
  const scratch = new Scratch(t);
  let run = 0;
  const property = fc.asyncProperty(fc.array(node), fc.array(node, { maxLength: 4 }), async (source, existing) => {
    const base = scratch.path(`${++run}`);
    mkdirSync(base);
    build(join(base, "src"), source);
    const outcomes: unknown[] = [];
    for (const [label, trees] of implementations) {
      const destination = join(base, `dst-${label}`);
      build(destination, existing);
      const { copy } = createLocalFileSystem(trees);
      const failure = await copy({
        sourcePath: uriFromPath(join(base, "src")),
        destinationPath: uriFromPath(destination),
        recursive: true,
      }).catch((error: Error) => error.message);
      // A failed copy stops at an entry that depends on the order of the directory.
      outcomes.push(failure ?? manifest(destination));
    }
    assert.deepEqual(outcomes[0], outcomes[1]);
    const [byAddon, byNode] = await Promise.all(implementations.map(([, trees]) => listed(trees, join(base, "src"))));
    assert.deepEqual(byAddon, byNode);
    for (const [, trees] of implementations) await createLocalFileSystem(trees).remove({ path: uriFromPath(base) });
    assert.equal(existsSync(base), false);
  });
  await fc.assert(property, { numRuns: 100 });
});
