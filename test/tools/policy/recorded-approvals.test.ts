import assert from "node:assert/strict";
import { describe, test } from "node:test";
import type { ApprovalAnswer, ApprovalPolicy, ApprovalRequest } from "../../../src/tools/policy/approval.ts";
import { type ApprovalDecision, recordApprovals } from "../../../src/tools/policy/recorded-approvals.ts";

const request: ApprovalRequest = {
  kind: "command",
  cmd: "make",
  argv: ["/bin/sh", "-c", "make"],
  shell: "system",
  tty: false,
  commands: [["make"]],
  workdir: "/",
  sandbox: "none",
  sandboxWritable: false,
};

/** A policy that asks, whose log fails while `problem` is set. */
function setUp(answer: ApprovalAnswer) {
  const records: ApprovalDecision[] = [];
  const log = { problem: null as string | null, records };
  const policy: ApprovalPolicy = { review: () => ({ type: "ask" }), ask: async () => answer };
  const recorded = recordApprovals(policy, {
    requireWritable() {
      if (log.problem !== null) throw new Error(log.problem);
    },
    record: (decision) => void records.push(decision),
  });
  return { recorded, log };
}

describe("recordApprovals", () => {
  test("records the answer of the user, and nothing before it", async () => {
    const { recorded, log } = setUp({ type: "allow", remember: { type: "session" } });
    assert.deepEqual(recorded.review(request), { type: "ask" });
    assert.deepEqual(log.records, []);
    assert.equal((await recorded.ask(request)).type, "allow");
    assert.deepEqual(log.records, [{ request, isAllowed: true, answer: "session" }]);
  });

  test("records a refusal with its reason, as an answer only if the user gave it", async () => {
    const reason = "not now";
    const cases: [ApprovalAnswer, string | undefined][] = [
      [{ type: "refuse", reason }, "deny"],
      [{ type: "refuse", reason, isUnanswered: false }, "deny"],
      [{ type: "refuse", reason, isUnanswered: true }, undefined],
    ];
    for (const [refusal, answer] of cases) {
      const { recorded, log } = setUp(refusal);
      assert.equal(await recorded.ask(request), refusal);
      assert.deepEqual(log.records, [{ request, isAllowed: false, reason, answer }]);
    }
  });

  test("records decisions of rules without an answer", () => {
    const records: ApprovalDecision[] = [];
    const log = {
      requireWritable: () => undefined,
      record: (decision: ApprovalDecision) => void records.push(decision),
    };
    const ask = () => assert.fail("no question expected");
    for (const [decision, record] of [
      [{ type: "allow" }, { isAllowed: true, reason: undefined }],
      [
        { type: "refuse", reason: "forbidden" },
        { isAllowed: false, reason: "forbidden" },
      ],
    ] as const) {
      assert.deepEqual(recordApprovals({ review: () => decision, ask }, log).review(request), decision);
      assert.deepEqual(records.pop(), { request, ...record });
    }
  });

  test("keeps whether prompts are combined, and separate prompts by default", () => {
    const log = { requireWritable: () => undefined, record: () => undefined };
    const policy: ApprovalPolicy = { review: () => ({ type: "ask" }), ask: async () => ({ type: "allow" }) };
    for (const [given, expected] of [
      [policy, false],
      [{ ...policy, combined: false }, false],
      [{ ...policy, combined: true }, true],
    ] as const)
      assert.equal(recordApprovals(given, log).combined, expected);
  });

  test("refuses without a question while the log cannot be written", () => {
    const { recorded, log } = setUp({ type: "allow" });
    log.problem = "audit log: no space";
    assert.deepEqual(recorded.review(request), { type: "refuse", reason: "audit log: no space" });
    assert.deepEqual(log.records, []);
  });

  test("refuses an allowed command if the log fails during the question", async () => {
    const { recorded, log } = setUp({ type: "allow" });
    assert.deepEqual(recorded.review(request), { type: "ask" });
    log.problem = "audit log: no space";
    assert.deepEqual(await recorded.ask(request), { type: "refuse", reason: "audit log: no space" });
    assert.deepEqual(log.records, []);
  });
});
