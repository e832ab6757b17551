import assert from "node:assert/strict";
import { test } from "node:test";
import { parseSandboxRequest } from "../../../src/sandbox/sandbox-request.ts";
import { parseNetworkWords } from "../../../src/tools/network/network-rules.ts";
import type { ApprovalPolicy, ApprovalRequest, PolicyDecision } from "../../../src/tools/policy/approval.ts";
import type { SandboxChoice } from "../../../src/tools/policy/sandbox-choice.ts";
import {
  hasManagedNetwork,
  narrowSandbox,
  requireSandboxForNetwork,
  requireSupportedSandbox,
  toSandboxRequest,
} from "../../../src/tools/policy/sandbox-choice.ts";
import { createUnifiedExec, type UnifiedExec } from "../../../src/tools/unified-exec.ts";
import { flushEventLoop } from "../../support/system/flush-event-loop.ts";
import { until } from "../../support/system/until.ts";
import { call, collectEvents, fact, textOf, typesOf } from "../calls.ts";
import { ScriptedBackend } from "../scripted-backend.ts";

const BUBBLEWRAP: SandboxChoice = { type: "bubblewrap", writableRoots: ["/w"], network: false };

test("an unsupported sandbox is an error, never a weaker sandbox", () => {
  const backend = new ScriptedBackend();
  const create = (hostSandboxes?: string[]) =>
    createUnifiedExec({ backend, cwd: "/w", sandbox: BUBBLEWRAP, ...(hostSandboxes && { hostSandboxes }) });
  assert.throws(() => create([]), {
    message: "sandbox `bubblewrap` is not available: the host supports none",
  });
  assert.throws(() => create(["seatbelt"]), /the host supports seatbelt/);
  assert.throws(() => create(), /the host does not report its sandboxes/);
  requireSupportedSandbox({ type: "none" }, []);
});

test("network rules are an error on a host that cannot enforce them", () => {
  const choice: SandboxChoice = { ...BUBBLEWRAP, network: { type: "managed", layers: [], credentials: [] } };
  assert.throws(() => requireSupportedSandbox(choice, ["bubblewrap"]), {
    name: "SandboxUnavailableError",
    message: /^network rules are not available: the host cannot enforce them/,
  });
  requireSupportedSandbox(choice, ["bubblewrap", "managed-network"]);
  requireSupportedSandbox({ ...BUBBLEWRAP, network: true }, ["bubblewrap"]);
});

test("the chosen sandbox becomes a sandbox request, which the host resolves", () => {
  assert.equal(toSandboxRequest({ type: "none" }), null);
  const intent = parseSandboxRequest(toSandboxRequest({ ...BUBBLEWRAP, deniedRoots: ["/home/me/.ssh"] }));
  const at = (path: string, access: string) => ({
    location: { type: "path", path },
    access,
    missing: "enforce",
  });
  assert.deepEqual(intent, {
    type: "sandboxed",
    files: {
      type: "restricted",
      entries: [
        { location: { type: "root" }, access: "read", missing: "enforce" },
        at("/w", "write"),
        at("/w/.git", "read"),
        at("/w/.codex", "read"),
        at("/w/.agents", "read"),
        at("/w/.procwire", "read"),
        at("/home/me/.ssh", "deny"),
      ],
    },
    network: false,
    cwd: null,
    workspaceRoots: null,
    temporaryDirectories: null,
    privateTmp: true,
    sharedTmp: null,
    protectStartUpFiles: true,
  });
});

test("the words of a call narrow the network of the sandbox, and never widen it", () => {
  const narrow = (choice: SandboxChoice, ...words: string[]) =>
    narrowSandbox(choice, parseNetworkWords(words, "network"));
  const none: SandboxChoice = { type: "none" };
  assert.equal(narrow(none, "off"), none);
  const [on, managed]: SandboxChoice[] = [
    { ...BUBBLEWRAP, network: true },
    { ...BUBBLEWRAP, network: { type: "managed", layers: [] } },
  ];
  assert.ok(on && managed);
  for (const choice of [on, BUBBLEWRAP, managed]) {
    assert.deepEqual(narrow(choice), choice);
    assert.deepEqual(narrow(choice, "on"), choice);
    assert.deepEqual(narrow(choice, "off"), BUBBLEWRAP);
  }
  assert.deepEqual(narrow(BUBBLEWRAP, "allow:a.test"), BUBBLEWRAP);
  const narrowed = narrow(on, "allow:a.test");
  assert.deepEqual(narrow(managed, "allow:a.test"), narrowed);
  assert.deepEqual([hasManagedNetwork(on), hasManagedNetwork(none), hasManagedNetwork(narrowed)], [false, false, true]);
});

test("network rules and credentials of a policy require a sandbox that applies them", () => {
  const check = (members: Partial<ApprovalPolicy>, choice: SandboxChoice) =>
    requireSandboxForNetwork({ ...policy(), ...members }, choice);
  const managed = (...credentials: string[]): SandboxChoice => ({
    ...BUBBLEWRAP,
    network: { type: "managed", layers: [], credentials },
  });
  const network = { fallback: "deny", allow: [], ask: [], deny: [], ports: null, methods: null } as const;
  const credentials = ["TOKEN"].map((name) => ({
    ...{ name, domain: "a.test", allowsPlainHttp: false, header: "authorization" },
    source: { type: "file", path: "/token" } as const,
  }));
  check({ credentials }, managed("TOKEN"));
  for (const choice of [managed(), managed("OTHER"), BUBBLEWRAP, { type: "none" }] as const)
    assert.throws(() => check({ credentials }, choice), /^Error: \[\[credential\]\] `TOKEN` of the rules requires/);
  for (const choice of [managed(), BUBBLEWRAP]) check({ network }, choice);
  assert.throws(() => check({ network }, { type: "none" }), /requires a sandbox/);
  assert.throws(() => check({ network }, { ...BUBBLEWRAP, network: true }), /conflicts with `sandbox.network: true`/);
  for (const choice of [{ type: "none" }, { ...BUBBLEWRAP, network: true }] as const) check({}, choice);
  requireSandboxForNetwork(undefined, { type: "none" });
});

/** Allows sandboxed commands, answers other requests from a list, and records them. */
function policy(...decisions: PolicyDecision["type"][]): ApprovalPolicy & { seen: ApprovalRequest[] } {
  const seen: ApprovalRequest[] = [];
  return {
    seen,
    review(request) {
      if (request.kind === "command") return { type: "allow" };
      seen.push(request);
      const type = decisions.shift() ?? "refuse";
      return type === "refuse" ? { type, reason: "no" } : { type };
    },
    ask: async () => ({ type: "allow" }),
  };
}

function setUp(approval: ApprovalPolicy, sandbox: SandboxChoice = BUBBLEWRAP) {
  const backend = new ScriptedBackend();
  const { clock } = backend;
  const unified = createUnifiedExec({
    ...{ backend, clock, cwd: "/w", approval, sandbox, hostSandboxes: ["bubblewrap"] },
  });
  return { backend, clock, unified, events: collectEvents(unified) };
}

/** Runs commands without a login environment, whose capture would start another process. */
const exec = (unified: UnifiedExec, args: Record<string, unknown>) =>
  call(unified, "exec_command", { login: false, ...args });

test("a denial prompts again, and runs once more without the sandbox", async () => {
  const approval = policy("ask");
  const { backend, clock, unified, events } = setUp(approval);
  const result = exec(unified, { cmd: "touch /etc/x" });
  await flushEventLoop();
  backend.last.print("touch: Read-only file system\n", "stderr");
  backend.last.end(1);
  await until("it runs again", () => backend.started.length === 2);
  assert.deepEqual(backend.last.params.argv, ["/bin/bash", "-c", "touch /etc/x"]);
  backend.last.print("done\n");
  backend.last.end(0);
  await clock.advance(0);
  const output = await result;
  assert.deepEqual([fact(output, "exit_code"), textOf(output)], [0, "done\n"]);
  assert.deepEqual([approval.seen.length, approval.seen[0]?.kind, approval.seen[0]?.sandbox], [1, "retry", "none"]);
  await unified.close();
  assert.deepEqual(
    typesOf(events).filter((type) => type !== "ExecCommandOutputDelta"),
    ["ExecCommandBegin", "ExecCommandEnd", "ExecCommandBegin", "ExecCommandEnd"],
  );
  const begins = events.filter((event) => event.type === "ExecCommandBegin");
  assert.deepEqual(
    begins.map((event) => [event.sandbox, event.attempt]),
    [
      ["bubblewrap", 1],
      ["none", 2],
    ],
  );
});

test("a denial that may not be retried is reported unchanged", async () => {
  const { backend, clock, unified } = setUp(policy("refuse"));
  const result = exec(unified, { cmd: "touch /etc/x" });
  await flushEventLoop();
  backend.last.print("Permission denied\n");
  backend.last.end(1);
  await clock.advance(0);
  const output = await result;
  assert.deepEqual([fact(output, "exit_code"), fact(output, "sandbox_denied")], [1, true]);
  assert.equal(backend.started.length, 1);
  await unified.close();
});

test("a command is retried once only, and only for a denial", async () => {
  const approval = policy("allow", "allow", "allow");
  const { backend, clock, unified } = setUp(approval);
  const denied = exec(unified, { cmd: "a" });
  await flushEventLoop();
  for (let attempt = 1; attempt <= 2; attempt++) {
    await until(`attempt ${attempt} has started`, () => backend.started.length === attempt);
    backend.last.print("Permission denied\n");
    backend.last.end(1);
    await clock.advance(0);
  }
  assert.equal(fact(await denied, "exit_code"), 1);
  const failed = exec(unified, { cmd: "b" });
  await flushEventLoop();
  backend.last.print("2 tests failed\n");
  backend.last.end(1);
  await clock.advance(0);
  assert.equal(fact(await failed, "exit_code"), 1);
  assert.deepEqual([backend.started.length, approval.seen.length], [3, 1]);
  await unified.close();
});

test("without a sandbox, a system error is not a sandbox denial", async () => {
  const { backend, clock, unified } = setUp(policy("allow"), { type: "none" });
  const result = exec(unified, { cmd: "a" });
  await flushEventLoop();
  backend.last.print("Permission denied\n");
  backend.last.end(1);
  await clock.advance(0);
  assert.equal(fact(await result, "sandbox_denied"), undefined);
  assert.equal(backend.started.length, 1);
  await unified.close();
});

test("a model may request to leave the sandbox, with its reason and a prefix", async () => {
  const approval = policy("ask", "refuse");
  const { backend, clock, unified } = setUp(approval);
  const args = {
    cmd: "git pull",
    sandbox_permissions: "require_escalated",
    justification: "May I pull?",
    prefix_rule: ["git", "pull"],
  };
  const result = call(unified, "exec_command", args);
  await flushEventLoop();
  assert.deepEqual(backend.last.params.argv, ["/bin/bash", "-c", "git pull"]);
  backend.last.end(0);
  await clock.advance(0);
  await result;
  const [seen] = approval.seen;
  assert.deepEqual(
    [seen?.kind, seen?.sandbox, seen?.justification, seen?.prefixRule],
    ["unsandboxed", "none", "May I pull?", ["git", "pull"]],
  );
  const { structured, ...refused } = await call(unified, "exec_command", args);
  assert.equal(structured?.not_started, "declined");
  assert.deepEqual(refused, {
    ok: false,
    text: "exec_command refused: no",
  });
  assert.equal(backend.started.length, 1);
  await unified.close();
});
