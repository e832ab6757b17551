import assert from "node:assert/strict";
import { describe, test } from "node:test";
import { UpgradeResponse } from "../../src/connection/upgrade-response.ts";

const read = (text: string, size = text.length) => {
  const response = new UpgradeResponse(1000, 20);
  let isComplete = false;
  for (let at = 0; at < text.length; at += size) isComplete = response.push(Buffer.from(text.slice(at, at + size)));
  return { response, isComplete, rest: response.rest.toString() };
};

describe("UpgradeResponse", () => {
  test("reads the head in parts of any size, and leaves the bytes behind it", () => {
    const text = "HTTP/1.1 101 Switching Protocols\r\nSec-WebSocket-Accept: abc=\r\n\r\n";
    for (let size = 1; size <= text.length; size++) {
      const { response, isComplete } = read(text, size);
      assert.deepEqual(
        [isComplete, response.status, response.headers.get("sec-websocket-accept")],
        [true, 101, "abc="],
      );
    }
    assert.equal(read(`${text}frames`).rest, "frames");
    assert.equal(read(text.slice(0, -1)).response.status, null);
  });

  test("skips informational responses", () => {
    const { response } = read("HTTP/1.1 103 Early Hints\r\nlink: x\r\n\r\nHTTP/1.1 101 Switching Protocols\r\n\r\n", 7);
    assert.deepEqual([response.status, response.headers.size], [101, 0]);
  });

  for (const [kind, text, expected] of [
    ["with a length", "content-length: 5\r\n\r\nsorry", [true, "sorry"]],
    ["with a length that has not arrived", "content-length: 5\r\n\r\nsor", [false, "sor"]],
    ["longer than the maximum", `content-length: 500\r\n\r\n${"x".repeat(25)}`, [true, "x".repeat(25)]],
    ["in chunks", "transfer-encoding: chunked\r\n\r\n5\r\nsorry\r\n0\r\n\r\n", [true, "sorry"]],
    ["in chunks of which none is complete", "transfer-encoding: chunked\r\n\r\n5\r\nsor", [false, "5\r\nsor"]],
    ["up to the end of the stream", "\r\nsorry", [false, "sorry"]],
    ["without a length, longer than the maximum", `\r\n${"x".repeat(25)}`, [true, "x".repeat(25)]],
    ["with an invalid length", `content-length: x\r\n\r\n${"x".repeat(25)}`, [true, "x".repeat(25)]],
    ["with an endless chunk length", `transfer-encoding: chunked\r\n\r\n${"0".repeat(25)}`, [true, "0".repeat(25)]],
  ] as const) {
    test(`reads a body ${kind}`, () => {
      const { response, isComplete, rest } = read(`HTTP/1.1 403 Forbidden\r\n${text}`);
      assert.deepEqual([response.status, isComplete, rest], [403, ...expected]);
    });
  }

  for (const text of [
    "\x15\x03\x01\x00\x02",
    "HTTP/2 200\r\n\r\n",
    "HTTP/1.1 OK\r\n\r\n",
    "HTTP/1.1 1e3\r\n\r\n",
    `HTTP/1.1 ${"x".repeat(2000)}`,
  ]) {
    test(`rejects ${JSON.stringify(text.slice(0, 20))}`, () => {
      assert.throws(() => read(text), { code: "HPE_INVALID_CONSTANT" });
    });
  }
});
