import assert from "node:assert/strict";
import { test } from "node:test";
import fc from "fast-check";
import { RequestError } from "../../src/protocol/errors.ts";
import {
  cwdFromUri,
  normalizePathUri,
  pathBytesFromUri,
  pathFromUri,
  uriFromPath,
} from "../../src/protocol/path-uri.ts";

const accepted: [uri: string, path: string][] = [
  ["file:///tmp/a", "/tmp/a"],
  ["file://localhost/tmp/a", "/tmp/a"],
  ["file://LOCALHOST/tmp/a", "/tmp/a"],
  ["file:/tmp/a", "/tmp/a"],
  ["file:tmp", "/tmp"],
  ["FILE:///tmp", "/tmp"],
  ["file:", "/"],
  ["file:///", "/"],
  ["file:///tmp/a%20b", "/tmp/a b"],
  ["file:///tmp/a b", "/tmp/a b"],
  ["file:///tmp/%C3%BC", "/tmp/ü"],
  ["file:///tmp/ü", "/tmp/ü"],
  ["file:///tmp/../etc/x", "/etc/x"],
  ["file:///tmp/%2e%2e/etc", "/etc"],
  ["file:///tmp/a%2Fb", "/tmp/a/b"],
  ["file:///tmp/100%", "/tmp/100%"],
  ["file:///tmp/%zz", "/tmp/%zz"],
  ["file:///tmp/c:", "/tmp/c:"],
  ["file:///c%3A/x", "/c:/x"],
  ["file:///tmp/dir/", "/tmp/dir/"],
];

for (const [uri, path] of accepted) {
  test(`${uri} is the path ${path}`, () => assert.equal(pathFromUri(uri), path));
}

const rejectedUris: [uri: string, code: number, message: string][] = [
  ["/tmp/a", -32602, "invalid URI: relative URL without a base"],
  ["a", -32602, "invalid URI: relative URL without a base"],
  ["", -32602, "invalid URI: relative URL without a base"],
  ["http://h/x", -32602, "unsupported path URI scheme `http`"],
  ["C:\\x", -32602, "unsupported path URI scheme `c`"],
  ["file:///tmp?x", -32602, "query parameters are not allowed in path URIs"],
  ["file:///tmp?", -32602, "query parameters are not allowed in path URIs"],
  ["file:///tmp#x", -32602, "fragments are not allowed in path URIs"],
  ["file:///tmp#", -32602, "fragments are not allowed in path URIs"],
  ["file://user@h/x", -32602, "invalid URI: invalid international domain name"],
  ["file:///tmp/%00", -32602, "'file:///tmp/%00' is invalid on 'linux'"],
  ["file://h/x", -32600, "'file://h/x' is invalid on 'linux'"],
  ["file://127.0.0.1/x", -32600, "'file://127.0.0.1/x' is invalid on 'linux'"],
  ["file:///c:/x", -32600, "'file:///C:/x' is invalid on 'linux'"],
  ["file:///tmp/%ff", -32600, "'file:///tmp/%ff' is invalid on 'linux'"],
];

for (const [uri, code, message] of rejectedUris) {
  test(`${uri || "the empty text"} is rejected with ${code}`, { skip: otherSystem() }, () => {
    assert.throws(() => pathFromUri(uri), { name: "RequestError", code, message });
  });
}

test("cwdFromUri rejects the working directory of another host as invalid params", { skip: otherSystem() }, () => {
  assert.throws(() => cwdFromUri("file://h/x"), {
    code: -32602,
    message: "cwd URI `file://h/x` is not valid on this exec-server host: 'file://h/x' is invalid on 'linux'",
  });
  assert.throws(() => cwdFromUri("x"), { code: -32602, message: "invalid URI: relative URL without a base" });
  assert.equal(cwdFromUri("file:///tmp"), "/tmp");
});

test("normalizePathUri normalizes paths of other hosts, because it checks only the syntax", () => {
  assert.equal(normalizePathUri("file://h/x/../y"), "file://h/y");
  assert.throws(() => normalizePathUri("x"), { code: -32602 });
});

test("uriFromPath encodes only reserved and non-ASCII bytes of a path", () => {
  assert.equal(uriFromPath("/tmp/a b"), "file:///tmp/a%20b");
  assert.equal(uriFromPath("/tmp/ü"), "file:///tmp/%C3%BC");
  assert.equal(uriFromPath("/100%"), "file:///100%25");
  assert.equal(uriFromPath("/b\\s"), "file:///b%5Cs");
  assert.equal(uriFromPath("/a&b=c+d$,@!*'();[1]~-"), "file:///a&b=c+d$,@!*'();[1]~-");
  assert.equal(uriFromPath("/"), "file:///");
  assert.equal(uriFromPath("/c:/x"), "file:///c%3A/x");
});

const segment = fc
  .uint8Array({ minLength: 1, maxLength: 12 })
  .map((bytes) => bytes.map((byte) => (byte === 0 || byte === 0x2f ? 0x61 : byte)))
  .filter((bytes) => !isDots(bytes));

test("every path without dot segments is converted to a URI and back, byte for byte", () => {
  fc.assert(
    fc.property(fc.array(segment, { minLength: 1, maxLength: 5 }), (segments) => {
      const path = Buffer.concat(segments.flatMap((part) => [Buffer.from("/"), part]));
      assert.deepEqual(Buffer.from(pathBytesFromUri(uriFromPath(path))), path);
    }),
  );
});

test("every text path is converted to a URI and back", () => {
  const name = fc
    .string({ unit: "grapheme", minLength: 1, maxLength: 12 })
    .map((text) => text.replaceAll(/[/\0]/g, "_"))
    .filter((text) => text !== "." && text !== "..");
  fc.assert(
    fc.property(fc.array(name, { minLength: 1, maxLength: 5 }), (names) => {
      const path = `/${names.join("/")}`;
      assert.equal(pathFromUri(uriFromPath(path)), path);
    }),
  );
});

test("every URI has the normal form and the path of the URL parser", () => {
  const name = fc.string({ unit: fc.constantFrom("a", "Z", "9", ".", "-", "_", "~", ":", "%41", " "), maxLength: 4 });
  fc.assert(
    fc.property(fc.array(name, { minLength: 1, maxLength: 4 }), (names) => {
      const uri = `file:///${names.join("/")}`;
      const { pathname } = new URL(uri);
      if (/^\/[A-Za-z]:(\/|$)/.test(pathname)) return;
      assert.equal(normalizePathUri(uri), `file://${pathname}`);
      assert.equal(pathFromUri(uri), decodeURIComponent(pathname));
    }),
    { numRuns: 2000 },
  );
});

test("a path of millions of segments is converted like a short one", () => {
  const path = "/a".repeat(5_000_000);
  assert.ok(normalizePathUri(`file://${path}`) === `file://${path}`);
  assert.ok(pathFromUri(`file://${path}`) === path);
});

test("pathFromUri converts any text to an absolute path or a request error", () => {
  const texts = fc.oneof(
    fc.string({ unit: "binary" }),
    fc.string({ unit: "binary" }).map((rest) => `file://${rest}`),
    fc.string({ unit: "binary" }).map((rest) => `file:///${rest}`),
  );
  fc.assert(
    fc.property(texts, (text) => {
      try {
        assert.match(pathFromUri(text), /^\//);
      } catch (error) {
        assert.ok(error instanceof RequestError, String(error));
      }
    }),
  );
});

function isDots(bytes: Uint8Array): boolean {
  return bytes.length <= 2 && bytes.every((byte) => byte === 0x2e);
}

function otherSystem(): string | false {
  return process.platform === "linux" ? false : "the texts name the system and are those of Linux";
}
