import assert from "node:assert/strict";
import { execFileSync } from "node:child_process";
import { chmodSync, writeFileSync } from "node:fs";
import { type TestContext, test } from "node:test";
import fc from "fast-check";
import type { WalkParams } from "../../src/files/file-system.ts";
import { MAX_WALK_RESPONSE_BYTES, walk } from "../../src/files/walk.ts";
import { NOT_FOUND, refusal, Scratch } from "./scratch.ts";

const wide = { maxDepth: 10, maxDirectories: 100, maxEntries: 100, followDirectorySymlinks: false };
type Options = Partial<WalkParams["options"]>;

async function walked(scratch: Scratch, options: Options = {}, root = "") {
  const base = scratch.uri();
  const result = await walk({ path: scratch.uri(root), options: { ...wide, ...options } });
  const short = (path: string) => path.slice(base.length + 1);
  return {
    paths: result.entries.map(({ path, kind }) => (kind === "directory" ? `${short(path)}/` : short(path))),
    errors: result.errors.map(({ path, message }) => [short(path), message]),
    truncated: result.truncated,
  };
}

function tree(t: TestContext): Scratch {
  const scratch = new Scratch(t);
  scratch.directory(".git/x");
  scratch.file("sub/b");
  scratch.directory("sub/deep");
  scratch.link("sub/up", "..");
  scratch.link("dlink", "sub");
  scratch.link("flink", "sub/b");
  scratch.link("broken", "nowhere");
  scratch.link("loop", "loop");
  scratch.fifo("pipe");
  return scratch;
}

test("fs/walk lists a tree breadth first and sorted, without links and special files", async (t) => {
  const result = await walked(tree(t));
  assert.deepEqual(result, {
    paths: [".git/", "sub/", ".git/x/", "sub/b", "sub/deep/"],
    errors: [],
    truncated: false,
  });
});

test("fs/walk enters each directory once, by its first path, when it follows links", async (t) => {
  const { paths } = await walked(tree(t), { followDirectorySymlinks: true });
  assert.deepEqual(paths, [".git/", "dlink/", "sub/", ".git/x/", "dlink/b", "dlink/deep/", "dlink/up/"]);
});

test("fs/walk lists but does not enter hidden directories with pruneHiddenDirectories, except the root", async (t) => {
  const scratch = tree(t);
  assert.deepEqual((await walked(scratch, { pruneHiddenDirectories: true })).paths, [
    ".git/",
    "sub/",
    "sub/b",
    "sub/deep/",
  ]);
  assert.deepEqual((await walked(scratch, { pruneHiddenDirectories: true }, ".git")).paths, [".git/x/"]);
});

test("fs/walk applies the depth limit without reporting truncation", async (t) => {
  const scratch = tree(t);
  assert.deepEqual(await walked(scratch, { maxDepth: 0 }), {
    paths: [".git/", "sub/"],
    errors: [],
    truncated: false,
  });
  assert.equal((await walked(scratch, { maxDepth: 0, maxDirectories: 1 })).truncated, false);
});

test("fs/walk reports truncation by a limit", async (t) => {
  const scratch = tree(t);
  assert.deepEqual(await walked(scratch, { maxDirectories: 1 }), {
    paths: [".git/", "sub/"],
    errors: [],
    truncated: true,
  });
  // Every visited entry counts, listed or not, except broken links.
  assert.deepEqual(await walked(scratch, { maxEntries: 7 }), {
    paths: [".git/", "sub/", ".git/x/", "sub/b"],
    errors: [],
    truncated: true,
  });
  assert.equal((await walked(scratch, { maxEntries: 9 })).truncated, false);
});

test("fs/walk rejects limits of zero and above the protocol's maximums", async (t) => {
  const scratch = new Scratch(t);
  const beyond = refusal(-32600, "filesystem walk limits exceed maximums: depth=64, directories=10000, entries=50000");
  await assert.rejects(walked(scratch, { maxEntries: 50_001 }), beyond);
  await assert.rejects(walked(scratch, { maxDepth: 65 }), beyond);
  await assert.rejects(walked(scratch, { maxDirectories: 10_001 }), beyond);
  const nothing = refusal(-32600, "filesystem walk limits must be greater than zero");
  await assert.rejects(walked(scratch, { maxEntries: 0 }), nothing);
  await assert.rejects(walked(scratch, { maxDirectories: 0 }), nothing);
});

test("fs/walk returns no entries for a file, follows a root link only on request and rejects a missing root", async (t) => {
  const scratch = tree(t);
  assert.deepEqual((await walked(scratch, {}, "sub/b")).paths, []);
  assert.deepEqual((await walked(scratch, {}, "pipe")).paths, []);
  assert.deepEqual((await walked(scratch, {}, "dlink")).paths, []);
  assert.deepEqual((await walked(scratch, { followDirectorySymlinks: true, maxDepth: 0 }, "dlink")).paths, [
    "dlink/b",
    "dlink/deep/",
    "dlink/up/",
  ]);
  await assert.rejects(walked(scratch, {}, "zz"), NOT_FOUND);
  await assert.rejects(walked(scratch, {}, "broken"), NOT_FOUND);
});

test("fs/walk reports a directory without permission and walks the rest", { skip: asRoot() }, async (t) => {
  const scratch = new Scratch(t);
  scratch.file("a/inside");
  scratch.file("b/f");
  chmodSync(scratch.path("a"), 0);
  t.after(() => chmodSync(scratch.path("a"), 0o755));
  assert.deepEqual(await walked(scratch), {
    paths: ["a/", "b/", "b/f"],
    errors: [["a", "Permission denied (os error 13)"]],
    truncated: false,
  });
});

test("fs/walk reports an unreadable directory and walks the rest", {
  skip: notLinux(),
}, async (t) => {
  const scratch = new Scratch(t);
  // The path is too long for a system call although each name is short. Only a shell can create and remove it.
  const down = `n=${"d".repeat(250)}; for i in 1 2 3 4 5 6 7 8 9 10 11 12 13 14 15 16 17 18; do mkdir $n; cd -P $n; done`;
  execFileSync("sh", ["-c", down], { cwd: scratch.directory("a") });
  t.after(() => execFileSync("rm", ["-rf", scratch.path("a")]));
  scratch.file("b/f");
  const result = await walked(scratch, { maxDepth: 64 });
  assert.deepEqual(
    result.errors.map(([, message]) => message),
    ["Filename too long (os error 36)"],
  );
  assert.ok(result.paths.includes("b/f"));
  assert.equal(result.truncated, false);
});

test("fs/walk limits the size of the response for long names", async (t) => {
  const scratch = new Scratch(t);
  const directories = Array.from({ length: 12 }, (_, at) => `${at}`.padStart(2, "0") + "d".repeat(200));
  let deep = "";
  for (const directory of directories) deep = `${deep}${directory}/`;
  scratch.directory(deep);
  for (let at = 0; at < 2000; at++) writeFileSync(scratch.path(deep, `${at}`.padStart(4, "0")), "");
  const result = await walk({ path: scratch.uri(), options: { ...wide, maxDepth: 64, maxEntries: 50_000 } });
  assert.equal(result.truncated, true);
  assert.ok(result.entries.length > 100);
  assert.ok(result.entries.reduce((sum, { path }) => sum + path.length, 0) <= MAX_WALK_RESPONSE_BYTES);
});

test("fs/walk returns names of any bytes as URIs, sorted by their bytes", async (t) => {
  const scratch = new Scratch(t);
  const names = ["100%", "a b", "ü", "z", "𐀀", "\uffee"];
  for (const name of names) scratch.file(name);
  writeFileSync(Buffer.concat([Buffer.from(`${scratch.root}/`), Buffer.from([0xff])]), "");
  assert.deepEqual((await walked(scratch)).paths, [
    "100%25",
    "a%20b",
    "z",
    "%C3%BC",
    "%EF%BF%AE",
    "%F0%90%80%80",
    "%FF",
  ]);
});

test("fs/walk returns a prefix of the whole result for any limits and reports truncation", async (t) => {
  const scratch = tree(t);
  const whole = (await walked(scratch)).paths;
  await fc.assert(
    fc.asyncProperty(
      fc.integer({ min: 1, max: 12 }),
      fc.integer({ min: 1, max: 6 }),
      async (maxEntries, maxDirectories) => {
        const part = await walked(scratch, { maxEntries, maxDirectories });
        assert.deepEqual(part.paths, whole.slice(0, part.paths.length));
        if (!part.truncated) assert.equal(part.paths.length, whole.length);
      },
    ),
    { numRuns: 30 },
  );
});

function asRoot(): string | false {
  return process.getuid?.() === 0 ? "root may enter every directory" : false;
}

function notLinux(): string | false {
  return process.platform === "linux" ? false : "the error's number is that of Linux";
}
