import assert from "node:assert/strict";
import { after, describe, test } from "node:test";
import fc from "fast-check";
import {
  headerHasToken,
  MAX_HEAD_BYTES,
  type ParsedHead,
  parseRequestHead,
} from "../../../src/server/listen/http-request-head.ts";
import { blank, hostileHead, NodeReader, token, value } from "../../support/faults/hostile-heads.ts";

function parse(text: string): ParsedHead {
  return parseRequestHead(Buffer.from(text, "latin1"));
}

function head(text: string) {
  const parsed = parse(text);
  assert.ok(parsed.type === "head", JSON.stringify(parsed));
  return parsed;
}

describe("parseRequestHead", () => {
  test("parses a complete head with any headers, and returns the bytes after it unchanged", () => {
    const header = fc.record({
      name: token,
      value: fc.oneof(value, fc.constant("")),
      before: blank,
      after: blank,
    });
    fc.assert(
      fc.property(token, fc.array(header, { maxLength: 8 }), fc.uint8Array({ maxLength: 30 }), (method, all, rest) => {
        const headers = all.filter(
          ({ name }, at) => all.findIndex((other) => other.name.toLowerCase() === name.toLowerCase()) === at,
        );
        const lines = headers.map(({ name, value, before, after }) => `${name}:${before}${value}${after}\r\n`);
        const text = `${method} /path?query HTTP/1.1\r\n${lines.join("")}\r\n`;
        const bytes = Buffer.concat([Buffer.from(text, "latin1"), rest]);
        const parsed = parseRequestHead(bytes);
        assert.ok(parsed.type === "head");
        assert.deepEqual(
          [parsed.head.method, parsed.head.path, [...parsed.head.headers]],
          [method, "/path", headers.map(({ name, value }) => [name.toLowerCase(), value])],
        );
        assert.deepEqual(Buffer.from(parsed.rest), Buffer.from(rest));
        for (let cut = 0; cut < text.length; cut++)
          assert.equal(parseRequestHead(bytes.subarray(0, cut)).type, "incomplete");
      }),
      { numRuns: 200 },
    );
  });

  test("never throws on arbitrary bytes", () => {
    fc.assert(
      fc.property(fc.uint8Array({ maxLength: 200 }), (bytes) => {
        parseRequestHead(Buffer.from(bytes));
        parseRequestHead(Buffer.concat([Buffer.from("GET / HTTP/1.1\r\n"), bytes, Buffer.from("\r\n\r\n")]));
      }),
    );
  });

  test("joins repeated headers, but rejects repeated host, origin and credential headers", () => {
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

  test("rejects a first byte that cannot begin a method, such as that of TLS", () => {
    for (const first of [0x16, 0x00, 0x20, 0x0d, 0x80])
      assert.equal(parseRequestHead(Buffer.from([first])).type, "refused", String(first));
    assert.equal(parseRequestHead(Buffer.from("G")).type, "incomplete");
    assert.equal(parseRequestHead(Buffer.alloc(0)).type, "incomplete");
  });

  test("finds a token in a header list case-insensitively, but not a part of one", () => {
    const { head: found } = head("GET / HTTP/1.1\r\nConnection: keep-alive ,UPGRADE\r\n\r\n");
    assert.ok(headerHasToken(found, "connection", "upgrade"));
    assert.ok(!headerHasToken(found, "connection", "keep"));
    assert.ok(!headerHasToken(found, "upgrade", "websocket"));
  });

  for (const [what, headOf] of [
    ["blanks before a value's end", (length: number) => `a:${" ".repeat(length)}x`],
    ["blanks between two letters", (length: number) => `a: x${" \t".repeat(length / 2)}x`],
    ["blanks behind a value", (length: number) => `a: x${" ".repeat(length)}`],
    ["blanks before a wrong byte", (length: number) => `a:${" ".repeat(length)}\x01`],
    ["words before a wrong byte", (length: number) => `a: ${"x ".repeat(length / 2)}\x01`],
    ["a long name without a colon", (length: number) => "a".repeat(length)],
    ["a line of colons", (length: number) => `a${":".repeat(length)}`],
    ["many headers of one name", (length: number) => "a:b\r\n".repeat(length / 5).slice(0, -2)],
    ["many words to look through", (length: number) => `connection:${"a ,".repeat(length / 3)}`],
  ] as const) {
    test(`takes linear time for a long head: ${what}`, () => {
      const bytes = (length: number) => Buffer.from(`GET / HTTP/1.1\r\n${headOf(length)}\r\n\r\n`, "latin1");
      const [short, long] = [bytes(500), bytes(16_000)];
      /** The minimum of many tries for the same number of bytes: other load on the machine only adds to it. */
      const cost = (one: Buffer, times: number) => {
        let least = Number.POSITIVE_INFINITY;
        for (let tries = 0; tries < 60; tries++) {
          const before = process.hrtime.bigint();
          for (let time = 0; time < times; time++) {
            const parsed = parseRequestHead(one);
            if (parsed.type === "head") headerHasToken(parsed.head, "connection", "upgrade");
          }
          least = Math.min(least, Number(process.hrtime.bigint() - before));
        }
        return least;
      };
      const ratio = cost(long, 1) / cost(short, 32);
      // A quadratic parser has a ratio of 32.
      assert.ok(ratio < 8, `32 times as long costs ${ratio} times as much per byte`);
    });
  }

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
    test(`rejects ${what} with ${status}`, () => {
      const parsed = parse(text);
      assert.equal(parsed.type === "refused" ? parsed.status : parsed.type, status);
    });
  }
});

describe("parseRequestHead compared with node:http", () => {
  const reader = new NodeReader().listen();
  after(async () => (await reader).close());

  test("accepts only heads that node:http accepts, with the same meaning", async () => {
    const node = await reader;
    const counts = { both: 0, neither: 0, onlyNode: 0 };
    await fc.assert(
      fc.asyncProperty(hostileHead, async (bytes) => {
        const ours = parseRequestHead(bytes);
        const theirs = await node.read(bytes);
        if (ours.type !== "head") {
          counts[theirs ? "onlyNode" : "neither"]++;
          return;
        }
        // The gateway, not the parser, rejects other methods and paths. The parser requires no host.
        const { method, path } = ours.head;
        const headers = new Map(ours.head.headers);
        if (!headers.has("host") || !["GET", "HEAD", "POST", "OPTIONS"].includes(method)) return;
        if (!path.startsWith("/")) return;
        counts.both++;
        assert.ok(theirs, `node:http refuses ${JSON.stringify(bytes.toString("latin1"))}`);
        assert.deepEqual([method, path], [theirs.method, theirs.url?.split("?", 1)[0]]);
        // Node stores headers in an object, which cannot have this name as a header.
        headers.delete("__proto__");
        for (const [name, value] of headers) assert.equal(value, theirs.headers[name], name);
        assert.equal(headers.size, Object.keys(theirs.headers).length);
      }),
      { numRuns: 1000 },
    );
    assert.ok(counts.both > 100 && counts.neither > 100, JSON.stringify(counts));
    assert.ok(counts.onlyNode < counts.neither, JSON.stringify(counts));
  });
});
