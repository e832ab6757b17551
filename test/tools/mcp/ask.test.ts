import assert from "node:assert/strict";
import { existsSync, mkdtempSync, readFileSync, rmSync, writeFileSync } from "node:fs";
import { join } from "node:path";
import { describe, test } from "node:test";
import type { ClientOptions, ElicitRequestFormParams, ElicitResult } from "@modelcontextprotocol/client";
import { noSandbox } from "../../sandbox/sandbox-fixture.ts";
import { startMcp } from "./start-mcp.ts";

const CAN_ASK = { capabilities: { elicitation: { form: {} } } } satisfies ClientOptions;

/** A user who answers from a list. Records the prompts. */
function user(...answers: (string | ElicitResult)[]) {
  const forms: ElicitRequestFormParams[] = [];
  const onQuestion = (form: ElicitRequestFormParams): ElicitResult => {
    forms.push(form);
    const answer = answers.shift() ?? "refuse";
    return typeof answer === "string" ? { action: "accept", content: { decision: answer } } : answer;
  };
  return { forms, onQuestion };
}

/** Clients of both protocol revisions get the same prompts; only the transport differs. */
function testAsking(revision: string, client: ClientOptions): void {
  describe(revision, { concurrency: 2, timeout: 600_000 }, () => {
    test("a command runs when the user allows it, exactly as it was shown", async () => {
      const { forms, onQuestion } = user("allow once", "refuse");
      await using mcp = await startMcp(["--ask"], client, onQuestion);
      const cmd = "printf 'a\\n'\nprintf b \x1b\u202e";
      const allowed = await mcp.call("exec_command", { cmd, login: false, tty: true });
      assert.match(allowed.text, /Process exited with code 0\n/);
      assert.equal(
        forms[0]?.message,
        [
          "Run this command?",
          "  $ printf 'a\\n'",
          "  > printf b \\x1b\\u202e",
          `  in ${mcp.directory}, without a sandbox`,
          "  run by /bin/bash -c, on a terminal",
        ].join("\n"),
      );
      const refused = await mcp.call("exec_command", { cmd: "touch ran" });
      assert.deepEqual(refused, { text: "exec_command refused: the user rejected it", isError: true });
      assert.ok(!existsSync(join(mcp.directory, "ran")));
      assert.equal(forms.length, 2);
    });

    test("a command allowed for the session prompts once, and again for another shell", async () => {
      const { forms, onQuestion } = user("allow for session", { action: "decline" }, { action: "cancel" });
      await using mcp = await startMcp(["--ask"], client, onQuestion);
      for (let time = 0; time < 3; time++)
        assert.equal((await mcp.call("exec_command", { cmd: "echo x" })).isError, false);
      assert.equal(forms.length, 1);
      writeFileSync(join(mcp.directory, "bash"), "#!/bin/sh\necho planted\n", { mode: 0o755 });
      const planted = await mcp.call("exec_command", { cmd: "echo x", shell: "./bash" });
      assert.equal(planted.text, "exec_command refused: the user rejected it");
      assert.match(forms[1]?.message ?? "", /run by .*\/bash -lc \(NOT the usual shell\)/);
      const other = await mcp.call("exec_command", { cmd: "echo y" });
      assert.equal(other.text, "exec_command refused: the user dismissed the prompt");
    });

    test("--audit records the answer of the user and hides its file; without a line, nothing runs", {
      skip: noSandbox,
    }, async () => {
      const directory = mkdtempSync("/var/tmp/procwire-audit-");
      const audit = join(directory, "audit.jsonl");
      try {
        const escalate = { login: false, sandbox_permissions: "require_escalated", justification: "needed" };
        const { onQuestion } = user("refuse", "allow once", "refuse", "allow once");
        const flags = ["--ask", "--sandbox", "workspace-write"];
        {
          await using mcp = await startMcp([...flags, "--audit", audit], client, onQuestion);
          const hidden = await mcp.call("exec_command", { cmd: `cat ${audit}`, login: false });
          assert.doesNotMatch(hidden.text, /log\/opened/);
          assert.equal((await mcp.call("exec_command", { cmd: "touch one", ...escalate })).isError, false);
          assert.equal((await mcp.call("exec_command", { cmd: "touch two", ...escalate })).isError, true);
        }
        const lines = readFileSync(audit, "utf8").trimEnd().split("\n");
        assert.deepEqual(
          lines
            .map((line) => JSON.parse(line))
            .filter(({ event }) => event === "approval")
            .map((line) => [line.event, line.outcome, line.mode, line.argv.at(-1), line.answer, line.sandboxed]),
          [
            ["approval", "allowed", "command", `cat ${audit}`, undefined, true],
            // The sandbox denied the file, so the tool asks the user for another attempt without it.
            ["approval", "refused", "retry", `cat ${audit}`, "deny", undefined],
            ["approval", "allowed", "unsandboxed", "touch one", "once", undefined],
            ["approval", "refused", "unsandboxed", "touch two", "deny", undefined],
          ],
        );
        await using full = await startMcp([...flags, "--audit", "/dev/full"], client, onQuestion);
        for (const more of [{ login: false }, escalate]) {
          const { text } = await full.call("exec_command", { cmd: "touch three", ...more });
          assert.match(text, /^exec_command refused: approval refused: cannot write the audit log \(ENOSPC\)/);
        }
        assert.ok(!existsSync(join(full.directory, "three")));
      } finally {
        rmSync(directory, { recursive: true, force: true, maxRetries: 10 });
      }
    });

    test("concurrent calls each prompt and run", async () => {
      let open = 0;
      let most = 0;
      await using mcp = await startMcp(["--ask"], client, async () => {
        most = Math.max(most, ++open);
        await new Promise((resolve) => setTimeout(resolve, 50));
        open--;
        return { action: "accept", content: { decision: "allow once" } };
      });
      const calls = ["one", "two", "three"].map((word) => mcp.call("exec_command", { cmd: `echo ${word}` }));
      const texts = (await Promise.all(calls)).map(({ text }) => text.split("\n").at(-2));
      assert.deepEqual(texts, ["one", "two", "three"]);
      if (revision === "2025") assert.equal(most, 1);
    });

    test("with rules, only undecided commands prompt, and a prefix can be allowed", {
      skip: noSandbox,
    }, async () => {
      const directory = mkdtempSync("/var/tmp/procwire-rules-");
      try {
        const rules = join(directory, "rules.toml");
        const refuse = '[[rule]]\nprefix = ["rm"]\ndecision = "refuse"\n';
        writeFileSync(rules, `[[rule]]\nprefix = ["pwd"]\ndecision = "allow"\n${refuse}`);
        const { forms, onQuestion } = user("allow all that begin like this");
        const args = ["--ask", "--rules", rules, "--sandbox", "workspace-write"];
        await using mcp = await startMcp(args, client, onQuestion);
        assert.equal((await mcp.call("exec_command", { cmd: "pwd" })).isError, false);
        assert.equal((await mcp.call("exec_command", { cmd: "env rm x" })).isError, true);
        assert.equal(forms.length, 0);
        const more = { sandbox_permissions: "require_escalated", prefix_rule: ["echo", "x"] };
        const escalated = { ...more, justification: "Echo,\nplease" };
        for (const cmd of ["echo x 1", "echo x 2"])
          assert.equal((await mcp.call("exec_command", { cmd, ...escalated })).isError, false);
        assert.equal(forms.length, 1);
        assert.match(forms[0]?.message ?? "", /says: Echo,\\nplease\n.*begins with: echo x$/s);
      } finally {
        rmSync(directory, { recursive: true, force: true, maxRetries: 10 });
      }
    });

    test("a client without elicitation gets an error, and nothing runs", async () => {
      await using mcp = await startMcp(["--ask"], { ...client, capabilities: {} });
      const refused = await mcp.call("exec_command", { cmd: "touch ran" });
      assert.deepEqual(refused, {
        text: "exec_command refused: approval required, but the MCP client does not support form elicitation",
        isError: true,
      });
      assert.ok(!existsSync(join(mcp.directory, "ran")));
    });

    test("a call that is cancelled during its prompt runs nothing", async () => {
      const controller = new AbortController();
      const prompted = Promise.withResolvers<void>();
      const answered = Promise.withResolvers<ElicitResult>();
      let questions = 0;
      await using mcp = await startMcp(["--ask"], client, () => {
        prompted.resolve();
        return questions++ === 0 ? answered.promise : { action: "accept", content: { decision: "allow once" } };
      });
      const call = mcp.call("exec_command", { cmd: "touch ran" }, { signal: controller.signal });
      const rejected = assert.rejects(call);
      await prompted.promise;
      controller.abort();
      answered.resolve({ action: "cancel" });
      await rejected;
      assert.equal((await mcp.call("exec_command", { cmd: "echo on" })).isError, false, "others go on");
      assert.ok(!existsSync(join(mcp.directory, "ran")));
    });
  });
}

testAsking("2025", CAN_ASK);
testAsking("2026", { ...CAN_ASK, versionNegotiation: { mode: { pin: "2026-07-28" } } });
