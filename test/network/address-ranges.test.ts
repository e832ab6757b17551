import assert from "node:assert/strict";
import { describe, test } from "node:test";
import fc from "fast-check";
import { isLoopbackAddress, isNonPublicAddress } from "../../src/network/address-ranges.ts";

describe("isNonPublicAddress", () => {
  const nonPublic = [
    ...["127.0.0.1", "127.255.255.254", "0.0.0.0", "0.1.2.3", "10.1.2.3", "172.16.0.1", "172.31.255.255"],
    ...["192.168.7.7", "169.254.169.254", "100.64.0.1", "192.0.0.8", "192.0.2.1", "198.18.0.1", "198.19.255.255"],
    ...["198.51.100.7", "203.0.113.9", "224.0.0.1", "240.0.0.1", "255.255.255.255"],
    ...["::", "::1", "fc00::1", "fdff::1", "fe80::1", "fe80::1%eth0", "fec0::1", "ff02::1"],
    ...["::ffff:127.0.0.1", "::ffff:7f00:1", "::10.0.0.1", "::ffff:10.1.2.3", "64:ff9b::10.0.0.1", "64:ff9b:1::1"],
    ...["2002:7f00:1::", "2002:a01:203::1", "0:0:0:0:0:0:0:1"],
    ...["", "localhost", "127.1", "1.2.3.4.5", "example.com"],
  ];
  for (const address of nonPublic)
    test(`is true for ${JSON.stringify(address)}`, () => assert.equal(isNonPublicAddress(address), true));

  const publicAddresses = [
    ...["1.1.1.1", "93.184.216.34", "9.255.255.255", "11.0.0.0", "172.15.255.255", "172.32.0.0", "100.128.0.0"],
    ...["192.0.1.0", "198.17.255.255", "198.20.0.0", "223.255.255.255", "128.0.0.1"],
    ...["2606:4700::1111", "2001:db8::1", "::ffff:93.184.216.34", "64:ff9b::5db8:d822", "2002:5db8:d822::1"],
  ];
  for (const address of publicAddresses)
    test(`is false for ${address}`, () => assert.equal(isNonPublicAddress(address), false));

  test("judges a mapped IPv6 address by its IPv4 address", () => {
    fc.assert(
      fc.property(fc.ipV4(), (address) =>
        assert.equal(isNonPublicAddress(`::ffff:${address}`), isNonPublicAddress(address)),
      ),
    );
  });

  test("never throws", () => {
    fc.assert(
      fc.property(fc.oneof(fc.string(), fc.ipV6(), fc.ipV4Extended()), (text) => {
        isNonPublicAddress(text);
        isLoopbackAddress(text);
      }),
    );
  });
});

test("isLoopbackAddress includes the unspecified and mapped addresses", () => {
  for (const address of ["127.0.0.1", "127.9.9.9", "0.0.0.0", "::1", "::", "::ffff:127.0.0.1", "::ffff:0:0"])
    assert.equal(isLoopbackAddress(address), true, address);
  for (const address of ["10.0.0.1", "93.184.216.34", "fe80::1", "localhost"])
    assert.equal(isLoopbackAddress(address), false, address);
});
