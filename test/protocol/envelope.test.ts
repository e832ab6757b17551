import assert from "node:assert/strict";
import { describe, test } from "node:test";
import fc from "fast-check";
import { parseMessage, type RequestId } from "../../src/protocol/envelope.ts";
import { encodeError, encodeResponse } from "../../src/protocol/message-text.ts";

const I64_MAX = 2n ** 63n - 1n;
const I64_MIN = -(2n ** 63n);

/** Returns the id of a request with this literal, or null if the request is malformed. */
function idOf(literal: string): RequestId | null {
  const parsed = parseMessage(`{"id":${literal},"method":"m"}`);
  return parsed.ok && parsed.message.type === "request" ? parsed.message.id : null;
}

describe("ids", () => {
  test("are strings or 64-bit integers, and are encoded exactly as they were received", () => {
    const integers = fc.bigInt({ min: I64_MIN, max: I64_MAX }).map(String);
    const strings = fc.string({ unit: "binary" }).map((text) => JSON.stringify(text));
    fc.assert(
      fc.property(fc.oneof(integers, strings), (literal) => {
        const id = idOf(literal);
        assert.notEqual(id, null);
        assert.equal(encodeResponse(id ?? 0, 1), `{"id":${literal},"result":1}`);
        assert.equal(
          encodeError(id ?? 0, { code: -32600, message: "no" }),
          `{"error":{"code":-32600,"message":"no"},"id":${literal}}`,
        );
      }),
      { numRuns: 1000 },
    );
  });

  test("are accepted at the ends of the range, and rejected beyond", () => {
    for (const id of [I64_MAX, I64_MIN, 0n, -1n]) assert.notEqual(idOf(String(id)), null);
    for (const id of [I64_MAX + 1n, I64_MIN - 1n, 10n ** 30n]) assert.equal(idOf(String(id)), null);
  });

  for (const literal of ["null", "true", "{}", "[]", "1.5", "1.0", "1e3", "-0.0"]) {
    test(`of the form ${literal} are malformed`, () => {
      const parsed = parseMessage(`{"id":${literal},"method":"m"}`);
      assert.deepEqual(parsed, {
        ok: false,
        problem: "data did not match any variant of untagged enum RequestId",
      });
    });
  }
});

describe("classification", () => {
  const cases: [text: string, type: string][] = [
    ['{"id":1,"method":"m"}', "request"],
    ['{"id":1,"method":"m","result":{}}', "request"],
    ['{"method":"m"}', "notification"],
    ['{"id":1,"result":null}', "response"],
    ['{"id":1,"result":{},"error":{"code":1,"message":"x"}}', "response"],
    ['{"id":1,"error":{"code":1,"message":"x"}}', "error"],
    ['{"jsonrpc":"1.0","id":1,"method":"m","more":[]}', "request"],
    ['{"id":1,"method":"m","trace":{"traceparent":"nonsense"}}', "request"],
    ['{"id":1,"method":"m","trace":null}', "request"],
  ];
  for (const [text, type] of cases) {
    test(`${text} is a ${type}`, () => {
      const parsed = parseMessage(text);
      assert.ok(parsed.ok);
      assert.equal(parsed.message.type, type);
    });
  }

  const malformed: [text: string, problem: RegExp][] = [
    ["not-json", /./],
    ["", /^EOF while parsing a value at line 1 column 0$/],
    ["   ", /^EOF while parsing a value at line 1 column 3$/],
    ['[{"id":1,"method":"m"}]', /^expected a JSON-RPC object$/],
    ["[]", /^expected a JSON-RPC object$/],
    ["5", /^expected a JSON-RPC object$/],
    ['"x"', /^expected a JSON-RPC object$/],
    ["null", /^expected a JSON-RPC object$/],
    ["{}", /^missing field `error`$/],
    ['{"id":5}', /^missing field `error`$/],
    ['{"id":5,"method":7}', /^invalid type: number, expected a string$/],
    ['{"id":5,"method":null}', /^invalid type: null, expected a string$/],
    ['{"id":1,"id":2,"method":"m"}', /^duplicate JSON object key `id` at /],
    ['{"id":5,"method":"m"} x', /./],
    ['{"id":5,"method":"m"}\n{"id":6,"method":"m"}', /./],
    ['{"id":5,"method":"m","trace":7}', /^invalid type: number, expected struct W3cTraceContext$/],
    ['{"result":1}', /^missing field `id`$/],
    ['{"id":1,"error":{"message":"x"}}', /^missing field `code`$/],
    ['{"id":1,"error":{"code":1}}', /^missing field `message`$/],
    ['{"id":1,"error":7}', /^invalid type: number, expected /],
    ['{"error":{"code":1,"message":"x"}}', /^missing field `id`$/],
  ];
  for (const [text, problem] of malformed) {
    test(`${JSON.stringify(text)} is malformed`, () => {
      const parsed = parseMessage(text);
      assert.ok(!parsed.ok);
      assert.match(parsed.problem, problem);
    });
  }
});
