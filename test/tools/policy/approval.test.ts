import assert from "node:assert/strict";
import { mkdtempSync, rmSync, writeFileSync } from "node:fs";
import { tmpdir } from "node:os";
import { join } from "node:path";
import { PassThrough } from "node:stream";
import { test } from "node:test";
import { blockedByPolicy } from "../../../src/tools/network/network-denial-compat.ts";
import type { ApprovalAnswer, ApprovalPolicy, ApprovalRequest } from "../../../src/tools/policy/approval.ts";
import { ApprovalGate, describeCommand } from "../../../src/tools/policy/approval.ts";
import { askCaller } from "../../../src/tools/policy/ask-caller.ts";
import { askOnTerminal } from "../../../src/tools/policy/ask-on-terminal.ts";
import { neverAsk } from "../../../src/tools/policy/never-ask.ts";
import { loadRulesFile, parseRules, rulesPolicy } from "../../../src/tools/policy/rules-file.ts";
import { absoluteShell, chooseShell } from "../../../src/tools/policy/shell-choice.ts";
import { flushEventLoop } from "../../support/system/flush-event-loop.ts";
import { runPromiseReactions } from "../../support/system/promise-reactions.ts";
import { until } from "../../support/system/until.ts";

interface Asked extends Partial<ApprovalRequest> {
  by?: string;
  login?: boolean;
}

function request(cmd: string, { prefixRule, by, login = true, ...more }: Asked = {}): ApprovalRequest {
  const workdir = more.workdir ?? "/w";
  const shell = chooseShell(by, "/bin/bash", workdir);
  assert.ok(shell);
  return {
    kind: "command",
    tty: false,
    sandbox: "none",
    sandboxWritable: false,
    workdir,
    ...describeCommand(cmd, shell, { login, prefixRule }),
    ...more,
  };
}

/** A policy that always asks and takes its answers from a list. */
function asking(...answers: ApprovalAnswer[]): ApprovalPolicy & { prompts: string[] } {
  const prompts: string[] = [];
  return {
    prompts,
    review: () => ({ type: "ask" }),
    ask: async ({ cmd }) => {
      prompts.push(cmd);
      return answers.shift() ?? { type: "refuse", reason: "no more answers" };
    },
  };
}

test("an approval applies once unless the answer has a wider scope", async () => {
  const policy = asking({ type: "allow" });
  const gate = new ApprovalGate(policy);
  assert.equal((await gate.decide(request("ls"))).type, "allow");
  assert.equal((await gate.decide(request("ls"))).type, "refuse");
  assert.deepEqual(policy.prompts, ["ls", "ls"]);
});

test("an approval for the session applies to the same command in the same directory", async () => {
  const policy = asking({ type: "allow", remember: { type: "session" } });
  const gate = new ApprovalGate(policy);
  await gate.decide(request("ls"));
  assert.equal((await gate.decide(request("ls"))).type, "allow");
  assert.equal((await gate.decide(request("ls", { workdir: "/other" }))).type, "refuse");
  assert.equal((await gate.decide(request("ls -l"))).type, "refuse");
});

test("a remembered approval applies to the calls of one caller", async () => {
  const session: ApprovalAnswer = { type: "allow", remember: { type: "session" } };
  const prefix: ApprovalAnswer = { type: "allow", remember: { type: "prefix", prefix: ["make"] } };
  const gate = new ApprovalGate(asking(session, prefix));
  const [caller, other] = [{}, {}];
  for (const cmd of ["ls", "make all"]) await gate.decide(request(cmd), { caller });
  for (const cmd of ["ls", "make test"]) {
    assert.equal((await gate.decide(request(cmd), { caller })).type, "allow");
    assert.equal((await gate.decide(request(cmd), { caller: other })).type, "refuse");
    assert.equal((await gate.decide(request(cmd))).type, "refuse");
  }
});

test("an approval for the session does not apply to another shell, login or terminal", async () => {
  const gate = new ApprovalGate(asking({ type: "allow", remember: { type: "session" } }));
  await gate.decide(request("ls"));
  assert.equal((await gate.decide(request("ls", { by: "bash" }))).type, "allow", "the same shell");
  for (const more of [{ by: "/w/bash" }, { by: "/bin/sh" }, { login: false }, { tty: true }])
    assert.equal((await gate.decide(request("ls", more))).type, "refuse", JSON.stringify(more));
});

test("an approval for a prefix does not apply to another shell", async () => {
  const gate = new ApprovalGate(asking({ type: "allow", remember: { type: "prefix", prefix: ["ls"] } }));
  await gate.decide(request("ls"));
  assert.equal((await gate.decide(request("ls -l", { login: false, tty: true }))).type, "allow");
  for (const by of ["/w/bash", "./bash", "/bin/sh", "/usr/bin/fish"])
    assert.equal((await gate.decide(request("ls", { by }))).type, "refuse", by);
});

test("a shell is chosen by its path, or by a known name", () => {
  const choose = (named?: string) => chooseShell(named, "/opt/bash", "/w");
  assert.deepEqual(choose(), { path: "/opt/bash", kind: "default" });
  assert.deepEqual(choose("bash"), { path: "/opt/bash", kind: "default" });
  assert.deepEqual(choose("/bin/bash"), { path: "/bin/bash", kind: "system" });
  assert.deepEqual(choose("zsh"), { path: "/bin/zsh", kind: "system" });
  assert.deepEqual(choose("./bash"), { path: "/w/bash", kind: "other" });
  assert.deepEqual(choose("/bin/../w/bash"), { path: "/w/bash", kind: "other" });
  assert.deepEqual(choose("/bin/python3"), { path: "/bin/python3", kind: "other" });
  for (const name of ["fish", "", "evil"]) assert.equal(choose(name), null);
});

test("a command is not split into words for a shell that may parse it differently", () => {
  assert.deepEqual(request("ls").commands, [["ls"]]);
  assert.deepEqual(request("ls", { by: "/usr/bin/dash" }).commands, [["ls"]]);
  assert.equal(request("ls", { by: "/w/bash" }).commands, null);
  assert.equal(describeCommand("ls", { path: "/bin/fish", kind: "default" }, { login: true }).commands, null);
});

test("an approval for a prefix applies to lines made only of such commands", async () => {
  const policy = asking({ type: "allow", remember: { type: "prefix", prefix: ["git", "pull"] } });
  const gate = new ApprovalGate(policy);
  await gate.decide(request("git pull"));
  const allowed = async (cmd: string) => (await gate.decide(request(cmd))).type === "allow";
  assert.ok(await allowed("git pull origin main"));
  assert.ok(await allowed("git pull && git pull --rebase"));
  assert.ok(!(await allowed("git pull; rm -rf /")));
  assert.ok(!(await allowed("git pull $(rm -rf /)")));
  assert.ok(!(await allowed("git push")));
});

test("an approval of a sandboxed command does not apply without the sandbox", async () => {
  const session: ApprovalAnswer = { type: "allow", remember: { type: "session" } };
  const prefix: ApprovalAnswer = { type: "allow", remember: { type: "prefix", prefix: ["make"] } };
  for (const answer of [session, prefix]) {
    const gate = new ApprovalGate(asking(answer));
    await gate.decide(request("make", { sandbox: "bubblewrap" }));
    assert.equal((await gate.decide(request("make", { sandbox: "bubblewrap" }))).type, "allow");
    assert.equal((await gate.decide(request("make", { kind: "retry" }))).type, "refuse");
  }
});

test("prompts are shown one after the other, and the first answer can apply to the second", async () => {
  const { promise, resolve } = Promise.withResolvers<ApprovalAnswer>();
  let promptCount = 0;
  const gate = new ApprovalGate({
    review: () => ({ type: "ask" }),
    ask: () => {
      promptCount++;
      return promise;
    },
  });
  const both = [gate.decide(request("ls")), gate.decide(request("ls"))];
  resolve({ type: "allow", remember: { type: "session" } });
  assert.deepEqual(await Promise.all(both), [{ type: "allow" }, { type: "allow" }]);
  assert.equal(promptCount, 1);
});

test("a call that is cancelled before its prompt is refused without a prompt", async () => {
  const policy = asking({ type: "allow" });
  const decision = await new ApprovalGate(policy).decide(request("ls"), { signal: AbortSignal.abort() });
  assert.deepEqual(decision, { type: "refuse", reason: "the call was cancelled" });
  assert.deepEqual(policy.prompts, []);
});

const network = { host: "a.test", port: 443, protocol: "http", reason: "no rule", canRemember: false } as const;
const networkRequest = (cmd: string) => request(cmd, { kind: "network", network });

test("a network request prompts without a review, unless it is known or cancelled when its prompt is due", async () => {
  const policy = asking({ type: "allow" });
  const gate = new ApprovalGate({ ...policy, review: () => assert.fail("a review") });
  const { signal } = new AbortController();
  const ask = (isKnown: boolean, asked: AbortSignal) =>
    gate.ask(networkRequest("curl"), { signal: asked, isKnown: () => isKnown });
  assert.deepEqual(await ask(true, signal), { type: "allow" });
  assert.deepEqual(await ask(false, AbortSignal.abort()), { type: "refuse", reason: "the request was cancelled" });
  assert.deepEqual(policy.prompts, []);
  assert.deepEqual(await ask(false, signal), { type: "allow" });
  assert.deepEqual(policy.prompts, ["curl"]);
});

test("network requests prompt one after the other, or all at once if the policy combines prompts", async () => {
  for (const combined of [false, true]) {
    const open: (() => void)[] = [];
    const gate = new ApprovalGate({
      combined,
      review: () => ({ type: "ask" }),
      ask: () => new Promise((resolve) => open.push(() => resolve({ type: "allow" }))),
    });
    const both = ["one", "two"].map((cmd) => gate.ask(networkRequest(cmd), { isKnown: () => false }));
    await flushEventLoop();
    assert.equal(open.length, combined ? 2 : 1);
    open[0]?.();
    await flushEventLoop();
    open[1]?.();
    assert.deepEqual(await Promise.all(both), [{ type: "allow" }, { type: "allow" }]);
  }
});

test("a gate stores hosts if its policy does", async () => {
  const hosts: string[] = [];
  const storing = new ApprovalGate({ ...asking(), allowHost: async (host) => void hosts.push(host) });
  const other = new ApprovalGate(asking());
  for (const gate of [storing, other]) await gate.allowHost("a.test");
  assert.deepEqual([storing.canAllowHost, other.canAllowHost, hosts], [true, false, ["a.test"]]);
});

test("a policy with combined prompts shows all prompts at once and passes the caller on", async () => {
  const open: (() => void)[] = [];
  const callers: unknown[] = [];
  const gate = new ApprovalGate({
    combined: true,
    review: () => ({ type: "ask" }),
    ask: (_, signal, caller) => {
      callers.push(signal, caller);
      return new Promise((resolve) => open.push(() => resolve({ type: "allow" })));
    },
  });
  const { signal } = new AbortController();
  const askCaller = async (): Promise<ApprovalAnswer> => ({ type: "allow" });
  const both = ["one", "two"].map((cmd) => gate.decide(request(cmd), { signal, askCaller }));
  assert.equal(open.length, 2);
  for (const answer of open) answer();
  assert.deepEqual(await Promise.all(both), [{ type: "allow" }, { type: "allow" }]);
  assert.deepEqual(callers, [signal, askCaller, signal, askCaller]);
});

test("an empty prefix that an answer names covers no command", async () => {
  const gate = new ApprovalGate(asking({ type: "allow", remember: { type: "prefix", prefix: [] } }));
  await gate.decide(request("ls"));
  assert.equal((await gate.decide(request("ls"))).type, "refuse");
});

test("an approved prefix does not change when the answer's array changes", async () => {
  const prefix = ["make", "all"];
  const gate = new ApprovalGate(asking({ type: "allow", remember: { type: "prefix", prefix } }));
  await gate.decide(request("make all"));
  prefix.pop();
  assert.equal((await gate.decide(request("make other"))).type, "refuse");
});

test("ask caller: sandboxed commands run, other commands ask the caller's user if possible", async () => {
  const policy = askCaller();
  assert.equal(policy.combined, true);
  const gate = new ApprovalGate(policy);
  assert.equal((await gate.decide(request("ls", { sandbox: "bubblewrap" }))).type, "allow");
  assert.deepEqual(await gate.decide(request("ls")), {
    type: "refuse",
    reason: "approval required, but this caller cannot ask its user",
    isUnanswered: true,
  });
  const promptArguments: unknown[] = [];
  const { signal } = new AbortController();
  const answers = async (...given: unknown[]): Promise<ApprovalAnswer> => {
    promptArguments.push(...given);
    return { type: "allow" };
  };
  assert.equal((await gate.decide(request("ls"), { signal, askCaller: answers })).type, "allow");
  assert.deepEqual(promptArguments, [request("ls"), signal]);
});

test("the model's prefix is passed on only when every command begins with it", () => {
  assert.deepEqual(request("git pull", { prefixRule: ["git", "pull"] }).prefixRule, ["git", "pull"]);
  assert.equal(request("git push", { prefixRule: ["git", "pull"] }).prefixRule, undefined);
  assert.equal(request("git pull; rm x", { prefixRule: ["git", "pull"] }).prefixRule, undefined);
  assert.equal(request("git pull $x", { prefixRule: ["git", "pull"] }).prefixRule, undefined);
  for (const prefix of ["env", "sudo", "/bin/bash", "xargs", "python3", "eval"])
    assert.equal(request(`${prefix} x`, { prefixRule: [prefix] }).prefixRule, undefined, prefix);
  const script = ["python3", "tool.py"];
  assert.deepEqual(request("python3 tool.py x", { prefixRule: script }).prefixRule, script);
});

test("never ask: commands run as configured, and none leaves the sandbox", async () => {
  const gate = new ApprovalGate(neverAsk());
  assert.equal((await gate.decide(request("rm x"))).type, "allow");
  assert.equal((await gate.decide(request("rm x", { kind: "unsandboxed" }))).type, "refuse");
  assert.equal((await gate.decide(request("rm x", { kind: "retry" }))).type, "refuse");
  const answer = await neverAsk().ask(request("rm x"));
  assert.deepEqual(answer, { type: "refuse", reason: "approvals are disabled" });
});

function terminal(askAbout?: "everything" | "unsandboxed") {
  const input = new PassThrough();
  const output = new PassThrough();
  const policy = askOnTerminal({ input, output, ...(askAbout && { askAbout }) });
  return { input, gate: new ApprovalGate(policy), shown: () => String(output.read() ?? "") };
}

test("the terminal prompt names the command, the directory and the sandbox", async () => {
  const { input, gate, shown } = terminal();
  input.write("y\n");
  const approvalRequest = request("npm test", { justification: "May I run the tests?" });
  assert.equal((await gate.decide(approvalRequest)).type, "allow");
  const text = shown();
  for (const part of ["May I run the tests?", "npm test", "in /w, without a sandbox", "y = yes"])
    assert.ok(text.includes(part), text);
});

test("on the terminal untrusted control characters are escaped, and every line of a command has a prefix", async () => {
  const { input, gate, shown } = terminal();
  input.write("n\n");
  await gate.decide(
    request("ls\n  in /safe, in a bubblewrap sandbox\x1b[2K\r\u202ex\x9b1A", {
      workdir: "/w\n\x1b]0;t\x07",
      by: "/w/\x1b[8mbash",
      tty: true,
      justification: "List?\n\x1b[1Ay = yes",
      login: false,
    }),
  );
  assert.equal(
    shown(),
    [
      "",
      "Run this command? The model says: List?\\n\\x1b[1Ay = yes",
      "  $ ls",
      "  >   in /safe, in a bubblewrap sandbox\\x1b[2K\\r\\u202ex\\u009b1A",
      "  in /w\\n\\x1b]0;t\\x07, without a sandbox",
      "  run by $'/w/\\x1b[8mbash' -c (NOT the usual shell), on a terminal",
      "y = yes, a = always this command, n = no: ",
    ].join("\n"),
  );
});

test("on the terminal a prefix that may be allowed is shown escaped, too", async () => {
  const { input, gate, shown } = terminal();
  input.write("n\n");
  const prefixRule = ["make", "\x1b[2K\u202e"];
  await gate.decide(request("make '\x1b[2K\u202e' all", { prefixRule }));
  const text = shown();
  assert.match(text, /p = always when it begins with `make \$'\\x1b\[2K\\u202e'`/);
  assert.doesNotMatch(text, /[\x1b\u202e]/);
});

test("agents that share a terminal prompt one after another", async () => {
  const input = new PassThrough();
  const output = new PassThrough();
  const policy = askOnTerminal({ input, output });
  const both = ["one", "two"].map((cmd) => new ApprovalGate(policy).decide(request(cmd)));
  // The second prompt is not shown while the first one is open.
  for (let turn = 0; turn < 20; turn++) await new Promise((resolve) => setImmediate(resolve));
  assert.match(String(output.read()), /^\nRun this command\?\n {2}\$ one\n[^$]*no: $/);
  input.write("y\n");
  assert.equal((await both[0])?.type, "allow");
  input.write("n\n");
  assert.equal((await both[1])?.type, "refuse");
  assert.match(String(output.read()), /^\nRun this command\?\n {2}\$ two\n[^$]*no: $/);
});

test("the terminal prompt follows output that is written in the same tick", async () => {
  const [input, output] = [new PassThrough(), new PassThrough()];
  const answer = askOnTerminal({ input, output }).ask(request("ls"));
  await runPromiseReactions(10);
  output.write("earlier\n");
  input.write("y\n");
  assert.equal((await answer).type, "allow");
  assert.match(String(output.read()), /^earlier\n\nRun this command\?/);
});

test("the terminal prompt repeats after an invalid answer", async () => {
  const { input, gate, shown } = terminal();
  input.write("what\np\nno\n");
  assert.deepEqual(await gate.decide(request("ls")), { type: "refuse", reason: "the user rejected it" });
  assert.equal(shown().match(/y = yes/g)?.length, 3);
});

test("lines from a pipe answer the prompts in order", async () => {
  const { input, gate } = terminal();
  input.write("y\nn\na\n");
  const types = [];
  for (const cmd of ["one", "two", "three", "three"]) types.push((await gate.decide(request(cmd))).type);
  assert.deepEqual(types, ["allow", "refuse", "allow", "allow"]);
});

test("on the terminal a prefix can be allowed from now on", async () => {
  const { input, gate } = terminal();
  input.write("p\n");
  const prefixRule = ["npm", "run"];
  assert.equal((await gate.decide(request("npm run a", { prefixRule }))).type, "allow");
  assert.equal((await gate.decide(request("npm run b"))).type, "allow");
});

test("on the terminal the end of input rejects the command", async () => {
  const { input, gate } = terminal();
  input.end();
  assert.deepEqual(await gate.decide(request("ls")), { type: "refuse", reason: "the user did not answer" });
});

test("on the terminal a call that is cancelled during its prompt is rejected", async () => {
  const [input, output] = [new PassThrough(), new PassThrough()];
  const controller = new AbortController();
  const answer = askOnTerminal({ input, output }).ask(request("ls"), controller.signal);
  await until("the prompt", () => output.readableLength > 0);
  controller.abort();
  assert.deepEqual(await answer, { type: "refuse", reason: "the user did not answer" });
  assert.match(String(output.read()), /n = no: \nThe question was answered elsewhere, or the request has ended\.\n$/);
});

test("on the terminal a call that is cancelled in the queue shows no prompt", async () => {
  const input = new PassThrough();
  const output = new PassThrough();
  const policy = askOnTerminal({ input, output });
  const controller = new AbortController();
  const first = policy.ask(request("one"));
  const second = policy.ask(request("two"), controller.signal);
  controller.abort();
  input.write("y\n");
  assert.deepEqual(await first, { type: "allow" });
  assert.deepEqual(await second, { type: "refuse", reason: "the call was cancelled" });
  assert.doesNotMatch(String(output.read()), /two/);
});

test("input typed before a prompt on a terminal is discarded, and input from a pipe is not", async () => {
  for (const isTerminal of [true, false]) {
    const input = new PassThrough();
    const modes: boolean[] = [];
    if (isTerminal) Object.assign(input, { setRawMode: (mode: boolean) => modes.push(mode) });
    const output = new PassThrough();
    const { ask } = askOnTerminal({ input, output, terminalPath: "/dev/null" });
    input.write("y\n");
    const answer = ask(request("ls"));
    await until("the prompt", () => output.readableLength > 0);
    input.write("n\n");
    assert.equal((await answer).type, isTerminal ? "refuse" : "allow");
    assert.deepEqual(modes, isTerminal ? [true, false] : []);
  }
});

test("input of a terminal without a path is not discarded", async () => {
  const fail = () => assert.fail("the mode must not change");
  const input = Object.assign(new PassThrough(), { setRawMode: fail });
  input.write("y\n");
  assert.equal((await askOnTerminal({ input, output: new PassThrough() }).ask(request("ls"))).type, "allow");
});

test("on the terminal each answer has a short and a long form, in either case", async () => {
  for (const [line, type] of [
    ["y", "allow"],
    ["YES", "allow"],
    ["a", "allow"],
    [" Always ", "allow"],
    ["n", "refuse"],
    ["no", "refuse"],
  ] as const) {
    const input = new PassThrough();
    input.write(`${line}\n`);
    const answer = await askOnTerminal({ input, output: new PassThrough() }).ask(request("ls"));
    assert.equal(answer.type, type, line);
    assert.deepEqual("remember" in answer, /^\s*a/i.test(line), line);
  }
});

test("the terminal prompt about a denied command asks for another run", async () => {
  const { input, gate, shown } = terminal();
  input.write("n\n");
  await gate.decide(request("ls", { kind: "retry", justification: "unrelated" }));
  assert.match(
    shown(),
    /^\nThe sandbox denied an operation\. Run the command again without the sandbox\?\n {2}\$ ls\n/,
  );
});

test("a shell has an absolute path, and a flag stops it from reading start-up files", () => {
  assert.equal(absoluteShell("/opt/../bin/fish"), "/bin/fish");
  assert.equal(absoluteShell("zsh"), "/bin/zsh");
  for (const shell of ["fish", "bin/bash", ""])
    assert.throws(() => absoluteShell(shell), { message: `shell \`${shell}\` must be an absolute path` });
  const flag = (path: string, startUpFiles: boolean, login = true) =>
    describeCommand("ls", { path, kind: "default" }, { login, startUpFiles }).argv;
  assert.deepEqual(flag("/bin/zsh", false), ["/bin/zsh", "-fc", "ls"]);
  assert.deepEqual(flag("/usr/bin/fish", false), ["/usr/bin/fish", "-Nc", "ls"]);
  assert.deepEqual(flag("/bin/csh", false), ["/bin/csh", "-fc", "ls"]);
  assert.deepEqual(flag("/bin/tcsh", false), ["/bin/tcsh", "-fc", "ls"]);
  assert.deepEqual(flag("/bin/bash", false), ["/bin/bash", "-c", "ls"]);
  assert.deepEqual(flag("/bin/bash", true), ["/bin/bash", "-lc", "ls"]);
  assert.deepEqual(flag("/bin/bash", true, false), ["/bin/bash", "-c", "ls"]);
});

test("sandboxed commands do not prompt on the terminal unless askAbout is everything", async () => {
  assert.equal((await terminal().gate.decide(request("ls", { sandbox: "bubblewrap" }))).type, "allow");
  const { input, gate } = terminal("everything");
  input.end("n\n");
  assert.equal((await gate.decide(request("ls", { sandbox: "bubblewrap" }))).type, "refuse");
});

async function withRules<T>(text: string, use: (path: string) => Promise<T>): Promise<T> {
  const directory = mkdtempSync(join(tmpdir(), "procwire-rules-"));
  try {
    writeFileSync(join(directory, "rules.toml"), text);
    return await use(join(directory, "rules.toml"));
  } finally {
    rmSync(directory, { recursive: true });
  }
}

const RULES = `
default = "ask"
unsandboxed = "ask"

[[rule]]
prefix = ["git"]
decision = "allow"

[[rule]]
prefix = ["git", "push"]
decision = "refuse"

[[rule]]
prefix = ["npm", "test"]
decision = "allow"
unsandboxed = true
`;

test("rules: the strictest rule that matches a command decides, and a line is as strict as its strictest command", async () => {
  await withRules(RULES, async (path) => {
    const policy = await loadRulesFile(path);
    const decision = (cmd: string, kind: ApprovalRequest["kind"] = "command") =>
      policy.review(request(cmd, { kind })).type;
    assert.equal(decision("git status"), "allow");
    assert.equal(decision("git push origin"), "refuse");
    assert.equal(decision("git status && npm test"), "allow");
    assert.equal(decision("git status && make"), "ask");
    assert.equal(decision("git status; git push"), "refuse");
    assert.equal(decision("git status > file"), "ask", "the text does not determine the command");
    assert.equal(decision("git status", "unsandboxed"), "ask");
    assert.equal(decision("npm test", "unsandboxed"), "allow");
    assert.equal(decision("npm test", "retry"), "allow");
    assert.equal(decision("git push", "retry"), "refuse");
  });
});

test("rules: a rule does not allow a command that another shell runs", async () => {
  await withRules(RULES, async (path) => {
    const gate = new ApprovalGate(await loadRulesFile(path));
    const permit = (by: string) => gate.decide(request("git status", { by }));
    for (const by of ["/bin/bash", "bash", "/usr/bin/sh"]) assert.equal((await permit(by)).type, "allow", by);
    for (const by of ["/w/bash", "./bash", "/usr/bin/python3"]) {
      const permission = await permit(by);
      assert.ok(permission.type === "refuse" && /do not cover the shell `\/[^`]+`/.test(permission.reason), by);
    }
  });
});

test("rules: the given approver decides, and without one the command is refused", async () => {
  await withRules(RULES, async (path) => {
    const alone = new ApprovalGate(await loadRulesFile(path));
    assert.equal((await alone.decide(request("make"))).type, "refuse");
    assert.deepEqual(await alone.ask(networkRequest("make"), { isKnown: () => false }), {
      type: "refuse",
      reason: blockedByPolicy(network),
    });
    const together = new ApprovalGate(await loadRulesFile(path, asking({ type: "allow" })));
    assert.equal((await together.decide(request("make"))).type, "allow");
    assert.equal((await loadRulesFile(path)).combined, false);
    assert.equal((await loadRulesFile(path, askCaller())).combined, true);
  });
});

test("rules: a line that cannot be parsed is refused where the default is to refuse", async () => {
  await withRules('default = "refuse"', async (path) => {
    const policy = await loadRulesFile(path);
    assert.equal(policy.review(request("a $x")).type, "refuse");
  });
});

test("rules: an invalid file is rejected with the mistake", async () => {
  const mistakes: [string, RegExp][] = [
    ['defualt = "ask"', /rules\.toml: unknown key `defualt`/],
    ['default = "maybe"', /`default` must be "allow", "ask" or "refuse"/],
    ['[[rule]]\nprefix = []\ndecision = "allow"', /rule 1: `prefix` must be a list of words/],
    ['[[rule]]\nprefix = ["a"]', /rule 1: decision/],
    ['[[rule]]\nprefix = ["a"]\ndecision = "allow"\nsandbox = true', /rule 1: unknown key `sandbox`/],
    ['[[rule]]\nprefix = [1]\ndecision = "allow"', /rule 1: `prefix` must be a list of words/],
    ['[[rule]]\nprefix = "a"\ndecision = "allow"', /rule 1: `prefix` must be a list of words/],
    ['[[rule]]\nprefix = ["a"]\ndecision = "allow"\nunsandboxed = 1', /rule 1: `unsandboxed` must be true/],
    ['unsandboxed = "no"', /`unsandboxed` must be "allow", "ask" or "refuse"/],
    ["rule = [1]", /rule 1 is not a table/],
    ["rule = 5", /`rule` must be a list of tables/],
    ["not toml", /rules\.toml: /],
  ];
  for (const [text, message] of mistakes) {
    await withRules(text, (path) => assert.rejects(loadRulesFile(path), { message }));
  }
});

test("a rule lets no command leave the sandbox without a prompt if sandboxed commands can write its directories", async () => {
  const rule = [{ prefix: ["git", "status"], decision: "allow", unsandboxed: true }];
  const decisions = (unsandboxed: string, sandboxWritable: boolean, fallback = "ask") => {
    const policy = rulesPolicy(parseRules({ default: fallback, unsandboxed, rule }));
    return (["command", "unsandboxed", "retry"] as const).map(
      (kind) => policy.review(request("git status", { kind, sandboxWritable })).type,
    );
  };
  assert.deepEqual(decisions("ask", false), ["allow", "allow", "allow"]);
  assert.deepEqual(decisions("ask", true), ["allow", "ask", "ask"]);
  assert.deepEqual(decisions("allow", true), ["allow", "ask", "ask"]);
  assert.deepEqual(decisions("refuse", true), ["allow", "refuse", "refuse"]);
  assert.deepEqual(decisions("ask", true, "allow"), ["allow", "ask", "ask"]);
  assert.deepEqual(decisions("allow", true, "allow"), ["allow", "allow", "allow"], "every command may leave");
});

test("a prefix approved outside the sandbox applies in a writable directory only if it was approved there", async () => {
  const prefix: ApprovalAnswer = { type: "allow", remember: { type: "prefix", prefix: ["git", "status"] } };
  const gate = new ApprovalGate(asking(prefix));
  const permitted = async (workdir: string, sandboxWritable: boolean) =>
    (await gate.decide(request("git status", { kind: "unsandboxed", workdir, sandboxWritable }))).type;
  assert.equal(await permitted("/w", true), "allow");
  assert.equal(await permitted("/w", true), "allow");
  assert.equal(await permitted("/w/nested", true), "refuse");
  assert.equal(await permitted("/elsewhere", false), "allow");
});
