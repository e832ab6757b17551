import assert from "node:assert/strict";
import { after, describe, test } from "node:test";
import fc from "fast-check";
import { addon, NO_ADDON } from "./started.ts";

describe("the addon's byte functions", { skip: NO_ADDON }, () => {
  after(() => addon().forcePlainPaths(false));
  const bytes = fc.uint8Array({ maxLength: 700, size: "max" });

  for (const plain of [false, true]) {
    const how = plain ? "plainly" : "with wide instructions where the machine has them";

    test(`encode base64 as Node does, ${how}`, () => {
      addon().forcePlainPaths(plain);
      fc.assert(
        fc.property(bytes, fc.nat(5), (source, offset) => {
          const expected = Buffer.from(source).toString("base64");
          const target = Buffer.alloc(offset + expected.length + 3, 0xee);
          assert.equal(addon().base64Encode(source, target, offset), expected.length);
          assert.equal(target.toString("latin1", offset, offset + expected.length), expected);
          assert.ok(target.subarray(0, offset).every((byte) => byte === 0xee));
          assert.ok(target.subarray(offset + expected.length).every((byte) => byte === 0xee));
        }),
        { numRuns: 500 },
      );
    });

    test(`decode their own output into a buffer of exactly that size, ${how}`, () => {
      addon().forcePlainPaths(plain);
      fc.assert(
        fc.property(bytes, fc.nat(5), (source, offset) => {
          const text = Buffer.from("!".repeat(offset) + Buffer.from(source).toString("base64"));
          const target = new Uint8Array(source.length);
          assert.equal(addon().base64Decode(text, offset, text.length - offset, target), source.length);
          assert.deepEqual(target, source);
        }),
        { numRuns: 500 },
      );
    });

    test(`reject text that is not canonical base64, ${how}`, () => {
      addon().forcePlainPaths(plain);
      const decode = (text: string) =>
        addon().base64Decode(Buffer.from(text, "latin1"), 0, text.length, new Uint8Array(text.length));
      const long = Buffer.alloc(96, 1).toString("base64");
      for (const wrong of [
        "a",
        "ab",
        "abc",
        "YQ",
        "YR==",
        "YWE",
        "YWF=",
        "=",
        "====",
        "a===",
        "ab=c",
        "YW\nE",
        "_-8=",
        "YQ==YQ==",
        "\xff\xff\xff\xff",
      ])
        assert.equal(decode(wrong), -1, JSON.stringify(wrong));
      fc.assert(
        fc.property(fc.nat(long.length - 1), fc.integer({ min: 0, max: 255 }), (at, value) => {
          const text = long.slice(0, at) + String.fromCharCode(value) + long.slice(at + 1);
          const right = Buffer.from(text, "latin1");
          const canonical = Buffer.from(text, "base64").toString("base64") === text;
          const target = new Uint8Array(long.length);
          const length = addon().base64Decode(right, 0, right.length, target);
          if (!canonical) assert.equal(length, -1, text);
          else assert.deepEqual(Buffer.from(target.subarray(0, length)), Buffer.from(text, "base64"));
        }),
        { numRuns: 2000 },
      );
    });

    test(`unmask only the given range of a buffer, ${how}`, () => {
      addon().forcePlainPaths(plain);
      fc.assert(
        fc.property(
          bytes,
          fc.nat(40),
          fc.nat(40),
          fc.uint8Array({ minLength: 4, maxLength: 4 }),
          (source, from, until, key) => {
            const offset = Math.min(from, source.length);
            const length = Math.max(0, source.length - offset - until);
            const expected = Uint8Array.from(source, (byte, at) =>
              at >= offset && at < offset + length ? byte ^ (key[(at - offset) % 4] ?? 0) : byte,
            );
            const actual = Uint8Array.from(source);
            addon().unmask(actual, offset, length, Buffer.from(key).readUInt32BE(0));
            assert.deepEqual(actual, expected);
          },
        ),
        { numRuns: 500 },
      );
    });
  }

  test("write nothing if the buffer is too small for the result", () => {
    assert.equal(addon().base64Encode(Buffer.alloc(10), Buffer.alloc(15), 0), -1);
    assert.equal(addon().base64Encode(Buffer.alloc(10), Buffer.alloc(16), 1), -1);
    assert.equal(addon().base64Decode(Buffer.from("YWFh"), 0, 4, new Uint8Array(2)), -1);
    assert.equal(addon().base64Decode(Buffer.from("YWFh"), 1, 4, new Uint8Array(9)), -1);
    const untouched = Buffer.alloc(4, 9);
    addon().unmask(untouched, 2, 4, 0x01020304);
    assert.deepEqual(untouched, Buffer.alloc(4, 9));
  });
});
