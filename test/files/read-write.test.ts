import assert from "node:assert/strict";
import { lstatSync, readFileSync, statSync, truncateSync } from "node:fs";
import { test } from "node:test";
import { MAX_READ_FILE_BYTES, readFile, writeFile } from "../../src/files/read-write.ts";
import { IS_A_DIRECTORY, LINK_LOOP, NOT_A_DIRECTORY, NOT_FOUND, refusal, Scratch } from "./scratch.ts";

const bytes = (text: string) => Buffer.from(text);
const read = async (uri: string) => Buffer.from((await readFile({ path: uri })).data).toString();

test("reads a file's bytes as they are, also the empty file's", async (t) => {
  const scratch = new Scratch(t);
  scratch.file("b.bin", Buffer.from([0xff, 0x00, 0x01]));
  scratch.file("empty");
  assert.deepEqual([...(await readFile({ path: scratch.uri("b.bin") })).data], [0xff, 0, 1]);
  assert.equal((await readFile({ path: scratch.uri("empty") })).data.byteLength, 0);
});

test("reads files that report no size", { skip: noProc() }, async () => {
  const { data } = await readFile({ path: "file:///proc/self/status" });
  assert.match(Buffer.from(data).toString(), /^Name:/);
});

test("reads through links and refuses them when told not to follow", async (t) => {
  const scratch = new Scratch(t);
  scratch.file("sub/a.txt", "hello");
  scratch.link("link", "sub/a.txt");
  scratch.link("dlink", "sub");
  scratch.link("broken", "nowhere");
  assert.equal(await read(scratch.uri("link")), "hello");
  assert.equal(await read(scratch.uri("dlink/a.txt")), "hello");
  const careful = (name: string) => readFile({ path: scratch.uri(name), followSymlinks: false });
  await assert.rejects(careful("link"), LINK_LOOP);
  await assert.rejects(careful("broken"), LINK_LOOP);
  await assert.rejects(careful("dlink/a.txt"), NOT_A_DIRECTORY);
  await assert.rejects(careful("zz"), NOT_FOUND);
  assert.equal(Buffer.from((await careful("sub/a.txt")).data).toString(), "hello");
});

test("reads only files: no directory, no device, no pipe, and never waits for one", async (t) => {
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

test("names the path that is missing or in the way", async (t) => {
  const scratch = new Scratch(t);
  scratch.file("a.txt");
  await assert.rejects(readFile({ path: scratch.uri("zz") }), NOT_FOUND);
  await assert.rejects(readFile({ path: scratch.uri("a.txt/x") }), NOT_A_DIRECTORY);
  await assert.rejects(readFile({ path: scratch.path("a.txt") }), { code: -32602 });
});

test("refuses a file over the limit without reading it", async (t) => {
  const scratch = new Scratch(t);
  truncateSync(scratch.file("huge"), MAX_READ_FILE_BYTES + 1);
  await assert.rejects(
    readFile({ path: scratch.uri("huge") }),
    refusal(-32600, "file is too large to read: limit is 536870912 bytes"),
  );
});

test("refuses a file that reports no size once it exceeds the limit", { skip: noProc() }, async () => {
  await assert.rejects(readFile({ path: "file:///proc/self/status" }, { maxBytes: 10 }), { code: -32600 });
});

test("a file of exactly the limit is read", async (t) => {
  const scratch = new Scratch(t);
  scratch.file("ten", "0123456789");
  assert.equal((await readFile({ path: scratch.uri("ten") }, { maxBytes: 10 })).data.byteLength, 10);
  await assert.rejects(readFile({ path: scratch.uri("ten") }, { maxBytes: 9 }), { code: -32600 });
});

test("reads and writes a file whose name is no UTF-8", async (t) => {
  const scratch = new Scratch(t);
  const uri = `${scratch.uri()}/n%FFme`;
  await writeFile({ path: uri, data: bytes("odd") });
  assert.equal(await read(uri), "odd");
  const careful = await readFile({ path: uri, followSymlinks: false });
  assert.equal(Buffer.from(careful.data).toString(), "odd");
});

test("creates a file with the usual mode, replaces what was there, keeps its mode", async (t) => {
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

test("writes through a link, and refuses it untouched when told not to follow", async (t) => {
  const scratch = new Scratch(t);
  scratch.file("sub/a.txt", "old");
  scratch.link("link", "sub/a.txt");
  scratch.link("dlink", "sub");
  const careful = (name: string) =>
    writeFile({ path: scratch.uri(name), data: bytes("bad"), followSymlinks: false });
  await assert.rejects(careful("link"), LINK_LOOP);
  await assert.rejects(careful("dlink/a.txt"), NOT_A_DIRECTORY);
  await assert.rejects(careful("dlink/new"), NOT_A_DIRECTORY);
  assert.equal(readFileSync(scratch.path("sub/a.txt"), "utf8"), "old");
  await writeFile({ path: scratch.uri("link"), data: bytes("new") });
  assert.equal(readFileSync(scratch.path("sub/a.txt"), "utf8"), "new");
  assert.ok(lstatSync(scratch.path("link")).isSymbolicLink());
  await careful("sub/a.txt");
  assert.equal(readFileSync(scratch.path("sub/a.txt"), "utf8"), "bad");
});

test("refuses to write where no file can be", async (t) => {
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
