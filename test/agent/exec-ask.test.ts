import assert from "node:assert/strict";
import { existsSync } from "node:fs";
import { mkdtemp, readFile, realpath, rm, writeFile } from "node:fs/promises";
import { tmpdir } from "node:os";
import path from "node:path";
import { test } from "node:test";
import { waitFor } from "../../src/exec/wait/wait-for-output.ts";
import { createLocalBackend } from "../../src/host/create-local-backend.ts";
import {
  answer,
  functionCall,
  type MockHandler,
  says,
  startMockResponses,
  toolOutputs,
} from "../support/models/mock-responses.ts";
import { ENTRY, runCli } from "../support/servers/run-cli.ts";

/** A model that runs the given commands in turn, then repeats their output. */
const runs =
  (...calls: Record<string, unknown>[]): MockHandler =>
  (request) => {
    const outputs = toolOutputs(request.body);
    const next = calls[outputs.length];
    return next ? answer(functionCall(`c${outputs.length}`, "exec_command", next)) : says(outputs.join("\n"));
  };

/** Runs `procwire exec` on a separate terminal, like a user. */
async function onTerminal(
  handler: MockHandler,
  args: string[],
  body: (
    terminal: Awaited<ReturnType<ReturnType<typeof createLocalBackend>["start"]>>,
    directory: string,
  ) => Promise<void>,
): Promise<void> {
  const directory = await realpath(await mkdtemp(path.join(tmpdir(), "procwire-ask-")));
  const mock = await startMockResponses(handler);
  await using backend = createLocalBackend();
  try {
    await using terminal = await backend.start({
      processId: "exec",
      argv: [
        process.execPath,
        ENTRY,
        "exec",
        "--ask",
        ...(args.includes("--sandbox") ? [] : ["-s", "danger-full-access"]),
        ...args,
        "do it",
      ],
      cwd: directory,
      env: {
        PATH: process.env.PATH ?? "",
        HOME: directory,
        OPENAI_BASE_URL: mock.url,
        OPENAI_API_KEY: "sk-x",
      },
      tty: true,
      timeoutMs: 120_000,
    });
    await body(terminal, directory);
  } finally {
    await mock.close();
    await rm(directory, { recursive: true, force: true, maxRetries: 10 });
  }
}

const type = (text: string) => new TextEncoder().encode(text);

test("on a terminal, the user sees the command and decides", { timeout: 600_000 }, async () => {
  const planted = { cmd: "touch one", shell: "./bash", justification: "harmless\x1b[2J\x1b[1;1H\u202e" };
  const calls = [planted, { cmd: "touch two\r\n: \x9b1A" }, { cmd: "touch two\r\n: \x9b1A" }];
  await onTerminal(runs(...calls), [], async (terminal, directory) => {
    const first = await waitFor(terminal, /says: (.*)[\s\S]*run by (.*)\r\n.*n = no: /);
    assert.match(first.groups[0] ?? "", /^harmless\\x1b\[2J\\x1b\[1;1H\\u202e\r?$/);
    assert.equal(first.groups[1], `${directory}/bash -lc (NOT the usual shell)`);
    await terminal.write(type("n\r"));
    const second = await waitFor(terminal, / {2}\$ (.*)\r\n {2}> (.*)\r\n {2}in .*\r\n.*\r\n.*n = no: /, {
      afterSeq: first.seq,
    });
    assert.deepEqual(second.groups, ["touch two\\r", ": \\u009b1A"]);
    await terminal.write(type("a\r"));
    const { exitCode } = await terminal.wait();
    const { terminal: shown } = await terminal.snapshot();
    const text = new TextDecoder().decode(shown);
    assert.equal(exitCode, 0, text);
    assert.deepEqual(
      [existsSync(path.join(directory, "one")), existsSync(path.join(directory, "two\r"))],
      [false, true],
    );
    assert.match(text, /exec_command refused: the user rejected it/);
    assert.equal(text.match(/run by/g)?.length, 2, "the third is remembered");
    // No control character of the model is interpreted, neither in the question nor in its commands as shown.
    assert.doesNotMatch(text, /\x1b\[2J|\x1b\[1;1H|\u202e|\u009b/);
  });
});

test("rules decide first, and the user decides about the rest", { timeout: 600_000 }, async () => {
  const calls = [{ cmd: "echo fine" }, { cmd: "env rm x" }, { cmd: "touch asked" }];
  const rules = path.join(await mkdtemp(path.join(tmpdir(), "procwire-rules-")), "rules.toml");
  const rule = (name: string, decision: string) => `[[rule]]\nprefix = ["${name}"]\ndecision = "${decision}"\n`;
  try {
    await writeFile(rules, rule("echo", "allow") + rule("rm", "refuse"));
    await onTerminal(runs(...calls), ["--rules", rules], async (terminal, directory) => {
      const { text } = await waitFor(terminal, /\$ .*\r\n[\s\S]*n = no: /);
      assert.match(text, /^\$ touch asked\r\n/);
      await terminal.write(type("y\r"));
      assert.equal((await terminal.wait()).exitCode, 0);
      assert.ok(existsSync(path.join(directory, "asked")));
    });
  } finally {
    await rm(path.dirname(rules), { recursive: true, force: true, maxRetries: 10 });
  }
});

test("--audit records decisions of rules and of the user, with the command, and the log verifies", {
  timeout: 600_000,
}, async () => {
  const scratch = await realpath(await mkdtemp(path.join(tmpdir(), "procwire-audit-")));
  const audit = path.join(scratch, "audit.jsonl");
  const rules = path.join(await mkdtemp(path.join(tmpdir(), "procwire-rules-")), "rules.toml");
  const rule = (name: string, decision: string) => `[[rule]]\nprefix = ["${name}"]\ndecision = "${decision}"\n`;
  const calls = [
    { cmd: "echo fine" },
    { cmd: "rm x" },
    { cmd: "touch no" },
    { cmd: "touch yes" },
    { cmd: "touch yes" },
  ];
  try {
    await writeFile(rules, rule("echo", "allow") + rule("rm", "refuse"));
    await onTerminal(runs(...calls), ["--rules", rules, "--audit", audit], async (terminal, directory) => {
      const first = await waitFor(terminal, /touch no[\s\S]*n = no: /);
      await terminal.write(type("n\r"));
      await waitFor(terminal, /touch yes[\s\S]*n = no: /, { afterSeq: first.seq });
      await terminal.write(type("a\r"));
      assert.equal((await terminal.wait()).exitCode, 0);
      const lines = (await readFile(audit, "utf8"))
        .trimEnd()
        .split("\n")
        .map((line) => JSON.parse(line));
      assert.deepEqual(
        lines.map(({ event, outcome, mode, argv, answer }) => [event, outcome, mode, argv?.at(-1), answer]),
        [
          ["log/opened", undefined, undefined, undefined, undefined],
          ["approval", "allowed", "command", "echo fine", undefined],
          ["approval", "refused", "command", "rm x", undefined],
          ["approval", "refused", "command", "touch no", "deny"],
          // The last command is covered by this answer.
          ["approval", "allowed", "command", "touch yes", "session"],
        ],
      );
      assert.equal(lines.at(-1).cwd, directory);
    });
    const verified = await runCli(["audit", "verify", audit], { cwd: scratch });
    assert.equal(verified.code, 0, verified.stderr);
  } finally {
    for (const directory of [scratch, path.dirname(rules)])
      await rm(directory, { recursive: true, force: true, maxRetries: 10 });
  }
});

test("--ask without a terminal is rejected, and nothing starts", { timeout: 600_000 }, async () => {
  const mock = await startMockResponses(() => says("no"));
  try {
    // A new POSIX session has no terminal, whatever runs the tests.
    await using backend = createLocalBackend();
    const process_ = await backend.start({
      processId: "exec",
      argv: [process.execPath, ENTRY, "exec", "--ask", "x"],
      cwd: tmpdir(),
      env: { PATH: process.env.PATH ?? "", OPENAI_BASE_URL: mock.url, OPENAI_API_KEY: "sk-x" },
      tty: false,
    });
    const { exitCode } = await process_.wait();
    const { stderr } = await process_.snapshot();
    assert.match(new TextDecoder().decode(stderr), /^procwire exec: --ask requires a terminal; see/);
    assert.deepEqual([exitCode, mock.requests.length], [2, 0]);
  } finally {
    await mock.close();
  }
});

test("control characters in an error are shown escaped, not interpreted", async () => {
  const { stderr } = await runCli(["\x1b[2J\u202e"], { cwd: tmpdir() });
  assert.match(stderr, /unknown command `\\x1b\[2J\\u202e`/);
  const missing = await runCli(["mcp", "--rules", "\x1b[2J.toml"], { cwd: tmpdir() });
  assert.match(missing.stderr, /\\x1b\[2J\.toml/);
  assert.doesNotMatch(stderr + missing.stderr, /\x1b/);
});

test("text typed before a prompt answers neither that prompt nor a later one", {
  timeout: 600_000,
}, async () => {
  // The first answer of the model waits until text was typed ahead.
  const typed = Promise.withResolvers<void>();
  const wanted = runs({ cmd: "touch one" }, { cmd: "touch two" });
  const handler: MockHandler = async (request) => {
    await typed.promise;
    return wanted(request);
  };
  await onTerminal(handler, [], async (terminal, directory) => {
    await waitFor(terminal, /do it/);
    // Whole lines, and the beginning of one.
    await terminal.write(type("y\ry\r"));
    await waitFor(terminal, /y\r\ny\r\n/);
    await terminal.write(type("y"));
    await waitFor(terminal, /y\r\ny\r\ny/);
    typed.resolve();
    const first = await waitFor(terminal, /\$ touch one[\s\S]*n = no: /);
    // Three lines in one write: only the first one answers the question.
    await terminal.write(type("\rn\ry\ry\r"));
    const second = await waitFor(terminal, /\$ touch two[\s\S]*n = no: /, { afterSeq: first.seq });
    await terminal.write(type("no\r"));
    assert.equal((await terminal.wait()).exitCode, 0);
    const made = ["one", "two"].filter((name) => existsSync(path.join(directory, name)));
    assert.deepEqual(made, [], second.text);
  });
});
