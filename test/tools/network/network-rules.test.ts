import assert from "node:assert/strict";
import { describe, test } from "node:test";
import fc from "fast-check";
import { matchesDomain } from "../../../src/protocol/network/domain-pattern.ts";
import { networkProxy } from "../../../src/protocol/network/network-schemas.ts";
import { toNetworkProxy } from "../../../src/tools/network/network-launch.ts";
import {
  decideHost,
  type HostDecision,
  type ManagedNetwork,
  type NetworkChoice,
  type NetworkRules,
  narrowNetwork,
  parseNetworkSection,
  parseNetworkWords,
  resolveNetworkChoice,
} from "../../../src/tools/network/network-rules.ts";

const FIELD = "--network";
const resolve = (words: string[], section: Record<string, unknown> | null = null) =>
  resolveNetworkChoice(parseNetworkWords(words, FIELD), section && parseNetworkSection(section), FIELD);
const narrow = (base: NetworkChoice, ...words: string[]) => narrowNetwork(base, parseNetworkWords(words, FIELD));
const NO_HOSTS: NetworkRules = { fallback: "deny", allow: [], ask: [], deny: [], ports: null, methods: null };

const name = fc
  .array(fc.constantFrom("a", "b", "test"), { minLength: 1, maxLength: 3 })
  .map((labels) => labels.join("."));
const pattern = fc.oneof(
  name,
  name.map((domain) => `*.${domain}`),
  name.map((domain) => `**.${domain}`),
);
const port = fc.constantFrom(22, 80, 443);
const rules: fc.Arbitrary<NetworkRules> = fc.record({
  fallback: fc.constantFrom<HostDecision>("allow", "ask", "deny"),
  allow: fc.array(fc.oneof(pattern, fc.constant("*")), { maxLength: 4 }),
  ask: fc.array(pattern, { maxLength: 2 }),
  deny: fc.array(pattern, { maxLength: 2 }),
  ports: fc.option(fc.array(port, { minLength: 1 })),
  methods: fc.constant(null),
});
const managed: fc.Arbitrary<ManagedNetwork> = fc
  .array(rules, { minLength: 1, maxLength: 3 })
  .map((layers) => ({ type: "managed", layers }));

/** Decides like the proxy for public names: deny, ports, then allow unless reviewed; the decider decides a miss if asking is on. */
function proxyDecision(network: ManagedNetwork, host: string, port: number): HostDecision {
  const { proxy, policyDecisionTimeoutMs } = toNetworkProxy(network);
  const domains = Object.entries(proxy.domains ?? {});
  const has = (permission: string) =>
    domains.some(([pattern, given]) => given === permission && matchesDomain(pattern, host));
  if (has("deny") || (proxy.ports && !proxy.ports.includes(port))) return "deny";
  const isReviewed = proxy.reviewDomains?.some((pattern) => matchesDomain(pattern, host)) ?? false;
  if (has("allow") && !isReviewed) return "allow";
  return policyDecisionTimeoutMs ? decideHost(network, host, port) : "deny";
}

describe("network rules", () => {
  test("are off unless a user sets them", () => {
    assert.deepEqual(resolve([]), { type: "off" });
    assert.deepEqual(resolve(["off"]), { type: "off" });
    assert.deepEqual(resolve(["on"]), { type: "on" });
  });

  test("collect the lists of repeated words", () => {
    assert.deepEqual(
      resolve(["allow:Example.com, *.example.org", "deny:bad.example.org", "allow:a.test", "ports:443,80"]),
      {
        type: "managed",
        layers: [
          {
            fallback: "deny",
            allow: ["example.com", "*.example.org", "a.test"],
            ask: [],
            deny: ["bad.example.org"],
            ports: [443, 80],
            methods: null,
          },
        ],
      },
    );
    assert.deepEqual(resolve(["ask"]), { type: "managed", layers: [{ ...NO_HOSTS, fallback: "ask" }] });
    assert.deepEqual(resolve(["ask:a.test"]), { type: "managed", layers: [{ ...NO_HOSTS, ask: ["a.test"] }] });
  });

  test("add words to the section of the rules file, and replace its default and ports", () => {
    const section = { default: "allow", allow: ["a.test"], deny: ["b.test"], ports: [443] };
    assert.deepEqual(resolve([], section), {
      type: "managed",
      layers: [{ fallback: "allow", allow: ["a.test"], ask: [], deny: ["b.test"], ports: [443], methods: null }],
    });
    assert.deepEqual(resolve(["ask", "allow:c.test", "ports:22"], section), {
      type: "managed",
      layers: [{ fallback: "ask", allow: ["a.test", "c.test"], ask: [], deny: ["b.test"], ports: [22], methods: null }],
    });
    assert.deepEqual(resolve(["off"], section), { type: "off" });
    assert.deepEqual(resolve([], {}), { type: "managed", layers: [NO_HOSTS] });
  });

  test("limit the methods; words replace those of the section, and a narrower policy keeps common ones", () => {
    const section = { allow: ["a.test"], methods: ["GET", "HEAD"] };
    const methodsOf = (choice: NetworkChoice) =>
      choice.type === "managed" ? toNetworkProxy(choice).proxy.methods : choice.type;
    assert.deepEqual(methodsOf(resolve([], section)), ["GET", "HEAD"]);
    assert.deepEqual(methodsOf(resolve(["methods:POST"], section)), ["POST"]);
    assert.deepEqual(methodsOf(narrow(resolve([], section), "methods:HEAD,PUT")), ["HEAD"]);
    assert.equal(methodsOf(resolve(["allow:a.test"])), undefined);
  });

  test("reject invalid words with option, value and remedy", () => {
    const cases: [string[], RegExp][] = [
      [["on", "allow:a.test"], /^--network `on` conflicts with `allow:a\.test`; give one of them$/],
      [["allow:a.test", "off"], /^--network `allow:a\.test` conflicts with `off`; give one of them$/],
      [["yes"], /^--network `yes` is unknown; give on, off, ask, allow:DOMAIN/],
      [["allow"], /^--network `allow` is unknown/],
      [["allow:"], /^--network `allow:`: `` is empty; give a domain such as example\.com$/],
      [["allow:a.test,"], /: `` is empty/],
      [["allow:https://a.test"], /`https:\/\/a\.test` is not a domain; give the host alone/],
      [["allow:a.test:443"], /`a\.test:443` has a port; list ports separately$/],
      [["deny:*"], /`\*` cannot be in the deny list; use `off`, or `default = "deny"`$/],
      [["ask:*"], /`\*` cannot be in the ask list; use the word `ask`, or `default = "ask"`$/],
      [["ports:0"], /`0` is not a port; give a number from 1 to 65535$/],
      [["ports:https"], /`https` is not a port/],
      [["methods:"], /`` is not an HTTP method/],
      [["deny:a.test"], /^--network allows no host; add allow:DOMAIN, allow:\* or ask, or give `off`$/],
    ];
    for (const [words, message] of cases) assert.throws(() => resolve(words), { message }, words.join(" "));
    const message = "--network `on` conflicts with [network] of the rules file; remove one of them";
    assert.throws(() => resolve(["on"], { allow: ["a.test"] }), { message });
  });

  test("reject an invalid section with field, value and remedy", () => {
    const cases: [unknown, RegExp][] = [
      [[], /^`network` must be a table: \[network\]$/],
      [{ default: "refuse" }, /^\[network\]: `default` is "refuse"; expected "deny", "ask" or "allow"$/],
      [{ alow: [] }, /^\[network\]: unknown key `alow`; expected default, allow, ask, deny, ports or methods$/],
      [{ allow: "a.test" }, /^\[network\]: `allow` must be a list of domains/],
      [{ deny: ["*"] }, /^\[network\]: `deny`: `\*` cannot be in the deny list/],
      [{ ports: [] }, /^\[network\]: `ports` must be a list of port numbers/],
      [{ ports: [70000] }, /^\[network\]: `ports`: `70000` is not a port/],
      [{ methods: [] }, /^\[network\]: `methods` must be a list of HTTP methods such as/],
      [{ methods: ["get"] }, /^\[network\]: `methods`: `get` is not an HTTP method; give a name such as GET$/],
      [{ methods: ["CONNECT"] }, /^\[network\]: `methods`: `CONNECT` opens a tunnel/],
    ];
    for (const [section, message] of cases) assert.throws(() => parseNetworkSection(section), { message });
  });

  test("decide with the strictest list", () => {
    const network: ManagedNetwork = {
      type: "managed",
      layers: [
        { fallback: "ask", allow: ["**.a.test"], ask: ["b.a.test"], deny: ["c.a.test"], ports: [443], methods: null },
      ],
    };
    const decide = (host: string, port = 443) => decideHost(network, host, port);
    assert.equal(decide("a.test"), "allow");
    assert.equal(decide("b.a.test"), "ask");
    assert.equal(decide("c.a.test"), "deny");
    assert.equal(decide("other.test"), "ask");
    assert.equal(decide("a.test", 25), "deny");
  });

  test("have the same decisions in the proxy", () => {
    fc.assert(
      fc.property(managed, name, port, (network, host, port) => {
        assert.equal(proxyDecision(network, host, port), decideHost(network, host, port));
      }),
      { numRuns: 5000 },
    );
  });

  test("convert to a valid start parameter", () => {
    fc.assert(
      fc.property(managed, (network) => {
        const sent: unknown = JSON.parse(JSON.stringify(toNetworkProxy(network)));
        assert.deepEqual(JSON.parse(JSON.stringify(networkProxy.decode(sent))), sent);
      }),
    );
  });
});

describe("a narrower network", () => {
  test("never allows more than its base", () => {
    const words = fc.array(
      fc.oneof(
        fc.constant("ask"),
        pattern.map((text) => `allow:${text}`),
        fc.constant("allow:*"),
        pattern.map((text) => `deny:${text}`),
        pattern.map((text) => `ask:${text}`),
        port.map((number) => `ports:${number}`),
      ),
      { maxLength: 4 },
    );
    const strictness = { allow: 0, ask: 1, deny: 2 };
    fc.assert(
      fc.property(managed, words, name, port, (base, given, host, port) => {
        const result = narrow(base, ...given);
        assert.ok(result.type === "managed");
        assert.ok(strictness[decideHost(result, host, port)] >= strictness[decideHost(base, host, port)]);
        assert.equal(proxyDecision(result, host, port), decideHost(result, host, port));
      }),
      { numRuns: 5000 },
    );
  });

  test("does not open a local address that the base covers by `*` only", () => {
    const result = narrow(resolve(["allow:*"]), "allow:127.0.0.1,localhost,a.test");
    assert.ok(result.type === "managed");
    assert.deepEqual(toNetworkProxy(result).proxy.domains, { "a.test": "allow" });
  });

  test("keeps other hosts if it denies hosts or limits ports only", () => {
    const base = resolve(["allow:a.test,b.test"]);
    const result = narrow(base, "deny:b.test", "ports:443");
    assert.ok(result.type === "managed");
    assert.deepEqual(
      ["a.test", "b.test", "c.test"].map((host) => decideHost(result, host, 443)),
      ["allow", "deny", "deny"],
    );
    assert.equal(decideHost(result, "a.test", 80), "deny");
  });

  test("is off if either is off, and ignores `on`", () => {
    assert.deepEqual(narrow({ type: "off" }, "allow:*"), { type: "off" });
    assert.deepEqual(narrow({ type: "off" }, "on"), { type: "off" });
    assert.deepEqual(narrow(resolve(["allow:a.test"]), "off"), { type: "off" });
    assert.deepEqual(narrow(resolve(["allow:a.test"]), "on"), resolve(["allow:a.test"]));
    assert.deepEqual(narrow({ type: "on" }, "allow:a.test"), resolve(["allow:a.test"]));
  });
});
