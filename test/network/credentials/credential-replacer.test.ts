import assert from "node:assert/strict";
import { describe, test } from "node:test";
import fc from "fast-check";
import { type Replacement, SecretReplacer } from "../../../src/network/credentials/secret-replacer.ts";

/** Replaces in the whole text: at each position the longest text wins. */
function replaceWhole(text: string, replacements: readonly Replacement[]): string {
  const byLength = [...replacements].sort((a, b) => b.from.length - a.from.length);
  let result = "";
  for (let at = 0; at < text.length; ) {
    const match = byLength.find(({ from }) => text.startsWith(from, at));
    result += match ? match.to : text[at];
    at += match ? match.from.length : 1;
  }
  return result;
}

function replaceChunks(chunks: readonly string[], replacements: readonly Replacement[]): string {
  const replacer = new SecretReplacer(replacements);
  const parts = chunks.map((chunk) => replacer.push(Buffer.from(chunk)));
  return Buffer.concat([...parts, replacer.end()]).toString();
}

/** Few letters, so that texts overlap themselves and each other. */
const letters = fc.string({ unit: fc.constantFrom("a", "b", "c"), maxLength: 12 });
const text = fc.string({ unit: fc.constantFrom("a", "b"), minLength: 1, maxLength: 5 });

describe("SecretReplacer", () => {
  test("gives the same bytes as a replacement in the whole stream, for every division into chunks", () => {
    fc.assert(
      fc.property(
        fc.array(letters, { maxLength: 8 }),
        fc.uniqueArray(text, { minLength: 1, maxLength: 3 }),
        (chunks, texts) => {
          const replacements = texts.map((from, index) => ({ from, to: `<${index}>` }));
          assert.equal(replaceChunks(chunks, replacements), replaceWhole(chunks.join(""), replacements));
        },
      ),
      { numRuns: 2000 },
    );
  });

  test("holds back only the beginning of a match", () => {
    const replacer = new SecretReplacer([{ from: "secret", to: "x" }]);
    assert.equal(replacer.push(Buffer.from("data: se")).toString(), "data: ");
    assert.equal(replacer.push(Buffer.from("nd\n\n")).toString(), "send\n\n");
    assert.equal(replacer.push(Buffer.from("secre")).toString(), "");
    assert.equal(replacer.end().toString(), "secre");
    assert.equal(replacer.count, 0);
  });

  test("keeps bytes that are not text", () => {
    const bytes = Buffer.from(Array.from({ length: 256 }, (_, byte) => byte));
    const replacer = new SecretReplacer([{ from: "secret", to: "x" }]);
    assert.deepEqual(Buffer.concat([replacer.push(bytes), replacer.end()]), bytes);
  });
});
