import assert from "node:assert/strict";
import { describe, test } from "node:test";
import fc from "fast-check";
import { base64Length, nodeByteCodec } from "../../src/connection/byte-codec.ts";
import { loadAddon } from "../../src/native/load-addon.ts";

const native = loadAddon();
const codecs = {
  plain: nodeByteCodec,
  ...(native.type === "loaded" && { native: native.addon }),
};

if (native.type !== "loaded")
  test("the native codec", { skip: `native addon not available: ${JSON.stringify(native)}` }, () => undefined);

for (const [name, codec] of Object.entries(codecs)) {
  describe(`the ${name} codec`, () => {
    test("encodes base64 at an offset of a buffer, and changes no other bytes", () => {
      fc.assert(
        fc.property(
          fc.uint8Array({ maxLength: 200 }),
          fc.nat({ max: 9 }),
          fc.nat({ max: 9 }),
          (bytes, before, shift) => {
            // A view of a larger buffer, as most chunks are.
            const source = Buffer.concat([Buffer.alloc(shift, 1), bytes]).subarray(shift);
            const length = base64Length(bytes.length);
            const target = Buffer.alloc(before + length + 5, 0xee);
            assert.equal(codec.base64Encode(source, target, before), length);
            assert.equal(target.toString("latin1", before, before + length), Buffer.from(bytes).toString("base64"));
            assert.ok(target.subarray(0, before).every((byte) => byte === 0xee));
            assert.ok(target.subarray(before + length).every((byte) => byte === 0xee));
          },
        ),
      );
    });

    test("masks and unmasks any part of a buffer in place, with any key", () => {
      fc.assert(
        fc.property(
          fc.uint8Array({ maxLength: 300 }),
          fc.nat({ max: 20 }),
          fc.nat({ max: 300 }),
          fc.integer({ min: 0, max: 0xffffffff }),
          (bytes, offset, length, key) => {
            const from = Math.min(offset, bytes.length);
            const count = Math.min(length, bytes.length - from);
            const mask = [key >>> 24, (key >>> 16) & 255, (key >>> 8) & 255, key & 255];
            const expected = bytes.map((byte, at) =>
              at >= from && at < from + count ? byte ^ (mask[(at - from) % 4] ?? 0) : byte,
            );
            const buffer = Buffer.from(bytes);
            codec.unmask(buffer, from, count, key);
            assert.deepEqual([...buffer], [...expected]);
            codec.unmask(buffer, from, count, key);
            assert.deepEqual([...buffer], [...bytes]);
          },
        ),
        { numRuns: 500 },
      );
    });
  });
}
