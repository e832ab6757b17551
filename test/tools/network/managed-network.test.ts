import assert from "node:assert/strict";
import { PassThrough } from "node:stream";
import { describe, test } from "node:test";
import type { NetworkDecision, NetworkRequest, UserAnswer } from "../../../src/protocol/network/network-schemas.ts";
import { parseElicitation, toElicitationForm } from "../../../src/tools/mcp/mcp-approval-form.ts";
import { withNetworkAsker } from "../../../src/tools/network/network-asker.ts";
import {
  type ManagedNetwork,
  parseNetworkSection,
  parseNetworkWords,
  resolveNetworkChoice,
} from "../../../src/tools/network/network-rules.ts";
import type { ApprovalAnswer, ApprovalPolicy, ApprovalRequest } from "../../../src/tools/policy/approval.ts";
import { askCaller } from "../../../src/tools/policy/ask-caller.ts";
import { askOnTerminal } from "../../../src/tools/policy/ask-on-terminal.ts";
import { neverAsk } from "../../../src/tools/policy/never-ask.ts";
import type { UnifiedExecEvent } from "../../../src/tools/sessions/exec-events.ts";
import type { ToolCallContext } from "../../../src/tools/tool.ts";
import { createUnifiedExec, type UnifiedExec } from "../../../src/tools/unified-exec.ts";
import { call, fact, isSettled, sessionOf } from "../calls.ts";
import { ScriptedBackend, type ScriptedProcess } from "../scripted-backend.ts";

function networkOf(...words: string[]): ManagedNetwork {
  const choice = resolveNetworkChoice(parseNetworkWords(words, "--network"), null, "--network");
  assert.ok(choice.type === "managed");
  return choice;
}

/** A policy whose prompts the test answers. */
class Prompts implements ApprovalPolicy {
  readonly asked: {
    request: ApprovalRequest;
    signal: AbortSignal | undefined;
    answer: (given: ApprovalAnswer) => void;
  }[] = [];
  readonly stored: string[] = [];
  readonly combined = true;
  review = () => ({ type: "allow" }) as const;
  ask(request: ApprovalRequest, signal?: AbortSignal): Promise<ApprovalAnswer> {
    const { promise, resolve } = Promise.withResolvers<ApprovalAnswer>();
    this.asked.push({ request, signal, answer: resolve });
    return promise;
  }
  async allowHost(host: string): Promise<void> {
    this.stored.push(host);
  }
  get last() {
    const last = this.asked.at(-1);
    assert.ok(last, "nothing was asked");
    return last;
  }
}

function setUp(approval: ApprovalPolicy, network: ManagedNetwork = networkOf("ask", "allow:good.test")) {
  const backend = new ScriptedBackend();
  const unified = createUnifiedExec({
    backend,
    clock: backend.clock,
    cwd: "/w",
    approval,
    hostSandboxes: ["bubblewrap", "managed-network"],
    sandbox: { type: "bubblewrap", writableRoots: ["/w"], network },
  });
  /** Starts a command and returns its process while the call waits. */
  const begin = async (cmd = "fetch", context?: ToolCallContext) => {
    const count = backend.started.length;
    const output = call(unified, "exec_command", { cmd, login: false }, context);
    while (backend.started.length === count) await new Promise((resolve) => setImmediate(resolve));
    return { output, process: backend.last };
  };
  return { backend, unified, begin };
}

const request = (host: string, more: Partial<NetworkRequest> = {}): NetworkRequest => ({
  protocol: "https_connect",
  host,
  port: 443,
  ...more,
});

function ask(process: ScriptedProcess, host: string, signal = new AbortController().signal, more = {}) {
  assert.ok(process.params.decideNetwork);
  return process.params.decideNetwork(request(host, more), signal);
}

/** Like `ask`, with a web console that the test answers. */
function askWithConsole(process: ScriptedProcess, host: string) {
  assert.ok(process.params.decideNetwork);
  const console = Promise.withResolvers<UserAnswer | null>();
  const questions: { canRemember: boolean; signal: AbortSignal }[] = [];
  const answer = process.params.decideNetwork(
    request(host),
    new AbortController().signal,
    ({ canRemember }, signal) => {
      questions.push({ canRemember, signal });
      return console.promise;
    },
  );
  return { answer, questions, answerInConsole: console.resolve };
}

function block(process: ScriptedProcess, host: string, reason: string, more: Partial<NetworkDecision> = {}) {
  process.params.onNetworkDecision?.({
    timestamp: "2026-01-01T00:00:00.000Z",
    scope: "domain",
    decision: "deny",
    source: "baseline_policy",
    reason,
    protocol: "https_connect",
    host,
    port: 443,
    client: "127.0.0.1:1",
    policyOverride: false,
    ...more,
  });
}

/** Returns all events until `close`. */
async function allEvents(unified: UnifiedExec): Promise<UnifiedExecEvent[]> {
  const events: UnifiedExecEvent[] = [];
  for await (const event of unified.events()) events.push(event);
  return events;
}

const settle = async () => {
  for (let count = 0; count < 5; count++) await new Promise((resolve) => setImmediate(resolve));
};

describe("a network question in the web console", () => {
  test("wins with the first answer, and withdraws the prompt here", async () => {
    const prompts = new Prompts();
    const { begin } = setUp(prompts);
    const { process } = await begin();
    const first = askWithConsole(process, "other.test");
    await settle();
    assert.deepEqual(
      first.questions.map(({ canRemember }) => canRemember),
      [true],
    );
    first.answerInConsole("process");
    assert.deepEqual(await first.answer, { type: "allow" });
    assert.equal(prompts.last.signal?.aborted, true);
    // The answer covers the process.
    assert.deepEqual(await ask(process, "other.test"), { type: "allow" });
    assert.equal(prompts.asked.length, 1);
  });

  test("is withdrawn after an answer here, and stores `always` in the rules", async () => {
    const prompts = new Prompts();
    const { begin } = setUp(prompts);
    const { process } = await begin();
    const first = askWithConsole(process, "one.test");
    await settle();
    prompts.last.answer({ type: "refuse", reason: "no" });
    assert.deepEqual(await first.answer, { type: "deny", reason: "no" });
    assert.equal(first.questions[0]?.signal.aborted, true);
    const second = askWithConsole(process, "two.test");
    await settle();
    second.answerInConsole("always");
    assert.deepEqual(await second.answer, { type: "allow" });
    assert.deepEqual(prompts.stored, ["two.test"]);
    const third = askWithConsole(process, "three.test");
    await settle();
    third.answerInConsole("deny");
    assert.deepEqual(await third.answer, { type: "deny", reason: "rejected by user" });
  });

  test("leaves the decision to the user here if the server has no console", async () => {
    const prompts = new Prompts();
    const { begin } = setUp(prompts);
    const { process } = await begin();
    const asked = askWithConsole(process, "other.test");
    asked.answerInConsole(null);
    await settle();
    prompts.last.answer({ type: "allow" });
    assert.deepEqual(await asked.answer, { type: "allow" });
  });

  test("takes the answer of the console without a user here, and does not appear if the policy never asks", async () => {
    const { begin } = setUp(withNetworkAsker(neverAsk(), askCaller()));
    const { process } = await begin();
    const asked = askWithConsole(process, "other.test");
    await settle();
    asked.answerInConsole("once");
    assert.deepEqual(await asked.answer, { type: "allow" });
    const never = setUp(neverAsk());
    const refused = askWithConsole((await never.begin()).process, "other.test");
    assert.equal((await refused.answer).type, "deny");
    assert.deepEqual(refused.questions, []);
  });
});

describe("the managed network of a command", () => {
  test("is enforced by the start of the command, in a sandbox without its own network", async () => {
    const { begin, unified } = setUp(neverAsk(), networkOf("allow:good.test", "deny:bad.good.test", "ports:443"));
    const { process, output } = await begin();
    const { networkProxy, enforceManagedNetwork, sandbox } = process.params;
    assert.equal(enforceManagedNetwork, true);
    assert.deepEqual(networkProxy?.proxy.domains, { "good.test": "allow", "bad.good.test": "deny" });
    assert.deepEqual(networkProxy?.proxy.ports, [443]);
    assert.equal(networkProxy?.policyDecisionTimeoutMs, undefined, "asks nothing");
    assert.match(JSON.stringify(sandbox), /"network":"restricted"/);
    process.end(0);
    await output;
    await unified.close();
  });

  test("is narrowed, never widened, by the argument `network`", async () => {
    const { backend, unified } = setUp(neverAsk(), networkOf("allow:**.good.test", "ports:443,80"));
    const domainsFor = async (network: string[]) => {
      const count = backend.started.length;
      const output = call(unified, "exec_command", { cmd: "x", login: false, network });
      await settle();
      assert.equal(backend.started.length, count + 1);
      backend.last.end(0);
      await output;
      return backend.last.params.networkProxy?.proxy;
    };
    const narrowed = await domainsFor(["allow:a.good.test,other.test", "ports:443,22"]);
    assert.deepEqual([narrowed?.domains, narrowed?.ports], [{ "a.good.test": "allow" }, [443]]);
    assert.deepEqual((await domainsFor(["on"]))?.domains, { "**.good.test": "allow" });
    assert.equal(await domainsFor(["off"]), undefined);
    assert.match(JSON.stringify(backend.last.params.sandbox), /"network":"restricted"/);
    const refused = await call(unified, "exec_command", { cmd: "x", network: ["all"] });
    assert.match(refused.text, /^exec_command: argument `network` `all` is unknown; give on, off/);
    const escalated = { cmd: "x", network: ["off"], sandbox_permissions: "require_escalated" };
    assert.equal(
      (await call(unified, "exec_command", escalated)).text,
      "exec_command: argument `network` conflicts with `require_escalated`, which has no sandbox",
    );
    await unified.close();
  });

  test("does not apply without a managed network", async () => {
    const backend = new ScriptedBackend();
    const unified = createUnifiedExec({ backend, clock: backend.clock, cwd: "/w" });
    const output = call(unified, "exec_command", { cmd: "x", login: false });
    await settle();
    assert.equal("networkProxy" in backend.last.params, false);
    const unknown = await call(unified, "exec_command", { cmd: "x", network: ["off"] });
    assert.equal(unknown.text, "exec_command: unknown argument `network`");
    backend.last.end(0);
    await output;
    await unified.close();
  });

  test("shows command, host, port, protocol and reason in the question", async () => {
    const prompts = new Prompts();
    const { begin, unified } = setUp(prompts);
    const { process, output } = await begin("npm install");
    const decision = ask(process, "Other.Test.");
    await settle();
    const { kind, cmd, network } = prompts.last.request;
    assert.equal(kind, "network");
    assert.equal(cmd, "npm install");
    assert.deepEqual(network, {
      host: "other.test",
      port: 443,
      protocol: "https_connect",
      canRemember: true,
      reason: "no rule allows this host",
    });
    assert.equal(await isSettled(decision), false);
    prompts.last.answer({ type: "allow" });
    assert.deepEqual(await decision, { type: "allow" });
    process.end(0);
    await output;
    await unified.close();
  });

  test("asks again after `once`, and not after `process`, `session` or `always` within their scope", async () => {
    const prompts = new Prompts();
    const { begin, unified } = setUp(prompts);
    const first = await begin();
    /** Asks about a host; answers a prompt if there is one. Returns whether there was one. */
    const isAsked = async (process: ScriptedProcess, host: string, remember?: "process" | "session" | "always") => {
      const before = prompts.asked.length;
      const decision = ask(process, host);
      await settle();
      const asked = prompts.asked.length > before;
      if (asked) prompts.last.answer(remember ? { type: "allow", remember: { type: remember } } : { type: "allow" });
      assert.deepEqual(await decision, { type: "allow" });
      return asked;
    };
    assert.equal(await isAsked(first.process, "once.test"), true);
    assert.equal(await isAsked(first.process, "once.test"), true);
    assert.equal(await isAsked(first.process, "process.test", "process"), true);
    assert.equal(await isAsked(first.process, "process.test"), false);
    assert.equal(await isAsked(first.process, "session.test", "session"), true);
    assert.equal(await isAsked(first.process, "always.test", "always"), true);
    assert.deepEqual(prompts.stored, ["always.test"]);
    const second = await begin();
    assert.equal(await isAsked(second.process, "process.test"), true);
    assert.equal(await isAsked(second.process, "session.test"), false);
    assert.equal(await isAsked(second.process, "always.test"), false);
    for (const { process, output } of [first, second]) {
      process.end(0);
      await output;
    }
    await unified.close();
  });

  test("an answer for one port does not cover another", async () => {
    const prompts = new Prompts();
    const { begin, unified } = setUp(prompts);
    const { process, output } = await begin();
    const first = ask(process, "other.test");
    await settle();
    prompts.last.answer({ type: "allow", remember: { type: "session" } });
    await first;
    const second = ask(process, "other.test", undefined, { port: 25 });
    await settle();
    assert.equal(prompts.asked.length, 2);
    prompts.last.answer({ type: "refuse", reason: "rejected by user" });
    assert.deepEqual(await second, { type: "deny", reason: "rejected by user" });
    process.end(0);
    await output;
    await unified.close();
  });

  test("shares one question between parallel requests to the same target", async () => {
    const prompts = new Prompts();
    const { begin, unified } = setUp(prompts);
    const { process, output } = await begin();
    const decisions = ["other.test", "OTHER.test", "third.test"].map((host) => ask(process, host));
    await settle();
    assert.deepEqual(
      prompts.asked.map(({ request }) => request.network?.host),
      ["other.test", "third.test"],
    );
    for (const { answer } of prompts.asked) answer({ type: "allow" });
    assert.deepEqual(await Promise.all(decisions), [{ type: "allow" }, { type: "allow" }, { type: "allow" }]);
    process.end(0);
    await output;
    await unified.close();
  });

  test("withdraws a question when no request waits for it", async () => {
    const prompts = new Prompts();
    const { begin, unified } = setUp(prompts);
    const { process, output } = await begin();
    const [first, second] = [new AbortController(), new AbortController()];
    const decisions = [first, second].map(({ signal }) => ask(process, "other.test", signal));
    await settle();
    first.abort();
    await settle();
    assert.equal(prompts.last.signal?.aborted, false);
    second.abort();
    assert.deepEqual(await Promise.all(decisions), [
      { type: "deny", reason: "not_allowed" },
      { type: "deny", reason: "not_allowed" },
    ]);
    assert.equal(prompts.last.signal?.aborted, true);
    const later = ask(process, "other.test");
    await settle();
    assert.equal(prompts.asked.length, 2, "asks a new question");
    prompts.last.answer({ type: "allow" });
    assert.deepEqual(await later, { type: "allow" });
    process.end(0);
    await output;
    await unified.close();
  });

  test("repeats a rejection without another question for the same command", async () => {
    const prompts = new Prompts();
    const { begin, unified } = setUp(prompts);
    const { process, output } = await begin();
    const first = ask(process, "other.test");
    await settle();
    prompts.last.answer({ type: "refuse", reason: "rejected by user" });
    assert.deepEqual(await first, { type: "deny", reason: "rejected by user" });
    assert.deepEqual(await ask(process, "other.test"), { type: "deny", reason: "rejected by user" });
    assert.equal(prompts.asked.length, 1);
    process.end(0);
    await output;
    await unified.close();
  });

  test("denies without a question if approvals are disabled", async () => {
    const { begin, unified } = setUp(neverAsk());
    const { process, output } = await begin();
    assert.deepEqual(await ask(process, "other.test", undefined, { protocol: "http", port: 80 }), {
      type: "deny",
      reason: 'Network access to "http://other.test:80" was blocked by policy.',
    });
    process.end(0);
    await output;
    await unified.close();
  });

  test("keeps the session of one caller from the others", async () => {
    const prompts = new Prompts();
    const { begin, unified } = setUp(prompts);
    const [one, two] = [{}, {}];
    const first = await begin("a", { caller: one });
    const decision = ask(first.process, "other.test");
    await settle();
    prompts.last.answer({ type: "allow", remember: { type: "session" } });
    await decision;
    const second = await begin("b", { caller: two });
    const foreign = ask(second.process, "other.test");
    await settle();
    assert.equal(prompts.asked.length, 2);
    prompts.last.answer({ type: "refuse", reason: "no" });
    await foreign;
    for (const { process, output } of [first, second]) {
      process.end(0);
      await output;
    }
    await unified.close();
  });
});

describe("questions through the caller", () => {
  /** Prompts of a call, as an MCP client receives them. */
  const caller = () => {
    const asked: { request: ApprovalRequest; answer: (given: ApprovalAnswer) => void }[] = [];
    const context: ToolCallContext = {
      askCaller: (request) => {
        const { promise, resolve } = Promise.withResolvers<ApprovalAnswer>();
        asked.push({ request, answer: resolve });
        return promise;
      },
    };
    return { asked, context };
  };
  const throughCaller: ApprovalPolicy = {
    combined: true,
    review: () => ({ type: "allow" }),
    ask: async (request, signal, ask) => ask?.(request, signal) ?? { type: "refuse", reason: "no caller" },
  };

  test("keep the call open beyond its yield window until the answer", async () => {
    const { begin, unified, backend } = setUp(throughCaller);
    const { asked, context } = caller();
    const { process, output } = await begin("fetch", context);
    const decision = ask(process, "other.test");
    await settle();
    await backend.clock.advance(60_000);
    assert.equal(await isSettled(output), false);
    asked[0]?.answer({ type: "allow" });
    assert.deepEqual(await decision, { type: "allow" });
    assert.equal(typeof fact(await output, "session_id"), "number");
    await unified.close();
  });

  test("wait for the next call of the session if no call is active", async () => {
    const { begin, unified, backend } = setUp(throughCaller);
    const started = caller();
    const { process, output } = await begin("fetch", started.context);
    await backend.clock.advance(10_000);
    const sessionId = sessionOf(await output);
    const decision = ask(process, "other.test");
    await settle();
    assert.equal(started.asked.length, 0, "the first call ended");
    assert.equal(await isSettled(decision), false);
    const next = caller();
    const polled = call(unified, "write_stdin", { session_id: sessionId }, next.context);
    await settle();
    assert.equal(next.asked.length, 1);
    next.asked[0]?.answer({ type: "allow" });
    assert.deepEqual(await decision, { type: "allow" });
    process.end(0);
    await polled;
    await unified.close();
  });
});

describe("blocked targets", () => {
  test("are part of the result once, with a count and an explanation", async () => {
    const { begin, unified } = setUp(neverAsk());
    const { process, output } = await begin();
    block(process, "other.test", "not_allowed");
    block(process, "other.test", "not_allowed");
    block(process, "bad.test", "denied", { port: 80, protocol: "http" });
    block(process, "::1", "not_allowed_local");
    block(process, "good.test", "allow", { decision: "allow" });
    process.end(1);
    const { text, structured } = await output;
    const expected = [
      "network: blocked other.test:443 (not allowed) 2 times",
      '  Network access to "other.test" was blocked: domain is not on the allowlist for the current sandbox mode.',
      "network: blocked bad.test:80 (denied)",
      '  Network access to "bad.test" was blocked: domain is explicitly denied by policy and cannot be approved from this prompt.',
      "network: blocked [::1]:443 (local or private address)",
      '  Network access to "::1" was blocked: local/private network addresses are blocked by the sandbox policy.',
      "Output:",
    ];
    assert.ok(text.includes(expected.join("\n")), text);
    const blocked = structured?.network_blocked;
    assert.ok(Array.isArray(blocked));
    assert.equal(blocked.length, 3);
    assert.deepEqual(blocked[0], {
      host: "other.test",
      port: 443,
      protocol: "https_connect",
      reason: "not_allowed",
      message:
        'Network access to "other.test" was blocked: domain is not on the allowlist for the current sandbox mode.',
      count: 2,
    });
    await unified.close();
  });

  test("appear in the result of the call after the request", async () => {
    const { begin, unified, backend } = setUp(neverAsk());
    const { process, output } = await begin();
    await backend.clock.advance(10_000);
    const first = await output;
    assert.doesNotMatch(first.text, /network:/);
    block(process, "other.test", "not_allowed");
    process.end(0);
    const polled = await call(unified, "write_stdin", { session_id: sessionOf(first) });
    assert.match(polled.text, /network: blocked other\.test:443 \(not allowed\)\n/);
    await unified.close();
  });

  test("are bounded in results and events", async () => {
    const { begin, unified } = setUp(neverAsk());
    const collected = allEvents(unified);
    const { process, output } = await begin();
    for (let host = 0; host < 5000; host++) block(process, `h${host}.test`, "not_allowed");
    process.end(0);
    const { text } = await output;
    assert.equal(text.match(/network: blocked h/g)?.length, 10);
    assert.match(text, /network: blocked 4990 requests to further targets\n/);
    await unified.close();
    const events = await collected;
    assert.equal(events.filter(({ type }) => type === "NetworkAccess").length, 1000);
  });

  test("emit one event per target and decision, also for allowed targets", async () => {
    const { begin, unified } = setUp(neverAsk());
    const collected = allEvents(unified);
    const { process, output } = await begin();
    for (let count = 0; count < 3; count++) block(process, "other.test", "not_allowed");
    block(process, "good.test", "allow", { decision: "allow" });
    process.end(0);
    await output;
    await unified.close();
    const network = (await collected).flatMap((event) =>
      event.type === "NetworkAccess" ? [[event.decision, event.host, event.port, event.reason]] : [],
    );
    assert.deepEqual(network, [
      ["deny", "other.test", 443, "not_allowed"],
      ["allow", "good.test", 443, "allow"],
    ]);
  });

  test("show control characters of a host name escaped", async () => {
    const { begin, unified } = setUp(neverAsk());
    const { process, output } = await begin();
    block(process, "a\n\u001b[2Jb", "x\ny");
    process.end(0);
    const { text } = await output;
    assert.ok(text.includes("network: blocked a\\n\\x1b[2Jb:443 (x\\ny)"), JSON.stringify(text));
    await unified.close();
  });
});

test("network rules of a policy require a sandbox that enforces them", () => {
  const backend = new ScriptedBackend();
  const approval = { ...neverAsk(), network: parseNetworkSection({ allow: ["good.test"] }) };
  const create = (sandbox?: Parameters<typeof createUnifiedExec>[0]["sandbox"]) =>
    createUnifiedExec({
      backend,
      cwd: "/w",
      approval,
      hostSandboxes: ["bubblewrap", "managed-network"],
      ...(sandbox && { sandbox }),
    });
  assert.throws(() => create(), { message: "[network] of the rules requires a sandbox; set `sandbox`" });
  const open = { type: "bubblewrap", writableRoots: [], network: true } as const;
  assert.throws(() => create(open), /conflicts with `sandbox\.network: true`/);
  create({ ...open, network: false });
  create({ ...open, network: networkOf("allow:good.test") });
});

test("network rules are rejected if the host cannot enforce them", () => {
  const sandbox = { type: "bubblewrap", writableRoots: [], network: networkOf("allow:good.test") } as const;
  const create = () =>
    createUnifiedExec({ backend: new ScriptedBackend(), cwd: "/w", hostSandboxes: ["bubblewrap"], sandbox });
  assert.throws(create, {
    name: "SandboxUnavailableError",
    message: "network rules are not available: the host cannot enforce them; set the network to `on` or `off`",
  });
});

describe("the prompt for a network request", () => {
  const asked: ApprovalRequest = {
    kind: "network",
    cmd: "npm install",
    argv: ["/bin/bash", "-c", "npm install"],
    shell: "system",
    tty: false,
    commands: [["npm", "install"]],
    workdir: "/w",
    sandbox: "bubblewrap",
    sandboxWritable: false,
    network: { host: "other.test", port: 443, protocol: "https_connect", reason: "no rule", canRemember: true },
  };
  const shown = [
    'Do you want to approve network access to "other.test"?',
    "  other.test:443 by HTTPS or another protocol in a tunnel (CONNECT); no rule",
    "  $ npm install",
    "  in /w, in a bubblewrap sandbox",
    "  run by /bin/bash -c",
  ].join("\n");

  test("offers once, this command, this session, always and no on a terminal", async () => {
    const answers: [string, ApprovalAnswer][] = [
      ["y", { type: "allow" }],
      ["c", { type: "allow", remember: { type: "process" } }],
      ["a", { type: "allow", remember: { type: "session" } }],
      ["w", { type: "allow", remember: { type: "always" } }],
      ["n", { type: "refuse", reason: "rejected by user" }],
    ];
    for (const [typed, expected] of answers) {
      const [input, output] = [new PassThrough(), new PassThrough()];
      const answer = askOnTerminal({ input, output }).ask(asked);
      input.end(`?\n${typed}\n`);
      assert.deepEqual(await answer, expected, typed);
      const text = String(output.read());
      assert.ok(text.startsWith(`\n${shown}\n`), text);
      assert.equal(text.split("w = always (written to the rules file)").length, 3, "asked twice");
    }
  });

  test("does not offer always without a rules file", async () => {
    const request = { ...asked, network: asked.network && { ...asked.network, canRemember: false } };
    const [input, output] = [new PassThrough(), new PassThrough()];
    const answer = askOnTerminal({ input, output }).ask(request);
    input.end("w\nn\n");
    assert.deepEqual(await answer, { type: "refuse", reason: "rejected by user" });
    assert.doesNotMatch(String(output.read()), /always/);
    assert.doesNotMatch(JSON.stringify(toElicitationForm(request)), /always/);
    assert.deepEqual(parseElicitation(request, { action: "accept", content: { decision: "always allow this host" } }), {
      type: "refuse",
      reason: "the answer is not one of the choices",
    });
  });

  test("offers the same choices in an MCP form", () => {
    const form = toElicitationForm(asked);
    assert.equal(form.message, shown);
    const choices = form.requestedSchema.properties.decision.enum;
    const answers = choices.map((decision) => parseElicitation(asked, { action: "accept", content: { decision } }));
    assert.deepEqual(answers, [
      { type: "allow" },
      { type: "allow", remember: { type: "process" } },
      { type: "allow", remember: { type: "session" } },
      { type: "allow", remember: { type: "always" } },
      { type: "refuse", reason: "rejected by user" },
    ]);
    assert.deepEqual(parseElicitation(asked, { action: "decline" }), { type: "refuse", reason: "rejected by user" });
  });

  test("goes to the network asker, while the policy decides about commands", async () => {
    const prompts = new Prompts();
    const policy = withNetworkAsker(neverAsk(), prompts);
    assert.equal(policy.review({ ...asked, kind: "unsandboxed", network: undefined }).type, "refuse");
    const answer = policy.ask(asked);
    prompts.last.answer({ type: "allow" });
    assert.deepEqual(await answer, { type: "allow" });
    assert.equal(policy.allowHost, undefined, "neverAsk stores nothing");
  });
});
