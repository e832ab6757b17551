import assert from "node:assert/strict";
import { writeFileSync } from "node:fs";
import { join } from "node:path";
import { describe, test } from "node:test";
import { noSandbox } from "../sandbox/sandbox-fixture.ts";
import { startCli } from "../support/servers/run-cli.ts";
import { runMain } from "../support/servers/run-main.ts";
import { scratchDirectory } from "../support/servers/serve.ts";

const TIMEOUT = { timeout: 600_000 };

/** Runs command lines that fail before they do anything. Returns their first lines on stderr. */
async function failures(commandLines: readonly (readonly string[])[], cwd: string): Promise<string[]> {
  const results = await runMain(commandLines, {
    cwd,
    env: { OPENAI_API_KEY: "x", OPENAI_BASE_URL: "http://127.0.0.1:9" },
  });
  return results.map(({ code, stderr }) => `${code} ${stderr.split("\n")[0]?.replace(/; see `[^`]*`$/, "")}`);
}

describe("--network", TIMEOUT, () => {
  test("is rejected without a sandbox by every command, unless it is on", async () => {
    using scratch = scratchDirectory();
    const table = join(scratch.path, "t.csv");
    writeFileSync(table, "a\n1\n");
    const commands = [
      ["run", "--network", "off", "--", "true"],
      ["mcp", "--network", "allow:a.test"],
      ["exec", "-s", "danger-full-access", "--network", "ask", "hello"],
      ["fanout", table, "--instruction", "x", "--network", "deny:a.test"],
    ];
    const [first = "", ...others] = await failures(commands, scratch.path);
    assert.equal(first, "2 procwire run: --network `off` requires --sandbox read-only or workspace-write");
    for (const [index, words] of ["allow:a.test", "ask", "deny:a.test"].entries())
      assert.ok(
        others[index]?.endsWith(`--network \`${words}\` requires --sandbox read-only or workspace-write`),
        others[index],
      );
    const on = await startCli(["run", "--network", "on", "--", "true"], { cwd: scratch.path }).ended;
    assert.deepEqual([on.code, on.stderr], [0, ""]);
  });

  test("has the same words and errors in every command", async () => {
    using scratch = scratchDirectory();
    const table = join(scratch.path, "t.csv");
    writeFileSync(table, "a\n1\n");
    const sandbox = ["--sandbox", "read-only", "--network"];
    const withPolicy = (policy: string) => [
      ["run", ...sandbox, policy, "--", "true"],
      ["mcp", ...sandbox, policy],
      ["exec", ...sandbox, policy, "hello"],
      ["fanout", table, "--instruction", "x", ...sandbox, policy],
    ];
    const unknown = await failures(withPolicy("some"), scratch.path);
    for (const line of unknown) assert.match(line, /^2 .*--network `some` is unknown; give on, off, ask, allow:DOMAIN/);
    const port = await failures(withPolicy("allow:a.test:443"), scratch.path);
    for (const line of port) assert.match(line, /^2 .*`a\.test:443` has a port; list ports separately$/);
  });

  test("needs a user for questions", async () => {
    using scratch = scratchDirectory();
    const table = join(scratch.path, "t.csv");
    writeFileSync(table, "a\n1\n");
    const sandbox = ["--sandbox", "read-only", "--network", "ask"];
    const lines = await failures(
      [
        ["fanout", table, "--instruction", "x", ...sandbox],
        ["run", "--detach", "--connect", "ws://127.0.0.1:1", ...sandbox, "--", "true"],
        ["fanout", table, "--instruction", "x", "--network-column", "a"],
      ],
      scratch.path,
    );
    assert.match(lines[0] ?? "", /--network ask: rows run without a user; give allow:DOMAIN or deny:DOMAIN$/);
    assert.match(lines[1] ?? "", /--network ask conflicts with --detach: no user could answer; give allow:DOMAIN$/);
    assert.match(lines[2] ?? "", /--network-column requires --sandbox read-only or workspace-write$/);
  });

  test("conflicts with a section [network] only if it is on, and the section needs a sandbox", async () => {
    using scratch = scratchDirectory();
    const rules = join(scratch.path, "rules.toml");
    writeFileSync(rules, '[network]\nallow = ["a.test"]\n');
    const lines = await failures(
      [
        ["mcp", "--rules", rules],
        ["mcp", "--rules", rules, "--sandbox", "read-only", "--network", "on"],
        ["run", "--rules", rules, "--", "true"],
      ],
      scratch.path,
    );
    assert.match(lines[0] ?? "", /\[network\] of --rules requires --sandbox read-only or workspace-write$/);
    assert.match(lines[1] ?? "", /--network `on` conflicts with \[network\] of the rules file; remove one of them$/);
    assert.match(lines[2] ?? "", /--rules requires --sandbox read-only or workspace-write$/);
  });
});

describe("run --sandbox", { ...TIMEOUT, skip: noSandbox }, () => {
  test("rejects --rules without a section [network], or with --network on", async () => {
    using scratch = scratchDirectory();
    const [empty, rules] = [join(scratch.path, "empty.toml"), join(scratch.path, "rules.toml")];
    writeFileSync(empty, 'default = "allow"\n');
    writeFileSync(rules, '[network]\nallow = ["a.test"]\n');
    const run = (...words: string[]) => ["run", "--sandbox", "read-only", ...words, "--", "true"];
    const lines = await failures([run("--rules", empty), run("--rules", rules, "--network", "on")], scratch.path);
    assert.match(lines[0] ?? "", /^2 .*--rules .*empty\.toml: the file has no section \[network\]$/);
    assert.match(lines[1] ?? "", /^2 .*--network `on` conflicts with \[network\] of the rules file/);
  });

  test("limits writes to the working directory and --writable, without network", async () => {
    using scratch = scratchDirectory();
    using other = scratchDirectory();
    const script = `touch inside "${other.path}/allowed" && ! touch /etc/procwire-denied 2>/dev/null && grep -c : /proc/net/dev`;
    const run = ["run", "--sandbox", "workspace-write", "--writable", other.path, "--", "sh", "-c", script];
    const { code, stdout, stderr } = await startCli(run, { cwd: scratch.path }).ended;
    assert.deepEqual([code, stdout, stderr], [0, "1\n", ""]);
  });

  test("rejects --user, and --writable in other modes", async () => {
    using scratch = scratchDirectory();
    const lines = await failures(
      [
        ["run", "--sandbox", "read-only", "--user", "nobody", "--", "true"],
        ["run", "--sandbox", "read-only", "--writable", "/tmp", "--", "true"],
      ],
      scratch.path,
    );
    assert.match(lines[0] ?? "", /^2 .*--user conflicts with --sandbox/);
    assert.match(lines[1] ?? "", /^2 .*--writable requires --sandbox workspace-write$/);
  });
});
