import assert from "node:assert/strict";
import { existsSync, readFileSync, writeFileSync } from "node:fs";
import { join } from "node:path";
import type { ApprovalPolicy } from "../../src/tools/policy/approval.ts";
import type { UnifiedExecOptions } from "../../src/tools/unified-exec.ts";
import { noSandbox } from "../sandbox/sandbox-fixture.ts";
import { fact, textOf } from "./calls.ts";
import type { Behaves } from "./host.ts";

/** Effects of a login profile on commands, on any backend. */
export function testLogin(behaves: Behaves): void {
  const withProfile =
    (profile: string, more: Partial<UnifiedExecOptions> = {}) =>
    (directory: string): Partial<UnifiedExecOptions> => {
      writeFileSync(join(directory, ".bash_profile"), profile);
      return { ...more, env: { HOME: directory, GIVEN: "given", ...more.env } };
    };
  const COUNTING = 'echo run >>"$HOME/runs"; ';
  const runsOf = (directory: string) => readFileSync(join(directory, "runs"), "utf8").split("\n").length - 1;

  behaves(
    "the profile runs once, and its changes to the environment apply to every command",
    async ({ call, directory }) => {
      const cmd = 'echo "<$FROM_PROFILE> <${GIVEN-none}> $PAGER ${PATH%%:*}"; shopt -q login_shell || echo plain';
      for (let count = 0; count < 2; count++) {
        const output = await call("exec_command", { cmd });
        assert.equal(textOf(output), `<a  b\nc> <none> less ${directory}/bin\nplain\n`, output.text);
      }
      assert.equal(runsOf(directory), 1);
    },
    {
      options: withProfile(
        `${COUNTING} echo noise; export FROM_PROFILE=$'a  b\\nc' PAGER=less PATH="$HOME/bin:$PATH"; unset GIVEN`,
      ),
    },
  );

  behaves(
    "concurrent commands share one run of the profile",
    async ({ call, directory }) => {
      const outputs = await Promise.all([1, 2, 3, 4].map(() => call("exec_command", { cmd: "echo $SET" })));
      assert.deepEqual(outputs.map(textOf), Array(4).fill("yes\n"));
      assert.equal(runsOf(directory), 1);
    },
    { options: withProfile(`${COUNTING} export SET=yes`) },
  );

  behaves(
    "a secret of the profile does not reach a command, unless its name is allowed",
    async ({ call }) => {
      const cmd = 'echo "<$SERVICE_API_KEY> <$OTHER_TOKEN> <$PLAIN>"';
      assert.equal(textOf(await call("exec_command", { cmd })), "<> <from the profile> <seen>\n");
    },
    {
      options: withProfile("export SERVICE_API_KEY=sk-1 OTHER_TOKEN='from the profile' PLAIN=seen", {
        env: { OTHER_TOKEN: "given by name" },
      }),
    },
  );

  behaves(
    "a profile that never ends delays one command until the deadline; later commands run without it, with one notice",
    async ({ call }) => {
      const first = await call("exec_command", { cmd: 'echo "ran <$SET>"' });
      assert.equal(textOf(first), "ran <>\n", first.text);
      assert.match(first.text, /^Note: the profile of the login shell \/bin\/bash did not end within 0\.5 s; /);
      assert.match(String(fact(first, "notice")), /commands run without the login environment/);
      const second = await call("exec_command", { cmd: "echo again" });
      assert.deepEqual([textOf(second), fact(second, "notice")], ["again\n", undefined]);
    },
    {
      options: withProfile("export SET=early; while :; do sleep 60; done", {
        limits: { loginDeadlineMs: 500 },
      }),
    },
  );

  behaves(
    "a profile that exits the shell is reported, and commands run without the login environment",
    async ({ call, directory }) => {
      const first = await call("exec_command", { cmd: "echo reached" });
      assert.equal(textOf(first), "reached\n", first.text);
      assert.match(first.text, /^Note: the login shell exited with code 3 .*; commands run without /);
      const second = await call("exec_command", { cmd: "echo reached" });
      assert.deepEqual([textOf(second), fact(second, "notice")], ["reached\n", undefined]);
      assert.equal(runsOf(directory), 1, "once to take it");
      const output = await call("exec_command", { cmd: "echo unreached", login: true });
      assert.equal(fact(output, "exit_code"), 3, output.text);
    },
    { options: withProfile(`${COUNTING} exit 3`) },
  );

  behaves(
    "login=true runs a login shell with the profile's functions, and login=false reads no profile at all",
    async ({ call, directory }) => {
      const cmd = "greet 2>/dev/null || echo none";
      assert.equal(textOf(await call("exec_command", { cmd, login: false })), "none\n");
      assert.ok(!existsSync(join(directory, "runs")));
      assert.equal(textOf(await call("exec_command", { cmd, login: true })), "hello\n");
      assert.equal(runsOf(directory), 1);
    },
    { options: withProfile(`${COUNTING} greet() { echo hello; }`) },
  );

  behaves(
    "the profile of a sandboxed command runs in the same sandbox",
    async ({ call, directory }) => {
      const output = await call("exec_command", { cmd: "echo $SET" });
      assert.equal(textOf(output), "yes\n", output.text);
      assert.equal(runsOf(directory), 1);
      assert.ok(!existsSync(`${directory}-outside`));
    },
    {
      skip: noSandbox,
      options: (directory) => ({
        ...withProfile(`${COUNTING} echo x >"$HOME-outside"; export SET=yes`)(directory),
        sandbox: { type: "bubblewrap", writableRoots: [directory], network: false },
      }),
    },
  );

  // The test runs once per host in the same process.
  const judged: string[] = [];
  const recording: ApprovalPolicy = {
    review: ({ argv }) => {
      judged.push(JSON.stringify(argv));
      return { type: "allow" };
    },
    ask: async () => ({ type: "refuse", reason: "this test gives no approval" }),
  };
  behaves(
    "an approval shows the argv that runs",
    async ({ call }) => {
      for (const [login, flag] of [
        [undefined, "-c"],
        [true, "-lc"],
        [false, "-c"],
      ] as const) {
        judged.length = 0;
        const cmd = "tr '\\0' '\\n' </proc/$$/cmdline; :";
        const output = await call("exec_command", login === undefined ? { cmd } : { cmd, login });
        assert.equal(textOf(output), `/bin/bash\n${flag}\n${cmd}\n`);
        assert.deepEqual(judged, [JSON.stringify(["/bin/bash", flag, cmd])]);
      }
    },
    { options: withProfile("export SET=yes", { approval: recording }) },
  );
}
