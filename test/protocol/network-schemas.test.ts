import assert from "node:assert/strict";
import { describe, test } from "node:test";
import { errorMessage } from "../../src/base/error-message.ts";
import {
  type NetworkPolicy,
  networkPolicy,
  networkProxy,
  policyDecisionParams,
  policyRequestParams,
  policyRequestResult,
} from "../../src/protocol/network/network-schemas.ts";
import type { Schema } from "../../src/protocol/schema.ts";

const proxy: NetworkPolicy = {
  enabled: true,
  enableSocks5: true,
  enableSocks5Udp: true,
  allowUpstreamProxy: true,
  dangerouslyAllowAllUnixSockets: false,
  mode: "full",
  allowLocalBinding: false,
};

function problem(schema: Schema<unknown>, value: unknown): string | null {
  try {
    schema.decode(value);
    return null;
  } catch (error) {
    return errorMessage(error);
  }
}

describe("networkProxy of process/start", () => {
  test("accepts the config of the Codex client, and ignores unknown members", () => {
    const domains = { "bad.good.test": "deny", "good.test": "allow" };
    const config = {
      proxy: { ...proxy, domains, unixSockets: null, newMember: 1 },
      auditMetadata: { conversationId: "c", userEmail: null },
      environmentId: "remote",
      executionId: "e",
    };
    const decoded = networkProxy.decode(config);
    assert.deepEqual({ ...decoded.proxy.domains }, domains);
    assert.equal(decoded.policyDecisionTimeoutMs, undefined);
    assert.equal("newMember" in decoded.proxy, false);
  });

  const cases: [value: unknown, text: string][] = [
    [5, "invalid type: number, expected struct RemoteNetworkProxyLaunchConfig"],
    [{}, "missing field `proxy`"],
    [{ proxy: { ...proxy, mode: undefined } }, "missing field `mode`"],
    [{ proxy: { ...proxy, mode: "x" } }, "unknown variant `x`, expected `limited` or `full`"],
    [{ proxy: { ...proxy, domains: { a: "zz" } } }, "unknown variant `zz`, expected one of `none`, `allow`, `deny`"],
    [{ proxy: { ...proxy, domains: [] } }, "invalid type: sequence, expected a map"],
    [{ proxy: { ...proxy, reviewDomains: {} } }, "invalid type: map, expected a sequence"],
  ];
  for (const [value, text] of cases)
    test(`rejects ${JSON.stringify(value).slice(0, 40)} with: ${text}`, () =>
      assert.equal(problem(networkProxy, value), text));

  for (const name of Object.keys(proxy))
    test(`requires ${name}`, () =>
      assert.equal(problem(networkPolicy, { ...proxy, [name]: undefined }), `missing field \`${name}\``));
});

describe("network/policyRequest", () => {
  test("sends method and client only to extended clients", () => {
    const request = { protocol: "http", host: "other.test", port: 80, method: "GET", client: "127.0.0.1:5" } as const;
    const { method: _, client: __, ...codexRequest } = request;
    assert.deepEqual(policyRequestParams.encode({ processId: "p", request }, false), {
      processId: "p",
      request: codexRequest,
    });
    assert.deepEqual(policyRequestParams.encode({ processId: "p", request }, true), { processId: "p", request });
  });

  const invalid: unknown[] = [
    {},
    { decision: { type: "maybe" } },
    { decision: { type: "deny" } },
    { decision: { type: "deny", reason: 1 } },
    { decision: { type: "deny", reason: "a".repeat(1025) } },
    { decision: { type: "ask", reason: "\u00e4".repeat(513) } },
    { decision: { type: "ask", reason: "a\nb" } },
    { decision: { type: "ask", reason: "a\u0085b" } },
  ];
  for (const answer of invalid)
    test(`rejects the answer ${JSON.stringify(answer).slice(0, 60)}`, () =>
      assert.notEqual(problem(policyRequestResult, answer), null));

  test("accepts allow, deny and ask with a reason of up to 1024 bytes", () => {
    for (const decision of [{ type: "allow" }, { type: "deny", reason: "" }, { type: "ask", reason: "a".repeat(1024) }])
      assert.deepEqual(policyRequestResult.decode({ decision }), { decision });
  });
});

test("network/policyDecision has no method for SOCKS5", () => {
  const decision = {
    processId: "p",
    timestamp: "2026-11-17T04:33:36.555Z",
    scope: "domain",
    decision: "allow",
    source: "baseline_policy",
    reason: "allow",
    protocol: "socks5_tcp",
    host: "good.test",
    port: 81,
    client: "127.0.0.1:55292",
    policyOverride: false,
  } as const;
  assert.deepEqual(policyDecisionParams.encode(policyDecisionParams.decode(decision)), decision);
});
