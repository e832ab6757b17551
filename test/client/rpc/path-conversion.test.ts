import assert from "node:assert/strict";
import { posix } from "node:path";
import { describe, test } from "node:test";
import fc from "fast-check";
import { checkBelow, checkEntryName, entryNormalizer, joinEntry } from "../../../src/client/rpc/path-conversion.ts";
import { encodePathText, pathBytesFromUri, uriFromPath } from "../../../src/protocol/path-uri.ts";

/** Names with many special characters. */
const wireName = fc
  .array(
    fc.oneof(
      fc.constantFrom(".", "..", "/", "\\", "%2F", "%2f", "%2e", "%2E", "%00", "\0", "%", "%25", "?", "#", " "),
      fc.constantFrom("\t", "\n", "\r", "\u012e", "\u012f", "c:", "file:", "a", "\ud800"),
      fc.string({ maxLength: 3 }),
    ),
    { maxLength: 6 },
  )
  .map((parts) => parts.join(""));

const directories = ["/", "/dest", "/a b/ü", "file:///", "file:///dest", "file:///d%20e%FF"];

const bytesOf = (path: string) =>
  Buffer.from(pathBytesFromUri(/^file:/i.test(path) ? path : uriFromPath(path))).toString("latin1");

describe("joinEntry", () => {
  test("returns one component below the directory, or throws", () => {
    fc.assert(
      fc.property(fc.constantFrom(...directories), wireName, (directory, name) => {
        let path: string;
        try {
          path = joinEntry(directory, name);
        } catch (error) {
          assert.match(String(error), /the server sent an invalid name/);
          return;
        }
        const parent = bytesOf(directory).replace(/\/$/, "");
        const found = bytesOf(path);
        assert.equal(posix.normalize(found), found);
        assert.equal(posix.dirname(found), parent || "/");
        assert.ok(posix.basename(found).length > 0);
        assert.doesNotMatch(found, /\0/);
      }),
      { numRuns: 5_000 },
    );
  });

  test("accepts every name that a file system can hold, byte for byte", () => {
    const fileName = fc
      .uint8Array({ minLength: 1, maxLength: 30 })
      .filter((bytes) => !bytes.some((byte) => byte === 0 || byte === 0x2f))
      .filter((bytes) => ![".", ".."].includes(Buffer.from(bytes).toString("latin1")));
    fc.assert(
      fc.property(fc.constantFrom(...directories), fileName, (directory, name) => {
        const found = bytesOf(joinEntry(directory, encodePathText(name)));
        assert.equal(posix.basename(found), Buffer.from(name).toString("latin1"));
      }),
      { numRuns: 2_000 },
    );
  });

  for (const name of ["", ".", "..", "/", "/etc/passwd", "a/b", "a%2Fb", "%2e%2e", "a%00", "a\0"]) {
    test(`rejects ${JSON.stringify(name)}`, () => {
      assert.throws(() => joinEntry("/dest", name), {
        name: "ProtocolError",
        message: /^the server sent an invalid name `.*` for an entry of `\/dest`: the name /s,
      });
      assert.throws(() => entryNormalizer("/dest")(name), /the server sent an invalid name/);
    });
  }
});

describe("entryNormalizer", () => {
  test("rejects a name that occurs twice, in any encoding", () => {
    const normalize = entryNormalizer("/data");
    assert.equal(normalize("a"), "a");
    assert.equal(normalize("%62"), "b");
    assert.throws(() => normalize("%61"), /invalid name `%61` for an entry of `\/data`: the name occurs twice/);
  });

  test("accepts only single components without encoding", () => {
    for (const name of ["", ".", "..", "a/b", "/a", "a\0b"])
      assert.throws(() => checkEntryName(name, "/data"), /the server sent an invalid name/);
    for (const name of ["a", "...", "%2F", "ü", "\ufffd"]) checkEntryName(name, "/data");
  });
});

describe("checkBelow", () => {
  test("accepts only paths below the requested directory", () => {
    for (const uri of ["file:///data/a", "file:///data/a/b%FF", "file:///data/%252F"]) checkBelow("file:///data", uri);
    for (const uri of [
      "file:///data",
      "file:///datax",
      "file:///etc/passwd",
      "file:///data/../etc",
      "file:///data/a%2F..%2F..%2Fetc",
      "file:///data//a",
      "file:///data/%2e%2e/x",
    ])
      assert.throws(() => checkBelow("file:///data", uri), /the server sent an invalid path/, uri);
    checkBelow("file:///", "file:///a");
  });
});
