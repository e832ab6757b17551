import assert from "node:assert/strict";
import { isIP } from "node:net";
import { test } from "node:test";
import fc from "fast-check";
import { bracketHost, expandIpv6, ipVersion } from "../../src/base/ip-address.ts";

test("ipVersion returns the same IP version as node:net", () => {
  const nearly = fc
    .array(fc.constantFrom("::", ":", "1", "ffff", "0", "127", "255", "256", "01", ".", "g", "%", "lo", " ", "\n", "["))
    .map((parts) => parts.join(""));
  fc.assert(
    fc.property(fc.oneof(fc.ipV4(), fc.ipV6(), nearly, fc.string()), (text) => {
      assert.equal(ipVersion(text), isIP(text), text);
    }),
    { numRuns: 5000 },
  );
  for (const text of ["127.0.0.1", "::1", "::ffff:127.0.0.1", "fe80::1%eth0", "localhost", "", "1.2.3", "1.2.3.4."])
    assert.equal(ipVersion(text), isIP(text), text);
});

test("expandIpv6 returns the eight groups of an IPv6 address", () => {
  for (const [text, groups] of [
    ["::", [0, 0, 0, 0, 0, 0, 0, 0]],
    ["::1", [0, 0, 0, 0, 0, 0, 0, 1]],
    ["fe80::", [0xfe80, 0, 0, 0, 0, 0, 0, 0]],
    ["1:2:3:4:5:6:7:8", [1, 2, 3, 4, 5, 6, 7, 8]],
    ["::ffff:127.0.0.1", [0, 0, 0, 0, 0, 0xffff, 0x7f00, 1]],
  ] as const)
    assert.deepEqual(expandIpv6(text), groups, text);
  const shorten = (text: string) => new URL(`http://[${text}]`).hostname;
  fc.assert(
    fc.property(fc.ipV6(), (text) => {
      const groups = expandIpv6(text);
      assert.equal(groups.length, 8);
      assert.equal(shorten(groups.map((group) => group.toString(16)).join(":")), shorten(text));
    }),
  );
  for (const text of ["", "127.0.0.1", "fe80::1%eth0", "1:2:3"]) assert.throws(() => expandIpv6(text), text);
});

test("bracketHost puts only IPv6 addresses in brackets", () => {
  assert.deepEqual(["::1", "127.0.0.1", "a.test"].map(bracketHost), ["[::1]", "127.0.0.1", "a.test"]);
});
