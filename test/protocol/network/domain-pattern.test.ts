import assert from "node:assert/strict";
import { describe, test } from "node:test";
import fc from "fast-check";
import {
  intersectDomains,
  matchesDomain,
  normalizeHost,
  parseDomainPattern,
} from "../../../src/protocol/network/domain-pattern.ts";

const label = fc.constantFrom("a", "b", "example", "test");
const name = fc.array(label, { minLength: 1, maxLength: 4 }).map((labels) => labels.join("."));
const pattern = fc.oneof(
  fc.constant("*"),
  name,
  name.map((domain) => `*.${domain}`),
  name.map((domain) => `**.${domain}`),
  fc.constantFrom("93.184.216.34", "::1", "localhost"),
);
const host = fc.oneof(name, fc.constantFrom("93.184.216.34", "127.0.0.1", "::1", "localhost"));

describe("domain patterns", () => {
  test("match the host, its sub-domains, or both", () => {
    const matches = (text: string, ...hosts: string[]) => hosts.map((host) => matchesDomain(text, host));
    assert.deepEqual(matches("example.com", "example.com", "a.example.com", "notexample.com"), [true, false, false]);
    assert.deepEqual(matches("*.example.com", "example.com", "a.b.example.com", "notexample.com"), [
      false,
      true,
      false,
    ]);
    assert.deepEqual(matches("**.example.com", "example.com", "a.example.com", "notexample.com"), [true, true, false]);
    assert.deepEqual(matches("*", "example.com", "93.184.216.34"), [true, true]);
    assert.deepEqual(matches("*.0.0.1", "127.0.0.1"), [false]);
  });

  test("compare hosts without case, port, brackets and trailing dots", () => {
    const cases = {
      " Example.COM. ": "example.com",
      "example.com:443": "example.com",
      "[::1]:80": "::1",
      "[2001:DB8:0:0::1]": "2001:db8::1",
      "2001:db8:0:0:0:0:0:1": "2001:db8::1",
      "127.0.0.1": "127.0.0.1",
    };
    for (const [given, expected] of Object.entries(cases)) assert.equal(normalizeHost(given), expected, given);
  });

  test("normalize case, dots, IPv6 addresses and international names", () => {
    assert.equal(parseDomainPattern("*.Example.COM."), "*.example.com");
    assert.equal(parseDomainPattern("[::0001]"), "::1");
    assert.equal(parseDomainPattern("bücher.example"), "xn--bcher-kva.example");
    assert.equal(parseDomainPattern("_srv.example"), "_srv.example");
  });

  test("reject ambiguous patterns with the remedy", () => {
    const cases = {
      "": /`` is empty; give a domain such as example\.com/,
      "https://example.com": /give the host alone, without scheme and path/,
      "example.com:443": /has a port; list ports separately/,
      "[::1]:443": /has a port/,
      "*example.com": /has `\*` inside; use \*\.example\.com/,
      "a.*.com": /has `\*` inside/,
      "***.com": /has `\*` inside/,
      "*.127.0.0.1": /wildcard before an IP address/,
      "10.1": /neither a domain nor a complete IP address/,
      "0x7f000001": /neither a domain nor a complete IP address/,
      "ex ample.com": /is not a domain/,
      "-a.com": /is not a domain/,
      "a..com": /is not a domain/,
      [`${"a".repeat(64)}.com`]: /is not a domain/,
      [`${"a.".repeat(130)}com`]: /is not a domain/,
    };
    for (const [given, expected] of Object.entries(cases)) assert.throws(() => parseDomainPattern(given), expected);
  });

  test("parse to themselves once normalized", () => {
    fc.assert(fc.property(pattern, (text) => assert.equal(parseDomainPattern(text), text)));
  });

  test("intersect to exactly the hosts that match both, except that `*` covers no literal address", () => {
    fc.assert(
      fc.property(pattern, pattern, host, (a, b, given) => {
        const both = intersectDomains(a, b);
        const isInBoth = both !== null && matchesDomain(both, given);
        const isLiteral = given === "localhost" || normalizeHost(given).includes(":") || /^[\d.]+$/.test(given);
        const expected = matchesDomain(a, given) && matchesDomain(b, given);
        if (isLiteral && (a === "*") !== (b === "*")) assert.equal(isInBoth, false);
        else assert.equal(isInBoth, expected);
      }),
      { numRuns: 2000 },
    );
  });

  test("intersect in any order", () => {
    fc.assert(fc.property(pattern, pattern, (a, b) => assert.equal(intersectDomains(a, b), intersectDomains(b, a))));
  });
});
