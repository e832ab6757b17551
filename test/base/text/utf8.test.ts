import assert from "node:assert/strict";
import { test } from "node:test";
import { decodeUtf8, decodeValidUtf8 } from "../../../src/base/text/utf8.ts";

test("decodeUtf8 and decodeValidUtf8 keep a byte order mark", () => {
  const bytes = new TextEncoder().encode("\ufeffaé");
  assert.equal(decodeUtf8(bytes), "\ufeffaé");
  assert.equal(decodeValidUtf8(bytes), "\ufeffaé");
});

test("decodeUtf8 replaces invalid bytes, and decodeValidUtf8 returns null", () => {
  const bytes = Uint8Array.of(0x61, 0xff);
  assert.equal(decodeUtf8(bytes), "a\ufffd");
  assert.equal(decodeValidUtf8(bytes), null);
});
