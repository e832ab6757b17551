import assert from "node:assert/strict";
import { isIP } from "node:net";
import { test } from "node:test";
import fc from "fast-check";
import { ipVersion } from "../../src/base/ip-address.ts";

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
