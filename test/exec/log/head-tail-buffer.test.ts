import assert from "node:assert/strict";
import { test } from "node:test";
import fc from "fast-check";
import { HeadTailBuffer } from "../../../src/exec/log/head-tail-buffer.ts";

/** Sizes around the limits of packed blocks. */
const size = fc.oneof(
  { weight: 4, arbitrary: fc.nat({ max: 40 }) },
  fc.constantFrom(0, 1, 511, 512, 1023, 1024, 1025, 16_383, 16_384, 16_385, 70_000),
);

test("HeadTailBuffer retains exactly the first and last bytes for any chunk sizes", () => {
  fc.assert(
    fc.property(
      fc.array(size, { maxLength: 30 }),
      fc.oneof(fc.nat({ max: 60 }), fc.nat({ max: 40_000 })),
      fc.oneof(fc.nat({ max: 60 }), fc.nat({ max: 40_000 })),
      (sizes, headBytes, tailBytes) => {
        const buffer = new HeadTailBuffer({ headBytes, tailBytes });
        const all: Uint8Array[] = [];
        let at = 0;
        for (const length of sizes) {
          const chunk = Uint8Array.from({ length }, () => at++ % 251);
          all.push(chunk);
          buffer.push(chunk);
        }
        const whole = Buffer.concat(all);
        const head = whole.subarray(0, headBytes);
        const rest = whole.subarray(head.length);
        const tail = rest.subarray(Math.max(0, rest.length - tailBytes));
        assert.equal(buffer.totalBytes, whole.length);
        assert.equal(buffer.omittedBytes, whole.length - head.length - tail.length);
        assert.ok(head.equals(buffer.head()));
        assert.ok(tail.equals(buffer.tail()));
        assert.ok(Buffer.concat([head, tail]).equals(buffer.bytes()));
      },
    ),
    { numRuns: 400 },
  );
});

test("HeadTailBuffer does not change returned bytes on later pushes", () => {
  const buffer = new HeadTailBuffer({ headBytes: 4, tailBytes: 4 });
  buffer.push(Uint8Array.of(1, 2, 3, 4, 5, 6));
  const before = buffer.bytes();
  const copy = Uint8Array.from(before);
  buffer.push(Uint8Array.of(7, 8, 9));
  assert.deepEqual(before, copy);
  assert.deepEqual([...buffer.bytes()], [1, 2, 3, 4, 6, 7, 8, 9]);
});

test("HeadTailBuffer uses memory close to the retained bytes for a million chunks of one byte", () => {
  const buffer = new HeadTailBuffer({ headBytes: 1024, tailBytes: 64 * 1024 });
  const byte = Uint8Array.of(7);
  const before = process.memoryUsage().arrayBuffers;
  for (let n = 0; n < 1_000_000; n++) buffer.push(byte);
  const grown = process.memoryUsage().arrayBuffers - before;
  assert.ok(grown < 4 * 1024 * 1024, `${grown} bytes for 65 KiB kept`);
  assert.equal(buffer.omittedBytes, 1_000_000 - 65 * 1024);
});

test("HeadTailBuffer drops blocks of 1 KiB, then of twice the size up to 64 KiB, as soon as the tail does not need them", () => {
  const tailBytes = 100;
  const buffer = new HeadTailBuffer({ headBytes: 0, tailBytes });
  const byte = Uint8Array.of(7);
  const drops: number[] = [];
  for (let total = 1; total <= 300_000; total++) {
    const before = buffer.retainedBytes;
    buffer.push(byte);
    if (buffer.retainedBytes > before) continue;
    assert.equal(buffer.retainedBytes, tailBytes);
    drops.push(total);
  }
  // The sums of 1, 2, 4, 8, 16, 32, 64, 64 and 64 KiB.
  const ends = [1, 3, 7, 15, 31, 63, 127, 191, 255].map((kib) => kib * 1024);
  assert.deepEqual(
    drops,
    ends.map((end) => end + tailBytes),
  );
});
