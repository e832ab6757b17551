import assert from "node:assert/strict";
import { existsSync, mkdtempSync, readdirSync, rmSync } from "node:fs";
import { tmpdir } from "node:os";
import { join } from "node:path";
import { test } from "node:test";
import fc from "fast-check";
import { OutputArchive } from "../../../src/tools/output/output-archive.ts";
import { OutputArchiveStore } from "../../../src/tools/output/output-archive-store.ts";

function scratch(): Disposable & { path: string } {
  const path = mkdtempSync(join(tmpdir(), "procwire-archive-"));
  return { path, [Symbol.dispose]: () => rmSync(path, { recursive: true, force: true, maxRetries: 10 }) };
}

const LIMITS = { memoryBytes: 32, fileBytes: 100 };

test("short output stays in memory", async () => {
  using directory = scratch();
  const archive = new OutputArchive(async () => join(directory.path, "file"), LIMITS);
  await archive.append(Buffer.from("0123456789"));
  assert.deepEqual(readdirSync(directory.path), []);
  assert.deepEqual(String(Buffer.from((await archive.read(3, 4)).bytes)), "3456");
});

test("any retained range of any output can be read", async () => {
  const chunks = fc.array(fc.uint8Array({ minLength: 1, maxLength: 40 }), { maxLength: 8 });
  await fc.assert(
    fc.asyncProperty(chunks, fc.nat(320), fc.integer({ min: 1, max: 64 }), async (given, offset, length) => {
      using directory = scratch();
      const archive = new OutputArchive(async () => join(directory.path, "file"), LIMITS);
      for (const chunk of given) await archive.append(chunk);
      const all = Buffer.concat(given);
      assert.equal(archive.totalBytes, all.length);
      // The first 100 bytes are in the file, the last 16 in memory.
      const tailStart = Math.max(0, all.length - 16);
      assert.equal(archive.omittedBytes, Math.max(0, tailStart - 100));
      const range = await archive.read(offset, length);
      const expected = Math.min(offset, all.length);
      const begins = expected < 100 || all.length <= 32 ? expected : Math.max(expected, tailStart);
      assert.equal(range.offset, begins);
      assert.deepEqual(Buffer.from(range.bytes), all.subarray(begins, begins + range.bytes.length));
      if (begins < all.length) assert.ok(range.bytes.length > 0);
      await archive.dispose();
      assert.deepEqual(readdirSync(directory.path), []);
    }),
  );
});

test("if no file can be created, head and tail are retained and omitted bytes are counted", async () => {
  const archive = new OutputArchive(async () => "/proc/no/such/place", LIMITS);
  await archive.append(Buffer.from("a".repeat(50)));
  await archive.append(Buffer.from("b".repeat(50)));
  assert.equal(archive.omittedBytes, 100 - 32);
  assert.equal(String(Buffer.from((await archive.read(0, 100)).bytes)), "a".repeat(16));
  assert.deepEqual(await archive.read(40, 100), { bytes: new Uint8Array(16).fill(0x62), offset: 84 });
});

test("the store retains the output of running and of the last 64 ended sessions, and close removes its files", async () => {
  using directory = scratch();
  const store = new OutputArchiveStore(directory.path, LIMITS);
  for (let id = 1; id <= 70; id++) {
    const archive = await store.open(id);
    await archive.append(Buffer.from("x".repeat(40)));
    // The first one still runs.
    if (id > 1) await store.markEnded(id);
  }
  assert.deepEqual(
    [1, 2, 6, 7, 70].map((id) => store.get(id) !== null),
    [true, false, false, true, true],
  );
  const [made = ""] = readdirSync(directory.path);
  assert.equal(readdirSync(join(directory.path, made)).length, 65);
  await store.close();
  assert.ok(!existsSync(join(directory.path, made)));
});
