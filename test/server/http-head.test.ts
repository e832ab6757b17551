import assert from "node:assert/strict";
import { describe, test } from "node:test";
import fc from "fast-check";
import { hasWord, MAX_HEAD_BYTES, type ParsedHead, parseHead } from "../../src/server/http-head.ts";

function parse(text: string): ParsedHead {
  return parseHead(Buffer.from(text, "latin1"));
}

function head(text: string) {
  const parsed = parse(text);
  assert.ok(parsed.type === "head", JSON.stringify(parsed));
  return parsed;
}

const token = fc.stringMatching(/^[!#$%&'*+.^_`|~0-9A-Za-z-]{1,20}$/);
const value = fc.stringMatching(/^[!-~\x80-\xff]([ \t!-~\x80-\xff]{0,40}[!-~\x80-\xff])?$/);
const blank = fc.stringMatching(/^[ \t]{0,3}$/);

describe("the head of a request", () => {
  test("is read whole, whatever its headers are, and what follows it is left alone", () => {
    const header = fc.record({
      name: token,
      value: fc.oneof(value, fc.constant("")),
      before: blank,
      after: blank,
    });
    fc.assert(
      fc.property(
        token,
        fc.array(header, { maxLength: 8 }),
        fc.uint8Array({ maxLength: 30 }),
        (method, all, rest) => {
          const headers = all.filter(
            ({ name }, at) =>
              all.findIndex((other) => other.name.toLowerCase() === name.toLowerCase()) === at,
          );
          const lines = headers.map(
            ({ name, value, before, after }) => `${name}:${before}${value}${after}\r\n`,
          );
          const text = `${method} /path?query HTTP/1.1\r\n${lines.join("")}\r\n`;
          const bytes = Buffer.concat([Buffer.from(text, "latin1"), rest]);
          const parsed = parseHead(bytes);
          assert.ok(parsed.type === "head");
          assert.deepEqual(
            [parsed.head.method, parsed.head.path, [...parsed.head.headers]],
            [method, "/path", headers.map(({ name, value }) => [name.toLowerCase(), value])],
          );
          assert.deepEqual(Buffer.from(parsed.rest), Buffer.from(rest));
          for (let cut = 0; cut < text.length; cut++)
            assert.equal(parseHead(bytes.subarray(0, cut)).type, "incomplete");
        },
      ),
      { numRuns: 200 },
    );
  });

  test("never throws, whatever comes", () => {
    fc.assert(
      fc.property(fc.uint8Array({ maxLength: 200 }), (bytes) => {
        parseHead(Buffer.from(bytes));
        parseHead(Buffer.concat([Buffer.from("GET / HTTP/1.1\r\n"), bytes, Buffer.from("\r\n\r\n")]));
      }),
    );
  });

  test("joins a header that is given twice, but not one that says who asks or where", () => {
    const { headers } = head("GET / HTTP/1.1\r\nConnection: keep-alive\r\nconnection: Upgrade\r\n\r\n").head;
    assert.equal(headers.get("connection"), "keep-alive, Upgrade");
    for (const name of ["Host", "Origin", "Authorization", "Sec-WebSocket-Key"]) {
      const twice = parse(`GET / HTTP/1.1\r\n${name}: a\r\n${name.toLowerCase()}: a\r\n\r\n`);
      assert.deepEqual(twice, {
        type: "refused",
        status: 400,
        reason: `the header ${name.toLowerCase()} is given twice`,
      });
    }
  });

  test("finds a word of a list, in any case, and no part of one", () => {
    const { head: found } = head("GET / HTTP/1.1\r\nConnection: keep-alive ,UPGRADE\r\n\r\n");
    assert.ok(hasWord(found, "connection", "upgrade"));
    assert.ok(!hasWord(found, "connection", "keep"));
    assert.ok(!hasWord(found, "upgrade", "websocket"));
  });

  for (const [what, text, status] of [
    ["a request line without a version", "GET /\r\n\r\n", 400],
    ["a request line with two spaces", "GET  / HTTP/1.1\r\n\r\n", 400],
    ["a method that is no word", "G(T / HTTP/1.1\r\n\r\n", 400],
    ["a path with a control character", "GET /\x01 HTTP/1.1\r\n\r\n", 400],
    ["another version", "GET / HTTP/2.0\r\n\r\n", 505],
    ["the preface of HTTP/2", "PRI * HTTP/2.0\r\n\r\nSM\r\n\r\n", 505],
    ["a header without a colon", "GET / HTTP/1.1\r\nnothing\r\n\r\n", 400],
    ["a space before the colon", "GET / HTTP/1.1\r\nhost : a\r\n\r\n", 400],
    ["a header that is folded", "GET / HTTP/1.1\r\na: b\r\n c\r\n\r\n", 400],
    ["a lone line feed in a value", "GET / HTTP/1.1\r\na: b\nc: d\r\n\r\n", 400],
    ["a lone carriage return in a value", "GET / HTTP/1.1\r\na: b\rc\r\n\r\n", 400],
    ["a zero byte in a value", "GET / HTTP/1.1\r\na: b\0c\r\n\r\n", 400],
    ["a head that is too long", `GET / HTTP/1.1\r\na: ${"b".repeat(MAX_HEAD_BYTES)}\r\n\r\n`, 431],
    ["a head that never ends", "x".repeat(MAX_HEAD_BYTES + 1), 431],
  ] as const) {
    test(`${what} is refused with ${status}`, () => {
      const parsed = parse(text);
      assert.equal(parsed.type === "refused" ? parsed.status : parsed.type, status);
    });
  }
});
