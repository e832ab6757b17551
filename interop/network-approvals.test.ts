/** Questions about hosts between the real Codex client, its user or reviewer, and this server. */

import assert from "node:assert/strict";
import { describe, test } from "node:test";
import { blockedByPolicy, explainDenial, REJECTED_BY_USER } from "../src/tools/network/network-denial-compat.ts";
import type { NetworkTarget } from "../src/tools/network/network-target.ts";
import { noSandbox } from "../test/sandbox/sandbox-fixture.ts";
import { noTestNetwork } from "../test/support/network/test-network.ts";
import { type AppServerRun, runAppServer } from "./app-server-run.ts";
import { noCodex } from "./codex-run.ts";

const skip = noCodex || noTestNetwork || noSandbox;
const REVIEWED = 'approval_policy = "on-request"\napprovals_reviewer = "auto_review"\n';
const ON_REQUEST = 'approval_policy = "on-request"\n';
const OTHER = "curl -sS -i http://other.test/";
const ALLOW = { risk_level: "low", user_authorization: "high", outcome: "allow", rationale: "fine" };
/** Fields of every decision about the request. */
const DECISION = {
  ...{ scope: "domain", source: "decider", reason: "not_allowed", method: "GET" },
  ...{ protocol: "http", host: "other.test", port: 80 },
};
const target = (host: string): NetworkTarget => ({ host, port: 80, protocol: "http" });

function withoutVaryingFields({ processId: _, timestamp: __, client: ___, ...fields }: Record<string, unknown> = {}) {
  return fields;
}

/** The messages of a run about the network of its process. */
function networkMessages({ sent, received }: AppServerRun) {
  const start = sent.find(({ method }) => method === "process/start");
  const question = received.find(({ method }) => method === "network/policyRequest");
  const answer = sent.find(({ id, method }) => id === question?.id && method === undefined);
  const decision = received.find(({ method }) => method === "network/policyDecision");
  const exited = received.find(({ method }) => method === "process/exited");
  return {
    timeoutMs: Object(start?.params?.networkProxy).policyDecisionTimeoutMs,
    enforced: start?.params?.enforceManagedNetwork,
    question: question?.params?.request,
    answer: answer?.result?.decision,
    decision: withoutVaryingFields(decision?.params),
    exitCode: exited?.params?.exitCode,
  };
}

for (const environment of ["codex", "procwire"] as const)
  describe(`the real client with an automatic reviewer and ${environment} as exec-server`, {
    skip,
    timeout: 120_000,
  }, () => {
    test("allows a host", async () => {
      const review = JSON.stringify(ALLOW);
      const run = await runAppServer({ environment, settings: REVIEWED, commands: [OTHER], review });
      assert.deepEqual(networkMessages(run), {
        ...{ timeoutMs: 100_000, enforced: true, exitCode: 0 },
        question: { protocol: "http", host: "other.test", port: 80 },
        answer: { type: "allow" },
        decision: { ...DECISION, decision: "allow", policyOverride: true },
      });
      assert.match(run.outputs[0] ?? "", /HTTP\/1.1 200 OK.*from 93.184.216.34:80/s);
    });

    test("denies a host after an invalid review, and ends the process", async () => {
      // The process outlives its request, so that the client ends it.
      const commands = [`${OTHER}; sleep 60`];
      const run = await runAppServer({ environment, settings: REVIEWED, commands, review: "no JSON" });
      assert.deepEqual(networkMessages(run), {
        ...{ timeoutMs: 100_000, enforced: true, exitCode: 137 },
        question: { protocol: "http", host: "other.test", port: 80 },
        answer: { type: "deny", reason: "not_allowed" },
        decision: { ...DECISION, decision: "deny", policyOverride: false },
      });
      assert.match(run.outputs[0] ?? "", /Automatic approval review failed/);
    });

    test("does not let the server ask a user", async () => {
      const run = await runAppServer({ environment, settings: ON_REQUEST, commands: [OTHER], decision: "accept" });
      assert.deepEqual(run.approvals, []);
      assert.deepEqual(networkMessages(run), {
        ...{ timeoutMs: undefined, enforced: true, exitCode: 0, question: undefined, answer: undefined },
        decision: { ...DECISION, decision: "deny", source: "baseline_policy", policyOverride: false },
      });
      assert.match(run.outputs[0] ?? "", /HTTP\/1.1 403 Forbidden.*"message":"Domain not in allowlist."/s);
    });
  });

describe("approval texts of the real client", { skip, timeout: 120_000 }, () => {
  const failure = (text: string) => `exec_command failed: ProcessFailed { message: ${JSON.stringify(text)} }`;

  test("names the host to the user, who accepts", async () => {
    const settings = ON_REQUEST;
    const run = await runAppServer({ environment: "local", settings, commands: [OTHER], decision: "accept" });
    const [approval = {}] = run.approvals;
    assert.equal(approval.method, "item/commandExecution/requestApproval");
    assert.equal(approval.reason, "Network access to other.test requires approval");
    assert.match(String(approval.itemId), /^network#local#http#other\.test#80#[\da-f-]{36}$/);
    assert.deepEqual(approval.networkApprovalContext, { host: "other.test", protocol: "http" });
    const allow = { host: "other.test", action: "allow" };
    assert.deepEqual(approval.proposedNetworkPolicyAmendments, [allow, { ...allow, action: "deny" }]);
    const always = { applyNetworkPolicyAmendment: { network_policy_amendment: allow } };
    assert.deepEqual(approval.availableDecisions, ["accept", "acceptForSession", always, "cancel"]);
    assert.match(run.outputs[0] ?? "", /HTTP\/1.1 200 OK/);
  });

  test("gives the model the texts of this package", async () => {
    const commands = [OTHER, "curl -sS http://bad.good.test/", "curl -sS http://10.1.2.3/"];
    const declined = await runAppServer({ environment: "local", settings: ON_REQUEST, commands, decision: "decline" });
    assert.deepEqual(declined.outputs, [
      failure(REJECTED_BY_USER),
      failure(explainDenial(target("bad.good.test"), "denied")),
      failure(explainDenial(target("10.1.2.3"), "not_allowed_local")),
    ]);
    const settings = 'approval_policy = "never"\n';
    const never = await runAppServer({ environment: "local", settings, commands: [OTHER] });
    assert.deepEqual(never.outputs, [failure(blockedByPolicy(target("other.test")))]);
    const unasked = await runAppServer({
      environment: "local",
      settings: ON_REQUEST,
      commands: [OTHER],
      hasRequirements: false,
    });
    assert.deepEqual(unasked.outputs, [failure(explainDenial(target("other.test"), "not_allowed"))]);
    assert.deepEqual([never.approvals, unasked.approvals], [[], []]);
  });
});
