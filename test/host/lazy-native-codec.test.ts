import assert from "node:assert/strict";
import { test } from "node:test";
import { nodeByteCodec } from "../../src/connection/byte-codec.ts";
import { lazyNativeCodec } from "../../src/host/client-codec.ts";
import { loadAddon } from "../../src/native/load-addon.ts";
import { skipUnless } from "../support/system/skip-unless.ts";

test("the lazy codec returns the results of Node's codec, before and after it loads the addon", {
  skip: skipUnless(loadAddon().type === "loaded", "no native addon"),
}, () => {
  const codec = lazyNativeCodec();
  for (const length of [100, 20_000, 100]) {
    const source = Uint8Array.from({ length }, (_, at) => at % 251);
    const results = [codec, nodeByteCodec].map(({ base64Encode, unmask }) => {
      const target = new Uint8Array(length * 2);
      const written = base64Encode(source, target, 1);
      unmask(target, 1, written, 0x01_02_03_04);
      return { written, target };
    });
    assert.deepEqual(results[0], results[1]);
  }
});
