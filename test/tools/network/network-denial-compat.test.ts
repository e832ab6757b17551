import assert from "node:assert/strict";
import { describe, test } from "node:test";
import { blockedByPolicy, explainDenial, reasonWords } from "../../../src/tools/network/network-denial-compat.ts";

const target = { host: "a.test", port: 80, protocol: "http" } as const;

describe("explainDenial", () => {
  test("returns the text of a denial by policy unchanged", () => {
    const text = 'Network access to "http://a.test:80" was blocked by policy.';
    assert.equal(blockedByPolicy(target), text);
    assert.equal(explainDenial(target, text), text);
  });

  test("adds the host to every other text, also to a denial by policy of another host", () => {
    const other = 'Network access to "http://b.test:80" was blocked by policy.';
    for (const reason of [other, "rejected by user", "policy_denied", "Not_allowed"])
      assert.equal(explainDenial(target, reason), `Network access to "a.test" was blocked: ${reason}`);
  });

  test("explains the reasons of the proxy", () => {
    const prefix = 'Network access to "a.test" was blocked: ';
    assert.equal(
      explainDenial(target, "not_allowed"),
      `${prefix}domain is not on the allowlist for the current sandbox mode.`,
    );
    assert.equal(explainDenial(target, "a\x1b[2Jb"), `${prefix}a\\x1b[2Jb`);
  });
});

test("reasonWords returns short words for the reasons of the proxy, and other reasons as one line", () => {
  assert.equal(reasonWords("not_allowed_local"), "local or private address");
  assert.equal(reasonWords("rejected by\nuser"), "rejected by\\nuser");
});
