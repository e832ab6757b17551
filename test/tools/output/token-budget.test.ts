import assert from "node:assert/strict";
import { test } from "node:test";
import fc from "fast-check";
import { incompleteHeadBytes, incompleteTailBytes, Utf8Splitter } from "../../../src/base/text/utf8.ts";
import { HeadTailBuffer } from "../../../src/exec/log/head-tail-buffer.ts";
import { tokensOf, truncateToBudget } from "../../../src/tools/output/token-budget.ts";

const encode = (text: string) => new TextEncoder().encode(text);
const NOTHING = new Uint8Array(0);
const whole = (text: string) => ({ head: encode(text), tail: NOTHING, totalBytes: encode(text).length });

test("a token is four bytes, rounded up", () => {
  assert.deepEqual([0, 1, 4, 5, 43].map(tokensOf), [0, 1, 1, 2, 11]);
});

test("output within the budget stays unchanged", () => {
  assert.deepEqual(truncateToBudget(whole("hello\n"), 2), {
    text: "hello\n",
    original: 6,
    retained: 6,
    omitted: 0,
    extent: null,
  });
});

test("output beyond the budget is cut to half of it from each end, and the omitted middle is counted", () => {
  const shown = truncateToBudget(whole("0123456789abcdefghij"), 2);
  assert.deepEqual(shown, {
    text: "0123…3 tokens truncated…ghij",
    original: 20,
    retained: 8,
    omitted: 12,
    extent: "Total output lines: 1",
  });
});

test("bytes that were not retained are counted too", () => {
  const shown = truncateToBudget({ head: encode("begin\n"), tail: encode("end\n"), totalBytes: 1010 }, 1000);
  assert.equal(shown.text, "begin\n\n... 1000 bytes omitted ...\nend\n");
  assert.equal(shown.omitted, 1000);
});

test("a budget of zero returns only the number of truncated tokens", () => {
  assert.equal(truncateToBudget(whole("hello"), 0).text, "…2 tokens truncated…");
});

test("no character is cut, and retained and omitted bytes add up to the total", () => {
  const text = fc.string({ unit: "binary", maxLength: 400 });
  fc.assert(
    fc.property(text, fc.nat(60), fc.integer({ min: 8, max: 200 }), (output, tokens, bufferBytes) => {
      const buffer = new HeadTailBuffer({ headBytes: bufferBytes, tailBytes: bufferBytes });
      buffer.push(encode(output));
      const shown = truncateToBudget(
        { head: buffer.head(), tail: buffer.tail(), totalBytes: buffer.totalBytes },
        tokens,
      );
      assert.equal(shown.retained + shown.omitted, shown.original);
      assert.ok(shown.retained <= tokens * 4);
      if (!output.includes("\ufffd")) assert.ok(!shown.text.includes("\ufffd"), shown.text);
      if (shown.omitted === 0) assert.equal(shown.text, output);
    }),
  );
});

test("characters split between chunks are passed on whole", () => {
  const text = fc.string({ unit: "binary", maxLength: 100 });
  fc.assert(
    fc.property(text, fc.array(fc.nat(100)), (output, cuts) => {
      const bytes = encode(output);
      const characters = new Utf8Splitter();
      const places = [0, ...cuts.map((cut) => Math.min(cut, bytes.length)).sort((a, b) => a - b), bytes.length];
      let seen = "";
      for (const [index, place] of places.slice(1).entries()) {
        const part = characters.push(bytes.subarray(places[index], place));
        assert.equal(incompleteTailBytes(part), 0);
        assert.equal(incompleteHeadBytes(part), 0);
        seen += new TextDecoder("utf-8", { ignoreBOM: true }).decode(part);
      }
      assert.equal(characters.flush().length, 0);
      assert.equal(seen, output);
    }),
  );
});

test("binary bytes are passed on unchanged", () => {
  fc.assert(
    fc.property(fc.array(fc.uint8Array({ maxLength: 20 })), (chunks) => {
      const characters = new Utf8Splitter();
      const out = [...chunks.map((chunk) => characters.push(chunk)), characters.flush()];
      assert.deepEqual(Buffer.concat(out), Buffer.concat(chunks));
    }),
  );
});

test("an incomplete character survives reuse of its chunk's memory", () => {
  const bytes = encode("é");
  const characters = new Utf8Splitter();
  const chunk = Buffer.from(bytes.subarray(0, 1));
  characters.push(chunk);
  chunk.fill(0);
  assert.deepEqual(Buffer.from(characters.push(bytes.subarray(1))), Buffer.from(bytes));
});
