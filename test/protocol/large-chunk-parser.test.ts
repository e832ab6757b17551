import assert from "node:assert/strict";
import { randomBytes } from "node:crypto";
import { describe, test } from "node:test";
import fc from "fast-check";
import { parseMessage } from "../../src/protocol/envelope.ts";
import { parseJsonText } from "../../src/protocol/json-text.ts";
import { parseWithBinaryChunk } from "../../src/protocol/large-chunk-parser.ts";
import { bytes } from "../../src/protocol/schema.ts";

const BYTES = randomBytes(60_000);
const TEXT = BYTES.toString("base64");

describe("a long message around one chunk", () => {
  test("returns the chunk of a request or response as bytes, and the rest unchanged", () => {
    const request = `{"id":7,"method":"fs/writeBlock","params":{"handleId":"h","offset":3,"chunk":"${TEXT}"},"trace":{"traceparent":"t"}}`;
    assert.deepEqual(parseMessage(request), {
      ok: true,
      message: {
        type: "request",
        id: 7,
        method: "fs/writeBlock",
        params: { handleId: "h", offset: 3, chunk: BYTES },
        trace: { traceparent: "t", tracestate: undefined },
      },
    });
    const answer = ` {"id":1.0,"result":{"chunk":"${TEXT}","eof":true}}`;
    assert.deepEqual(parseWithBinaryChunk(answer), {
      ok: true,
      value: { id: 1, result: { chunk: BYTES, eof: true } },
      idLiteral: "1.0",
    });
    assert.equal(bytes.decode(BYTES), BYTES);
  });

  for (const [what, text] of [
    ["a short one", `{"id":1,"result":{"chunk":"QUJD"}}`],
    ["a chunk of something else", `{"id":1,"params":{"inner":{"chunk":"${TEXT}"},"chunk":""}}`],
    ["params further in", `{"id":1,"x":{"params":{"chunk":"${TEXT}"}},"params":{"chunk":"QUJD"}}`],
    ["a chunk at the top", `{"id":1,"chunk":"${TEXT}"}`],
    ["a chunk behind a string with a brace", `{"id":1,"params":{"path":"{","chunk":"${TEXT}"}}`],
    ["a chunk behind an escape", `{"id":1,"params":{"path":"\\"","chunk":"${TEXT}"}}`],
    ["no base64", `{"id":1,"params":{"chunk":"${TEXT}!"}}`],
    ["an escape in the chunk", `{"id":1,"params":{"chunk":"${TEXT}\\u0041AAA"}}`],
    ["a chunk twice", `{"id":1,"params":{"chunk":"${TEXT}","chunk":"QUJD"}}`],
    ["no end of the chunk", `{"id":1,"params":{"chunk":"${TEXT}`],
    ["no JSON behind it", `{"id":1,"params":{"chunk":"${TEXT}"}`],
    ["no JSON before it", `{"id":1,,"params":{"chunk":"${TEXT}"}}`],
    ["a key in an array", `{"params":["params":{"chunk":"${TEXT}"}]}`],
  ] as const)
    test(`leaves ${what} to the general parser`, () => {
      assert.equal(parseWithBinaryChunk(text), null);
    });

  test("has the same result as the general parser for every envelope", () => {
    const member = fc.constantFrom(
      '"a":1',
      '"chunk":"QUJD"',
      '"params":{"x":1}',
      '"result":{',
      '"x":[',
      '"}"',
      "}",
      "]",
      "{",
      `"chunk":"${TEXT}"`,
      `"params":{"chunk":"${TEXT}"}`,
      `"params":{"a":[1,"b"],"chunk":"${TEXT}"`,
    );
    fc.assert(
      fc.property(fc.array(member, { maxLength: 6 }), (members) => {
        const text = `{"id":1,${members.join(",")}}`;
        const fast = parseWithBinaryChunk(text);
        if (fast === null) return;
        const slow = parseJsonText(text);
        assert.ok(fast.ok && slow.ok);
        const asText = (_key: string, value: unknown) => (value instanceof Uint8Array ? TEXT : value);
        // Buffer defines toJSON, which runs before the replacer.
        const plain = structuredClone(fast.value);
        assert.equal(JSON.stringify(plain, asText), JSON.stringify(slow.value));
      }),
      { numRuns: 500 },
    );
  });
});
