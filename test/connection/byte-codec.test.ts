import assert from "node:assert/strict";
import { describe, test } from "node:test";
import fc from "fast-check";
import { base64Length, plainByteCodec } from "../../src/connection/byte-codec.ts";
import { messageEvent, writeEvent } from "../../src/connection/connection.ts";
import { loadNative } from "../../src/native/addon.ts";
import { routeMessage } from "../../src/server/routing.ts";

const native = loadNative();
const codecs = {
  plain: plainByteCodec,
  ...(native.type === "loaded" && { native: native.spawner }),
};

if (native.type !== "loaded")
  test("the native codec", { skip: `it is not there: ${JSON.stringify(native)}` }, () => undefined);

for (const [name, codec] of Object.entries(codecs)) {
  describe(`the ${name} codec`, () => {
    test("encodes base64 at a place in a buffer, and touches nothing beside it", () => {
      fc.assert(
        fc.property(
          fc.uint8Array({ maxLength: 200 }),
          fc.nat({ max: 9 }),
          fc.nat({ max: 9 }),
          (bytes, before, shift) => {
            // A view into something larger, as chunks usually are.
            const source = Buffer.concat([Buffer.alloc(shift, 1), bytes]).subarray(shift);
            const length = base64Length(bytes.length);
            const target = Buffer.alloc(before + length + 5, 0xee);
            assert.equal(codec.base64Encode(source, target, before), length);
            assert.equal(
              target.toString("latin1", before, before + length),
              Buffer.from(bytes).toString("base64"),
            );
            assert.ok(target.subarray(0, before).every((byte) => byte === 0xee));
            assert.ok(target.subarray(before + length).every((byte) => byte === 0xee));
          },
        ),
      );
    });

    test("masks and unmasks in place, any part of a buffer, with any key", () => {
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

describe("a bulk write read by its bytes", {
  skip: native.type !== "loaded" && "the native codec is not there",
}, () => {
  const codec = native.type === "loaded" ? native.spawner : plainByteCodec;

  /** What the general parser and routing make of a text: the params of a write, or anything else. */
  function byText(text: string): unknown {
    const event = messageEvent(text, "test");
    if (event.type !== "message") return event.type;
    try {
      const routed = routeMessage(event.message);
      if (routed.type !== "request" || routed.method !== "process/write") return routed.type;
      return { id: routed.id, ...routed.params, chunk: Buffer.from(routed.params.chunk).toString("hex") };
    } catch (error) {
      return String(error);
    }
  }

  function byBytes(text: string): unknown {
    const event = writeEvent(Buffer.from(text), codec);
    if (event === null) return null;
    assert.ok(event.type === "write");
    return { id: event.id, ...event.params, chunk: Buffer.from(event.params.chunk).toString("hex") };
  }

  const blank = fc.constantFrom("", " ", "\n\t", "\r");
  const value = fc.oneof(
    {
      weight: 6,
      arbitrary: fc.constantFrom(
        '"p"',
        '""',
        '"aGk="',
        '"aGk"',
        '"_-8="',
        '"YR=="',
        '"a b"',
        '"é"',
        '"\\u0041"',
        '"\\""',
        '"\u0001"',
      ),
    },
    fc.constantFrom(
      "1",
      "0",
      "-7",
      "01",
      "1.0",
      "1e3",
      "null",
      "true",
      "{}",
      "[]",
      "9007199254740993",
      "-9223372036854775808",
    ),
    fc.base64String({ maxLength: 40 }).map((text) => JSON.stringify(text)),
  );
  const member = fc.tuple(fc.constantFrom("processId", "writeId", "chunk", "chunk", "more", "id"), value);
  const params = fc.array(member, { maxLength: 4 });
  const outer = fc.array(
    fc.oneof(
      fc.constantFrom<[string, string]>(
        ["id", "1"],
        ["id", '"x"'],
        ["method", '"process/write"'],
        ["method", '"process/read"'],
        ["trace", "null"],
        ["jsonrpc", '"2.0"'],
      ),
      fc.tuple(fc.constant("id"), value),
    ),
    { maxLength: 3 },
  );
  const object = (gap: string, all: [string, string][]) =>
    `{${gap}${all.map(([key, text]) => `"${key}"${gap}:${gap}${text}`).join(`${gap},${gap}`)}${gap}}`;
  const anything = fc.tuple(outer, params, blank, fc.nat()).map(([members, inner, gap, place]) => {
    const all: [string, string][] = [...members];
    all.splice(place % (all.length + 1), 0, ["params", object(gap, inner)]);
    return gap + object(gap, all) + gap;
  });
  const members = fc.shuffledSubarray<[string, string]>(
    [
      ["processId", '"p"'],
      ["writeId", '"w"'],
      ["chunk", '"aGk="'],
    ],
    { minLength: 2 },
  );
  const order = fc.shuffledSubarray(["id", "method", "params"], { minLength: 3 });
  const wellFormed = fc.tuple(members, order, value, blank).map(([inner, keys, id, gap]) => {
    const texts: Record<string, string> = { id, method: '"process/write"', params: object(gap, inner) };
    return object(
      gap,
      keys.map((key) => [key, texts[key] ?? ""]),
    );
  });
  const message = fc.oneof({ weight: 3, arbitrary: anything }, { weight: 1, arbitrary: wellFormed });

  test("is what the general parser makes of it, or is left to that", () => {
    let taken = 0;
    fc.assert(
      fc.property(message, (text) => {
        const fast = byBytes(text);
        if (fast === null) return;
        taken++;
        assert.deepEqual(fast, byText(text), text);
      }),
      { numRuns: 20_000 },
    );
    const whole = '{"id":1,"method":"process/write","params":{"processId":"p","chunk":"aGk=","writeId":"w"}}';
    assert.deepEqual(byBytes(whole), byText(whole));
    assert.ok(taken > 100, `only ${taken} messages were taken by their bytes`);
  });

  test("cut anywhere or with any byte changed is never something else than the general parser says", () => {
    const whole =
      '{"id":12,"method":"process/write","params":{"processId":"p-1","chunk":"aGVsbG8=","writeId":"w"}}';
    for (let length = 0; length < whole.length; length++) assert.equal(byBytes(whole.slice(0, length)), null);
    const letters = ['"', "\\", "{", "}", ",", ":", "0", "a", " ", "=", "-", "\n", "\u0000", "é"];
    for (let at = 0; at < whole.length; at++) {
      for (const letter of letters) {
        const changed = whole.slice(0, at) + letter + whole.slice(at + 1);
        const fast = byBytes(changed);
        if (fast !== null) assert.deepEqual(fast, byText(changed), changed);
      }
    }
  });
});
