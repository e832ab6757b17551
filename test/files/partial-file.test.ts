import assert from "node:assert/strict";
import { createHash } from "node:crypto";
import { existsSync, lstatSync, readdirSync, readFileSync, statSync, symlinkSync, writeFileSync } from "node:fs";
import { type TestContext, test } from "node:test";
import { FileHandles } from "../../src/files/file-handles.ts";
import { scan } from "../../src/files/scan.ts";
import { writeAtomic } from "../../src/files/write-atomic.ts";
import { IS_A_DIRECTORY, LINK_LOOP, NOT_FOUND, refusal, Scratch } from "./scratch.ts";

const sha256 = (text: string) => createHash("sha256").update(text).digest("hex");

function handles(t: TestContext): FileHandles {
  const table = new FileHandles();
  t.after(() => table.close());
  return table;
}

test("commits a partial file only if size and SHA-256 match", async (t) => {
  const scratch = new Scratch(t);
  const table = handles(t);
  scratch.file("file", "old", 0o640);
  assert.deepEqual(await table.openPartial({ handleId: "p", path: scratch.uri("part") }), { size: 0 });
  assert.equal(statSync(scratch.path("part")).mode & 0o777, 0o600);
  await table.writeBlock({ handleId: "p", offset: 0, chunk: Buffer.from("hello ") });
  await table.writeBlock({ handleId: "p", offset: 6, chunk: Buffer.from("world") });
  const commit = (size: number, sum: string) =>
    table.commit({
      handleId: "p",
      path: scratch.uri("file"),
      size,
      sha256: sum,
      modifiedAtMs: 1_600_000_000_000,
    });
  const sum = sha256("hello world");
  await assert.rejects(commit(12, sum), refusal(-32600, "commit: partial file has 11 bytes, source has 12"));
  await assert.rejects(
    commit(11, sha256("x")),
    refusal(-32600, "commit: SHA-256 of the partial file differs from the source"),
  );
  assert.equal(readFileSync(scratch.path("file"), "utf8"), "old");
  await commit(11, sum);
  assert.equal(readFileSync(scratch.path("file"), "utf8"), "hello world");
  assert.deepEqual(readdirSync(scratch.root), ["file"]);
  const { mode, mtimeMs } = statSync(scratch.path("file"));
  assert.deepEqual([mode & 0o777, mtimeMs], [0o640, 1_600_000_000_000]);
});

test("returns the checksum of the content for any write order", async (t) => {
  const scratch = new Scratch(t);
  const table = handles(t);
  await table.openPartial({ handleId: "p", path: scratch.uri("part") });
  const write = (offset: number, text: string) => table.writeBlock({ handleId: "p", offset, chunk: Buffer.from(text) });
  const sum = async (length: number) => (await table.checksum({ handleId: "p", length })).sha256;
  await write(0, "abc");
  await write(6, "ghi");
  await write(3, "def");
  assert.equal(await sum(9), sha256("abcdefghi"));
  await write(0, "X");
  assert.equal(await sum(9), sha256("Xbcdefghi"));
  assert.equal(await sum(2), sha256("Xb"));
  assert.equal(await sum(0), sha256(""));
  assert.equal(await sum(10), null);
});

test("resumes a partial file and rejects a link at its path", async (t) => {
  const scratch = new Scratch(t);
  const table = handles(t);
  scratch.file("part", "abc");
  assert.deepEqual(await table.openPartial({ handleId: "p", path: scratch.uri("part") }), { size: 3 });
  assert.equal((await table.checksum({ handleId: "p", length: 3 })).sha256, sha256("abc"));
  scratch.link("link", "part");
  await assert.rejects(table.openPartial({ handleId: "l", path: scratch.uri("link") }), LINK_LOOP);
});

test("creates a file or a link atomically and replaces no directory or pipe", async (t) => {
  const scratch = new Scratch(t);
  const chunk = Buffer.from("new");
  symlinkSync("elsewhere", scratch.path("link"));
  writeFileSync(scratch.path("elsewhere"), "kept");
  await writeAtomic({ path: scratch.uri("link"), chunk, mode: 0o4755 });
  assert.equal(readFileSync(scratch.path("elsewhere"), "utf8"), "kept");
  // The setuid bit is not copied.
  assert.equal(lstatSync(scratch.path("link")).mode & 0o7777, 0o755);
  await writeAtomic({ path: scratch.uri("link"), target: "to%20there" });
  assert.equal(lstatSync(scratch.path("link")).isSymbolicLink(), true);
  scratch.directory("directory");
  scratch.fifo("pipe");
  await assert.rejects(writeAtomic({ path: scratch.uri("directory"), chunk }), IS_A_DIRECTORY);
  await assert.rejects(
    writeAtomic({ path: scratch.uri("pipe"), chunk }),
    refusal(-32600, `path \`${scratch.path("pipe")}\` is not a file`),
  );
  await assert.rejects(writeAtomic({ path: scratch.uri("no/where"), chunk }), NOT_FOUND);
  const both = "fs/writeAtomic: exactly one of `chunk` and `target` is required";
  await assert.rejects(writeAtomic({ path: scratch.uri("x") }), refusal(-32602, both));
  assert.equal(existsSync(scratch.path("x")), false);
  assert.deepEqual(readdirSync(scratch.root).sort(), ["directory", "elsewhere", "link", "pipe"]);
});

test("scans a directory in sorted pages without missing a name", async (t) => {
  const scratch = new Scratch(t);
  const names = ["%41", "A", "a b", "a", "ä", "z"];
  for (const name of names) scratch.file(name);
  const seen: string[] = [];
  for (let after: string | undefined; ; after = seen.at(-1)) {
    const page = await scan({ path: scratch.uri(), after }, 2);
    assert.ok(page.entries.length <= 2);
    seen.push(...page.entries.map(({ name }) => name));
    if (!page.more) break;
  }
  assert.deepEqual(seen.map(decodeURIComponent).sort(), names.sort());
});
