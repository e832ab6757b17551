import assert from "node:assert/strict";
import { describe, test } from "node:test";
import fc from "fast-check";
import { canonicalHost, HostPolicy, requireValidConfig } from "../../src/network/host-policy.ts";
import { policy } from "../support/network/network-config.ts";

describe("canonicalHost", () => {
  const cases: [text: string, host: string | null][] = [
    ["GOOD.test.", "good.test"],
    [" good.test ", "good.test"],
    ["good.test:8080", "good.test"],
    ["[::1]:80", "::1"],
    ["[0:0:0:0:0:0:0:1]", "::1"],
    ["[::ffff:10.1.2.3]:80", "10.1.2.3"],
    ["0:0:0:0:0:FFFF:a01:203", "10.1.2.3"],
    ["127.1", "127.0.0.1"],
    ["2130706433", "127.0.0.1"],
    ["0x7f.1", "127.0.0.1"],
    ["0177.0.0.1", "127.0.0.1"],
    ["1.2.3.999", null],
    ["", null],
    ["a b", null],
    ["a\u0000b", null],
    ["user@good.test", null],
    ["good.test/x", null],
    ["good.test%2f", null],
    ["a:b:c", null],
    // Resolvers map these to `good.test`.
    ["go\u00adod.test", null],
    ["g\u00baod.test", null],
    ["\uff47ood.test", null],
    ["good\u3002test", null],
    [`${"a".repeat(254)}`, null],
  ];
  for (const [text, host] of cases)
    test(`${JSON.stringify(text.slice(0, 20))} is ${host}`, () => assert.equal(canonicalHost(text), host));

  test("is idempotent", () => {
    fc.assert(
      fc.property(fc.oneof(fc.domain(), fc.ipV4Extended(), fc.ipV6(), fc.string()), (text) => {
        const host = canonicalHost(text);
        if (host !== null) assert.equal(canonicalHost(host), host);
      }),
    );
  });
});

describe("HostPolicy", () => {
  const hosts = new HostPolicy(
    policy({
      domains: {
        "good.test": "allow",
        "*.good.test": "allow",
        "bad.good.test": "deny",
        "**.both.test": "allow",
        "10.1.2.3": "allow",
        "unlisted.test": "none",
      },
      reviewDomains: ["review.good.test"],
    }),
  );
  const cases: [host: string, rule: string][] = [
    ["good.test", "allowed"],
    ["deep.www.good.test", "allowed"],
    ["bad.good.test", "denied"],
    ["sub.bad.good.test", "allowed"],
    ["both.test", "allowed"],
    ["a.both.test", "allowed"],
    ["evilgood.test", "ask"],
    ["unlisted.test", "ask"],
    ["review.good.test", "ask"],
    ["10.1.2.3", "allowed"],
    ["10.1.2.4", "not_allowed_local"],
    ["127.0.0.1", "not_allowed_local"],
    ["localhost", "not_allowed_local"],
    ["::1", "not_allowed_local"],
    ["93.184.216.34", "ask"],
  ];
  for (const [host, rule] of cases) test(`${host}: ${rule}`, () => assert.equal(hosts.check(host), rule));

  test("`*` allows public hosts only", () => {
    const all = new HostPolicy(policy({ domains: { "*": "allow", "other.test": "deny" } }));
    assert.equal(all.check("good.test"), "allowed");
    assert.equal(all.check("93.184.216.34"), "allowed");
    assert.equal(all.check("other.test"), "denied");
    for (const host of ["10.1.2.3", "127.0.0.1", "localhost"]) assert.equal(all.check(host), "not_allowed_local");
  });

  test("a pattern with an IPv4 address matches its IPv4-mapped form, in the policy too", () => {
    const hosts = new HostPolicy(
      policy({ domains: { "*": "allow", "::ffff:192.0.2.1": "deny", "192.0.2.2": "deny" }, allowLocalBinding: true }),
    );
    for (const host of ["192.0.2.1", "::ffff:192.0.2.1", "::ffff:c000:202"])
      assert.equal(hosts.check(canonicalHost(host) ?? ""), "denied", host);
  });

  test("with allowLocalBinding the allow patterns decide about local hosts", () => {
    const local = new HostPolicy(policy({ domains: { "127.0.0.1": "allow" }, allowLocalBinding: true }));
    assert.equal(local.check("127.0.0.1"), "allowed");
    assert.equal(local.check("10.1.2.3"), "ask");
  });
});

describe("requireValidConfig", () => {
  const invalid: [config: Parameters<typeof requireValidConfig>[0], processId: string, message: string][] = [
    [
      { proxy: policy({ enabled: false }) },
      "p",
      "invalid network proxy config: executor-local network proxy launch requires an enabled proxy",
    ],
    [
      { proxy: policy({ domains: { "*": "deny" } }) },
      "p",
      "invalid network proxy config: invalid value for network.denied_domains: * (allowed exact hosts or scoped wildcards like *.example.com or **.example.com)",
    ],
    [
      { proxy: policy({}), policyDecisionTimeoutMs: 0 },
      "p",
      "network policy decision callback timeout must be nonzero",
    ],
    [
      { proxy: policy({}), policyDecisionTimeoutMs: 1 },
      "",
      "callback-enabled process ID must be non-empty and at most 256 bytes",
    ],
    [
      { proxy: policy({}), policyDecisionTimeoutMs: 1 },
      "\u00e4".repeat(129),
      "callback-enabled process ID must be non-empty and at most 256 bytes",
    ],
    [
      { proxy: policy({ credentialMasking: true }) },
      "p",
      "networkProxy.proxy.credentialMasking is not supported by this server; send false",
    ],
  ];
  for (const [config, processId, message] of invalid)
    test(`rejects with: ${message.slice(0, 80)}`, () =>
      assert.throws(() => requireValidConfig(config, processId), { code: -32602, message }));

  test("accepts a long process id without questions, and 256 bytes with questions", () => {
    requireValidConfig({ proxy: policy({}) }, "a".repeat(1000));
    requireValidConfig({ proxy: policy({}), policyDecisionTimeoutMs: 1 }, "a".repeat(256));
  });
});
