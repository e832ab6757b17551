import assert from "node:assert/strict";
import { lstatSync, readFileSync, statSync, truncateSync } from "node:fs";
import { type FileHandle, open } from "node:fs/promises";
import { describe, type TestContext, test } from "node:test";
import { waitForTick } from "../../src/async/slices.ts";
import { MAX_READ_FILE_BYTES, openFile, readFile, writeFile } from "../../src/files/read-write.ts";
import { IS_A_DIRECTORY, LINK_LOOP, NOT_A_DIRECTORY, NOT_FOUND, refusal, Scratch } from "./scratch.ts";

/** Returns an array that gets the length of each buffer when a read into it has finished: 0 if it was freed. */
async function watchReads(t: TestContext, path: string): Promise<number[]> {
  const finished: number[] = [];
  await using handle = await open(path);
  const prototype: FileHandle = Object.getPrototypeOf(handle);
  const original = prototype.read;
  t.mock.method(prototype, "read", async function (this: FileHandle, buffer: Buffer, ...range: unknown[]) {
    const result: unknown = await Reflect.apply(original, this, [buffer, ...range]);
    finished.push(buffer.length);
    return result;
  });
  return finished;
}

const bytes = (text: string) => Buffer.from(text);
const read = async (uri: string) => Buffer.from((await readFile({ path: uri })).data).toString();

test("reads the exact bytes of a file and of an empty file", async (t) => {
  const scratch = new Scratch(t);
  scratch.file("b.bin", Buffer.from([0xff, 0x00, 0x01]));
  scratch.file("empty");
  assert.deepEqual([...(await readFile({ path: scratch.uri("b.bin") })).data], [0xff, 0, 1]);
  assert.equal((await readFile({ path: scratch.uri("empty") })).data.byteLength, 0);
});

describe("a file that is read in parts", () => {
  const content = Buffer.from(Array.from({ length: 700_000 }, (_, at) => (at * 7) % 251));

  /** Reads a file in parts and calls `change` after the first part. */
  async function readParts(t: TestContext, change: (path: string) => void): Promise<Buffer[]> {
    const scratch = new Scratch(t);
    scratch.file("large", content);
    const file = await openFile({ path: scratch.uri("large") });
    assert.equal(file.size, content.length);
    const parts: Buffer[] = [];
    for (let part = await file.next(); part.length > 0; part = await file.next()) {
      parts.push(Buffer.from(part));
      if (parts.length === 1) change(scratch.path("large"));
    }
    await file.close();
    return parts;
  }

  test("has the exact bytes, in parts whose base64 can be concatenated", async (t) => {
    const parts = await readParts(t, () => undefined);
    assert.ok(Buffer.concat(parts).equals(content));
    assert.equal(parts.map((part) => part.toString("base64")).join(""), content.toString("base64"));
  });

  for (const partsBefore of [0, 1]) {
    test(`frees no memory while a read writes to it, if it is closed during read ${partsBefore + 1}`, async (t) => {
      const scratch = new Scratch(t);
      scratch.file("large", content);
      const file = await openFile({ path: scratch.uri("large") });
      const finished = await watchReads(t, scratch.path("large"));
      for (let count = 0; count < partsBefore; count++) await file.next();
      const pending = file.next();
      await file.close();
      await pending;
      await waitForTick();
      assert.ok(finished.length > partsBefore);
      assert.ok(finished.every((bytesLeft) => bytesLeft > 0));
    });
  }

  test("ends where it ends after it was truncated", async (t) => {
    const parts = await readParts(t, (path) => truncateSync(path, 500_000));
    assert.ok(Buffer.concat(parts).equals(content.subarray(0, 500_000)));
  });

  test("ends at its former size although it grew", async (t) => {
    const parts = await readParts(t, (path) => truncateSync(path, 2_000_000));
    assert.ok(Buffer.concat(parts).equals(content));
  });
});

test("reads files without a size", { skip: noProc() }, async () => {
  const { data } = await readFile({ path: "file:///proc/self/status" });
  assert.match(Buffer.from(data).toString(), /^Name:/);
});

test("reads through links and rejects them with followSymlinks: false", async (t) => {
  const scratch = new Scratch(t);
  scratch.file("sub/a.txt", "hello");
  scratch.link("link", "sub/a.txt");
  scratch.link("dlink", "sub");
  scratch.link("broken", "nowhere");
  assert.equal(await read(scratch.uri("link")), "hello");
  assert.equal(await read(scratch.uri("dlink/a.txt")), "hello");
  const withoutFollowing = (name: string) => readFile({ path: scratch.uri(name), followSymlinks: false });
  await assert.rejects(withoutFollowing("link"), LINK_LOOP);
  await assert.rejects(withoutFollowing("broken"), LINK_LOOP);
  await assert.rejects(withoutFollowing("dlink/a.txt"), NOT_A_DIRECTORY);
  await assert.rejects(withoutFollowing("zz"), NOT_FOUND);
  assert.equal(Buffer.from((await withoutFollowing("sub/a.txt")).data).toString(), "hello");
});

test("rejects directories, devices and pipes without blocking", async (t) => {
  const scratch = new Scratch(t);
  scratch.fifo("pipe");
  const not = (path: string) => refusal(-32600, `path \`${path}\` is not a file`);
  await assert.rejects(readFile({ path: scratch.uri() }), not(scratch.root));
  await assert.rejects(readFile({ path: scratch.uri("pipe") }), not(scratch.path("pipe")));
  await assert.rejects(readFile({ path: "file:///dev/null" }), not("/dev/null"));
  await assert.rejects(
    readFile({ path: scratch.uri("pipe"), followSymlinks: false }),
    refusal(-32600, "path is not a regular file"),
  );
});

test("reports a missing path and a file in the path", async (t) => {
  const scratch = new Scratch(t);
  scratch.file("a.txt");
  await assert.rejects(readFile({ path: scratch.uri("zz") }), NOT_FOUND);
  await assert.rejects(readFile({ path: scratch.uri("a.txt/x") }), NOT_A_DIRECTORY);
  await assert.rejects(readFile({ path: scratch.path("a.txt") }), { code: -32602 });
});

test("rejects a file above the limit without reading it", async (t) => {
  const scratch = new Scratch(t);
  truncateSync(scratch.file("huge"), MAX_READ_FILE_BYTES + 1);
  await assert.rejects(
    readFile({ path: scratch.uri("huge") }),
    refusal(-32600, "file is too large to read: limit is 536870912 bytes"),
  );
});

test("rejects a file without a size when it exceeds the limit", { skip: noProc() }, async () => {
  await assert.rejects(readFile({ path: "file:///proc/self/status" }, { maxBytes: 10 }), { code: -32600 });
});

test("reads a file of exactly the limit", async (t) => {
  const scratch = new Scratch(t);
  scratch.file("ten", "0123456789");
  assert.equal((await readFile({ path: scratch.uri("ten") }, { maxBytes: 10 })).data.byteLength, 10);
  await assert.rejects(readFile({ path: scratch.uri("ten") }, { maxBytes: 9 }), { code: -32600 });
});

test("reads and writes a file whose name is not UTF-8", async (t) => {
  const scratch = new Scratch(t);
  const uri = `${scratch.uri()}/n%FFme`;
  await writeFile({ path: uri, data: bytes("odd") });
  assert.equal(await read(uri), "odd");
  const withoutFollowing = await readFile({ path: uri, followSymlinks: false });
  assert.equal(Buffer.from(withoutFollowing.data).toString(), "odd");
});

test("creates a file with the default mode and keeps the mode of a replaced file", async (t) => {
  const scratch = new Scratch(t);
  const umask = process.umask();
  await writeFile({ path: scratch.uri("new"), data: bytes("long content") });
  assert.equal(statSync(scratch.path("new")).mode & 0o777, 0o644 & ~umask);
  await writeFile({ path: scratch.uri("new"), data: bytes("short") });
  assert.equal(readFileSync(scratch.path("new"), "utf8"), "short");
  scratch.file("run.sh", "x", 0o755);
  await writeFile({ path: scratch.uri("run.sh"), data: bytes("y") });
  assert.equal(statSync(scratch.path("run.sh")).mode & 0o777, 0o755 & ~umask);
});

test("writes through a link and rejects it with followSymlinks: false", async (t) => {
  const scratch = new Scratch(t);
  scratch.file("sub/a.txt", "old");
  scratch.link("link", "sub/a.txt");
  scratch.link("dlink", "sub");
  const withoutFollowing = (name: string) =>
    writeFile({ path: scratch.uri(name), data: bytes("bad"), followSymlinks: false });
  await assert.rejects(withoutFollowing("link"), LINK_LOOP);
  await assert.rejects(withoutFollowing("dlink/a.txt"), NOT_A_DIRECTORY);
  await assert.rejects(withoutFollowing("dlink/new"), NOT_A_DIRECTORY);
  assert.equal(readFileSync(scratch.path("sub/a.txt"), "utf8"), "old");
  await writeFile({ path: scratch.uri("link"), data: bytes("new") });
  assert.equal(readFileSync(scratch.path("sub/a.txt"), "utf8"), "new");
  assert.ok(lstatSync(scratch.path("link")).isSymbolicLink());
  await withoutFollowing("sub/a.txt");
  assert.equal(readFileSync(scratch.path("sub/a.txt"), "utf8"), "bad");
});

test("rejects writing to a missing directory, a directory or a pipe", async (t) => {
  const scratch = new Scratch(t);
  scratch.fifo("pipe");
  await assert.rejects(writeFile({ path: scratch.uri("no/such"), data: bytes("") }), NOT_FOUND);
  await assert.rejects(writeFile({ path: scratch.uri(), data: bytes("") }), IS_A_DIRECTORY);
  await assert.rejects(
    writeFile({ path: scratch.uri("pipe"), data: bytes("x") }),
    refusal(-32603, "No such device or address (os error 6)"),
  );
  await writeFile({ path: "file:///dev/null", data: bytes("x") });
  await assert.rejects(
    writeFile({ path: "file:///dev/null", data: bytes("x"), followSymlinks: false }),
    refusal(-32600, "path is not a regular file"),
  );
});

function noProc(): string | false {
  return process.platform === "linux" ? false : "needs /proc";
}
