import assert from "node:assert/strict";
import { describe, test } from "node:test";
import fc from "fast-check";
import * as node from "../../src/protocol/base64.ts";

/** Loads the same module without Buffer, as in a browser. */
async function importWithoutBuffer(): Promise<typeof node> {
  const { Buffer } = globalThis;
  Reflect.deleteProperty(globalThis, "Buffer");
  try {
    return await import(`${new URL("../../src/protocol/base64.ts", import.meta.url)}?browser`);
  } finally {
    Object.assign(globalThis, { Buffer });
  }
}

/** Slow reference: the grammar as a regular expression, and no stray bits, which a new encoding would not set. */
function isStrictBase64(text: string): boolean {
  const grammar = /^(?:[A-Za-z0-9+/]{4})*(?:[A-Za-z0-9+/]{2}==|[A-Za-z0-9+/]{3}=)?$/;
  return grammar.test(text) && Buffer.from(text, "base64").toString("base64") === text;
}

const nearlyBase64 = fc
  .array(fc.constantFrom("A", "Q", "R", "z", "9", "+", "/", "=", "-", "_", "\n", " ", "é", "\u0000"), {
    maxLength: 12,
  })
  .map((parts) => parts.join(""));

const modules = { "with Buffer": node, "without Buffer": await importWithoutBuffer() };

for (const [where, { encodeBase64, decodeBase64 }] of Object.entries(modules)) {
  describe(`base64 ${where}`, () => {
    test("decodes its own encoding", () => {
      fc.assert(
        fc.property(fc.uint8Array({ maxLength: 300 }), (bytes) => {
          const text = encodeBase64(bytes);
          assert.equal(text, Buffer.from(bytes).toString("base64"));
          const decoded = decodeBase64(text);
          assert.ok(decoded.ok);
          assert.deepEqual(new Uint8Array(decoded.bytes), bytes);
        }),
      );
    });

    test("encodes a view of a larger buffer, and more bytes than an argument list can hold", () => {
      const large = new Uint8Array(300_000).map((_, at) => at);
      const view = large.subarray(1, 299_999);
      assert.equal(encodeBase64(view), Buffer.from(view).toString("base64"));
    });

    test("accepts exactly the strict form", () => {
      fc.assert(
        fc.property(fc.oneof(nearlyBase64, fc.base64String(), fc.string()), (text) => {
          assert.equal(decodeBase64(text).ok, isStrictBase64(text));
        }),
        { numRuns: 2000 },
      );
    });

    for (const [text, problem] of [
      ["!!!", "Invalid symbol 33, offset 0."],
      ["YQ", "Invalid padding"],
      ["_-8=", "Invalid symbol 95, offset 0."],
      ["YW\nE=", "Invalid symbol 10, offset 2."],
      ["YR==", "Invalid last symbol 82, offset 1."],
    ] as const) {
      test(`reports the problem of ${JSON.stringify(text)} with the text of Codex`, () => {
        assert.deepEqual(decodeBase64(text), { ok: false, problem });
      });
    }
  });
}
