import assert from "node:assert/strict";
import { randomBytes } from "node:crypto";
import { type FileHandle, open, readFile } from "node:fs/promises";
import { join } from "node:path";
import { describe, test } from "node:test";
import { writeBytes, writeBytesAt } from "../../src/files/read-write.ts";
import { scratchDirectory } from "../support/servers/serve.ts";

const KIB = 1024;

/** A file handle that records the writes, and writes at most `maxBytes` at once. */
function recording(file: FileHandle, maxBytes = Number.POSITIVE_INFINITY) {
  const lengths: number[] = [];
  const write = (bytes: Uint8Array, offset: number, length: number, position: number | null) => {
    lengths.push(length);
    return file.write(bytes, offset, Math.min(length, maxBytes), position);
  };
  return { file: { write } as unknown as FileHandle, lengths };
}

describe("writes to a file", () => {
  for (const bytes of [0, 1, 128 * KIB - 1, 128 * KIB, 128 * KIB + 1, 1024 * KIB]) {
    test(`have at most 128 KiB per system call, for ${bytes} bytes`, async () => {
      using scratch = scratchDirectory();
      const data = randomBytes(bytes);
      const path = join(scratch.path, "file");
      await using handle = await open(path, "w");
      const { file, lengths } = recording(handle);
      await writeBytes(file, data);
      await writeBytesAt(file, data, bytes + 5);
      assert.equal(lengths.length, 2 * Math.ceil(bytes / (128 * KIB)));
      assert.ok(lengths.every((length) => length <= 128 * KIB));
      const gap = bytes === 0 ? 0 : 5;
      assert.ok((await readFile(path)).equals(Buffer.concat([data, Buffer.alloc(gap), data])));
    });
  }

  test("continue after a short write", async () => {
    using scratch = scratchDirectory();
    const data = randomBytes(300 * KIB);
    const path = join(scratch.path, "file");
    await using handle = await open(path, "w");
    const { file } = recording(handle, 50_000);
    await writeBytesAt(file, data, 0);
    await writeBytes(file, data.subarray(0, 100_000));
    assert.ok((await readFile(path)).equals(Buffer.concat([data.subarray(0, 100_000), data.subarray(100_000)])));
  });

  test("end before a failure is reported, because the caller may then free the bytes", async () => {
    const running = Array.from({ length: 8 }, () => Promise.withResolvers<{ bytesWritten: number }>());
    let started = 0;
    const file = { write: () => running[started++]?.promise } as unknown as FileHandle;
    let isSettled = false;
    const written = writeBytesAt(file, new Uint8Array(1024 * KIB), 0).finally(() => {
      isSettled = true;
    });
    const rejected = assert.rejects(written, /no space/);
    assert.equal(started, 8);
    running[0]?.reject(new Error("no space"));
    for (const { resolve } of running.slice(1)) {
      await new Promise((next) => setImmediate(next));
      assert.equal(isSettled, false);
      resolve({ bytesWritten: 128 * KIB });
    }
    await rejected;
  });
});
