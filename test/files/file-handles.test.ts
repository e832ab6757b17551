import assert from "node:assert/strict";
import { existsSync, readdirSync, readFileSync, readlinkSync } from "node:fs";
import { test } from "node:test";
import fc from "fast-check";
import { FileHandles, MAX_FILE_HANDLES } from "../../src/files/file-handles.ts";
import { MAX_BLOCK_BYTES } from "../../src/protocol/file-schemas.ts";
import { IS_A_DIRECTORY, LINK_LOOP, NOT_FOUND, refusal, Scratch } from "./scratch.ts";

const BAD_DESCRIPTOR = refusal(-32603, "Bad file descriptor (os error 9)");
const unknown = (id: string) => refusal(-32004, `unknown file handle \`${id}\``);

function handles(t: { after(fn: () => Promise<void>): void }): FileHandles {
  const table = new FileHandles();
  t.after(() => table.close());
  return table;
}

test("FileHandles reads blocks at any offset and reports the end with a short block", async (t) => {
  const scratch = new Scratch(t);
  scratch.file("s", "0123456789");
  const table = handles(t);
  assert.deepEqual(await table.open({ handleId: "h", path: scratch.uri("s") }), { handleId: "h" });
  const read = async (offset: number, len: number) => {
    const { chunk, eof } = await table.readBlock({ handleId: "h", offset, len });
    return [Buffer.from(chunk).toString(), eof];
  };
  assert.deepEqual(await read(0, 4), ["0123", false]);
  assert.deepEqual(await read(5, 5), ["56789", false]);
  assert.deepEqual(await read(8, 5), ["89", true]);
  assert.deepEqual(await read(10, 1), ["", true]);
  assert.deepEqual(await read(5_000_000, 1), ["", true]);
  assert.deepEqual(await read(Number.MAX_SAFE_INTEGER - 1, 1), ["", true]);
  assert.deepEqual(await read(0, MAX_BLOCK_BYTES), ["0123456789", true]);
});

test("FileHandles rejects a block of less than one byte or more than 1 MiB", async (t) => {
  const table = handles(t);
  const length = (what: string) => refusal(-32600, `file ${what} block length must be between 1 and 1048576`);
  for (const len of [0, MAX_BLOCK_BYTES + 1]) {
    await assert.rejects(table.readBlock({ handleId: "none", offset: 0, len }), length("read"));
    const chunk = Buffer.alloc(len);
    await assert.rejects(table.writeBlock({ handleId: "none", offset: 0, chunk }), length("write"));
  }
});

test("FileHandles truncates a file on replace and writes blocks at any offset", async (t) => {
  const scratch = new Scratch(t);
  scratch.file("w", "what was there");
  const table = handles(t);
  await table.open({ handleId: "w", path: scratch.uri("w"), mode: "replace" });
  assert.equal(readFileSync(scratch.path("w"), "utf8"), "");
  const write = (offset: number, text: string) => table.writeBlock({ handleId: "w", offset, chunk: Buffer.from(text) });
  await write(0, "hello");
  await write(10, "zz");
  await write(0, "HE");
  await write(5, " world");
  await table.closeHandle({ handleId: "w" });
  assert.equal(readFileSync(scratch.path("w"), "utf8"), "HEllo worldz");
  await table.open({ handleId: "n", path: scratch.uri("new"), mode: "replace" });
  assert.equal(existsSync(scratch.path("new")), true);
});

test("FileHandles allows only the mode that a handle was opened with", async (t) => {
  const scratch = new Scratch(t);
  scratch.file("f", "x");
  const table = handles(t);
  await table.open({ handleId: "r", path: scratch.uri("f") });
  await table.open({ handleId: "w", path: scratch.uri("g"), mode: "replace" });
  await assert.rejects(table.writeBlock({ handleId: "r", offset: 0, chunk: Buffer.from("y") }), BAD_DESCRIPTOR);
  await assert.rejects(table.readBlock({ handleId: "w", offset: 0, len: 1 }), BAD_DESCRIPTOR);
  assert.equal(readFileSync(scratch.path("f"), "utf8"), "x");
});

test("FileHandles rejects an id in use and accepts closing an unknown id", async (t) => {
  const scratch = new Scratch(t);
  scratch.file("f", "x");
  const table = handles(t);
  const open = () => table.open({ handleId: "h", path: scratch.uri("f") });
  await open();
  await assert.rejects(open(), refusal(-32600, "file handle `h` already exists"));
  await table.closeHandle({ handleId: "h" });
  await table.closeHandle({ handleId: "h" });
  await assert.rejects(table.readBlock({ handleId: "h", offset: 0, len: 1 }), unknown("h"));
  await assert.rejects(table.writeBlock({ handleId: "h", offset: 0, chunk: Buffer.from("x") }), unknown("h"));
  await open();
});

test("FileHandles accepts one of two concurrent opens with the same id", async (t) => {
  const scratch = new Scratch(t);
  scratch.file("f");
  const table = handles(t);
  const both = await Promise.allSettled([1, 2].map(() => table.open({ handleId: "h", path: scratch.uri("f") })));
  assert.deepEqual(both.map(({ status }) => status).sort(), ["fulfilled", "rejected"]);
});

test("FileHandles accepts ids of 0 to 32 bytes", async (t) => {
  const scratch = new Scratch(t);
  scratch.file("f");
  const table = handles(t);
  const open = (handleId: string) => table.open({ handleId, path: scratch.uri("f") });
  await open("");
  await open("ü".repeat(16));
  await assert.rejects(open("ü".repeat(17)), refusal(-32600, "file handle ID must not exceed 32 bytes"));
});

test("FileHandles limits a connection to 128 open files and does not count failed opens", async (t) => {
  const scratch = new Scratch(t);
  scratch.file("f");
  const table = handles(t);
  for (let at = 0; at < 10; at++) {
    await assert.rejects(table.open({ handleId: `no${at}`, path: scratch.uri("zz") }), NOT_FOUND);
  }
  const open = (id: number) => table.open({ handleId: `${id}`, path: scratch.uri("f") });
  await Promise.all(Array.from({ length: MAX_FILE_HANDLES }, (_, id) => open(id)));
  await assert.rejects(open(999), refusal(-32600, "at most 128 file handles may be open per connection"));
  await table.closeHandle({ handleId: "5" });
  await open(999);
});

test("FileHandles opens regular files only and does not block on a pipe", async (t) => {
  const scratch = new Scratch(t);
  scratch.fifo("pipe");
  scratch.link("loop", "loop");
  const table = handles(t);
  const open = (path: string, mode: "read" | "replace") => table.open({ handleId: "h", path, mode });
  const not = (path: string) => refusal(-32600, `path \`${path}\` is not a file`);
  await assert.rejects(open(scratch.uri(), "read"), not(scratch.root));
  await assert.rejects(open("file:///dev/zero", "read"), not("/dev/zero"));
  await assert.rejects(open(scratch.uri("pipe"), "read"), not(scratch.path("pipe")));
  await assert.rejects(open("file:///dev/null", "replace"), not("/dev/null"));
  await assert.rejects(open(scratch.uri(), "replace"), IS_A_DIRECTORY);
  await assert.rejects(open(scratch.uri("pipe"), "replace"), { code: -32603 });
  await assert.rejects(open(scratch.uri("loop"), "replace"), LINK_LOOP);
  await assert.rejects(open(scratch.uri("no/such"), "replace"), NOT_FOUND);
});

test("FileHandles closes every file when it is closed, including a file that is being opened", {
  skip: noProc(),
}, async (t) => {
  const scratch = new Scratch(t);
  scratch.file("f");
  const table = new FileHandles();
  await table.open({ handleId: "a", path: scratch.uri("f") });
  const opening = table.open({ handleId: "b", path: scratch.uri("f") });
  await table.close();
  await opening;
  await table.close();
  assert.deepEqual(openFilesBelow(scratch.root), []);
  await assert.rejects(table.open({ handleId: "c", path: scratch.uri("f") }), { code: -32600 });
});

test("FileHandles assembles a file from blocks of any order and size", async (t) => {
  const scratch = new Scratch(t);
  const table = handles(t);
  const block = fc.record({
    offset: fc.nat({ max: 300 }),
    chunk: fc.uint8Array({ minLength: 1, maxLength: 80 }),
  });
  await fc.assert(
    fc.asyncProperty(fc.array(block, { minLength: 1, maxLength: 12 }), async (blocks) => {
      await table.open({ handleId: "w", path: scratch.uri("f"), mode: "replace" });
      const expected = Buffer.alloc(Math.max(...blocks.map(({ offset, chunk }) => offset + chunk.length)));
      for (const { offset, chunk } of blocks) {
        await table.writeBlock({ handleId: "w", offset, chunk });
        expected.set(chunk, offset);
      }
      await table.closeHandle({ handleId: "w" });
      assert.deepEqual(readFileSync(scratch.path("f")), expected);
    }),
    { numRuns: 40 },
  );
});

function openFilesBelow(root: string): string[] {
  const paths = readdirSync("/proc/self/fd").map((fd) => {
    try {
      return readlinkSync(`/proc/self/fd/${fd}`);
    } catch {
      // The descriptor of this listing.
      return "";
    }
  });
  return paths.filter((path) => path.startsWith(root));
}

function noProc(): string | false {
  return process.platform === "linux" ? false : "needs /proc";
}
