import assert from "node:assert/strict";
import { createCipheriv, createHash } from "node:crypto";
import { existsSync, lstatSync, readdirSync, readFileSync, statSync, symlinkSync, writeFileSync } from "node:fs";
import { type TestContext, test } from "node:test";
import { FileHandles } from "../../src/files/file-handles.ts";
import { scan } from "../../src/files/scan.ts";
import { writeAtomic } from "../../src/files/write-atomic.ts";
import { IS_A_DIRECTORY, LINK_LOOP, NOT_FOUND, refusal, Scratch } from "./scratch.ts";

const sha256 = (text: string) => createHash("sha256").update(text).digest("hex");
const gmac = (text: string, key: Uint8Array) => {
  const cipher = createCipheriv("aes-128-gcm", key, new Uint8Array(12)).setAAD(Buffer.from(text));
  cipher.final();
  return cipher.getAuthTag().toString("hex");
};

function handles(t: TestContext): FileHandles {
  const table = new FileHandles();
  t.after(() => table.close());
  return table;
}

test("fs/commit commits a partial file only if size and checksum match", async (t) => {
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
      digest: sum,
      modifiedAtMs: 1_600_000_000_000,
    });
  const sum = sha256("hello world");
  await assert.rejects(commit(12, sum), refusal(-32600, "commit: partial file has 11 bytes, source has 12"));
  await assert.rejects(
    commit(11, sha256("x")),
    refusal(-32600, "commit: checksum of the partial file differs from the source"),
  );
  assert.equal(readFileSync(scratch.path("file"), "utf8"), "old");
  await commit(11, sum);
  assert.equal(readFileSync(scratch.path("file"), "utf8"), "hello world");
  assert.deepEqual(readdirSync(scratch.root), ["file"]);
  const { mode, mtimeMs } = statSync(scratch.path("file"));
  assert.deepEqual([mode & 0o777, mtimeMs], [0o640, 1_600_000_000_000]);
});

const KEY = new Uint8Array(16).fill(7);
for (const [name, gmacKey, digestOf] of [
  ["SHA-256", undefined, sha256],
  ["GMAC", KEY, (text: string) => gmac(text, KEY)],
] as const)
  test(`fs/checksum returns the ${name} of the content for any write order`, async (t) => {
    const scratch = new Scratch(t);
    const table = handles(t);
    await table.openPartial({ handleId: "p", path: scratch.uri("part") });
    const write = (offset: number, text: string) =>
      table.writeBlock({ handleId: "p", offset, chunk: Buffer.from(text) });
    const sum = async (length: number) => (await table.checksum({ handleId: "p", length, gmacKey })).digest;
    await write(0, "abc");
    await write(6, "ghi");
    await write(3, "def");
    assert.equal(await sum(9), digestOf("abcdefghi"));
    await write(9, "jkl");
    assert.equal(await sum(12), digestOf("abcdefghijkl"));
    await write(0, "X");
    assert.equal(await sum(9), digestOf("Xbcdefghi"));
    assert.equal(await sum(2), digestOf("Xb"));
    assert.equal(await sum(0), digestOf(""));
    assert.equal(await sum(13), null);
  });

test("fs/checksum computes the checksum again with another key, and fs/commit uses the latest", async (t) => {
  const scratch = new Scratch(t);
  const table = handles(t);
  await table.openPartial({ handleId: "p", path: scratch.uri("part") });
  const sum = async (gmacKey?: Uint8Array) =>
    (await table.checksum({ handleId: "p", length: 3, gmacKey }).catch((error) => error)).digest;
  await table.checksum({ handleId: "p", length: 0, gmacKey: KEY });
  await table.writeBlock({ handleId: "p", offset: 0, chunk: Buffer.from("abc") });
  const other = new Uint8Array(16).fill(8);
  assert.deepEqual(
    [await sum(KEY), await sum(), await sum(other)],
    [gmac("abc", KEY), sha256("abc"), gmac("abc", other)],
  );
  await assert.rejects(
    table.checksum({ handleId: "p", length: 3, gmacKey: new Uint8Array(15) }),
    refusal(-32600, "checksum: `gmacKey` has 15 bytes, expected 16"),
  );
  const commit = (digest: string) => table.commit({ handleId: "p", path: scratch.uri("file"), size: 3, digest });
  await assert.rejects(
    commit(sha256("abc")),
    refusal(-32600, "commit: checksum of the partial file differs from the source"),
  );
  await commit(gmac("abc", other));
  assert.equal(readFileSync(scratch.path("file"), "utf8"), "abc");
});

test("fs/openPartial resumes a partial file and rejects a link at its path", async (t) => {
  const scratch = new Scratch(t);
  const table = handles(t);
  scratch.file("part", "abc");
  assert.deepEqual(await table.openPartial({ handleId: "p", path: scratch.uri("part") }), { size: 3 });
  assert.equal((await table.checksum({ handleId: "p", length: 3 })).digest, sha256("abc"));
  scratch.link("link", "part");
  await assert.rejects(table.openPartial({ handleId: "l", path: scratch.uri("link") }), LINK_LOOP);
});

test("fs/writeAtomic creates a file or a link atomically and replaces no directory or pipe", async (t) => {
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

test("fs/scan returns a directory in sorted pages without missing a name", async (t) => {
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
