import assert from "node:assert/strict";
import { randomUUID } from "node:crypto";
import { existsSync, mkdirSync, readFileSync, rmSync, symlinkSync } from "node:fs";
import { createServer } from "node:net";
import { join, resolve } from "node:path";
import type { ApprovalAnswer, ApprovalPolicy, ApprovalRequest } from "../../src/tools/policy/approval.ts";
import type { UnifiedExecOptions } from "../../src/tools/unified-exec.ts";
import { noSandbox } from "../sandbox/sandbox-fixture.ts";
import { until } from "../support/system/until.ts";
import { fact, sessionOf, textOf } from "./calls.ts";
import type { Behaves } from "./host.ts";

/** Behavior of sandboxed processes, on any backend. */
export function testSandbox(behaves: Behaves): void {
  const walled =
    (approval?: ApprovalPolicy, network = false) =>
    (directory: string): Partial<UnifiedExecOptions> => ({
      sandbox: { type: "bubblewrap", writableRoots: [directory], network },
      ...(approval && { approval }),
    });

  behaves(
    "a sandboxed command can write only the workspace, and a denial is reported",
    async ({ call, directory }) => {
      mkdirSync(join(directory, ".git"));
      const inside = await call("exec_command", {
        cmd: "echo in >file; cat file; echo x >/tmp/mine; ls /tmp",
      });
      assert.deepEqual([fact(inside, "exit_code"), textOf(inside)], [0, "in\nmine\n"]);
      assert.equal(readFileSync(join(directory, "file"), "utf8"), "in\n");
      for (const path of [`${directory}-outside`, "/etc/procwire-outside", ".git/config"]) {
        const outside = await call("exec_command", { cmd: `echo x >${path}` });
        assert.deepEqual([fact(outside, "exit_code"), fact(outside, "sandbox_denied")], [1, true], outside.text);
        assert.ok(!existsSync(resolve(directory, path)));
      }
    },
    { skip: noSandbox, options: walled() },
  );

  behaves(
    "a workspace behind a symbolic link resolves to the real directory",
    async ({ call, directory }) => {
      const output = await call("exec_command", { cmd: "echo through >file && cat file", workdir: "link" });
      assert.equal(textOf(output), "through\n");
      assert.equal(readFileSync(join(directory, "real", "file"), "utf8"), "through\n");
    },
    {
      skip: noSandbox,
      options: (directory) => {
        mkdirSync(join(directory, "real"));
        symlinkSync(join(directory, "real"), join(directory, "link"));
        return { sandbox: { type: "bubblewrap", writableRoots: [join(directory, "link")], network: false } };
      },
    },
  );

  behaves(
    "a protected name that is a symbolic link is rejected, not partly protected",
    async ({ call, directory }) => {
      symlinkSync("/var/tmp", join(directory, ".git"));
      const output = await call("exec_command", { cmd: "true" });
      assert.equal(output.ok, false);
      assert.match(
        output.text,
        /^exec_command failed: sandbox intent cannot be enforced .*: `.*\/\.git` is a symbolic link/,
      );
      rmSync(join(directory, ".git"));
      const again = await call("exec_command", { cmd: "true" });
      assert.equal(fact(again, "exit_code"), 0, `the sandbox is resolved again: ${again.text}`);
    },
    { skip: noSandbox, options: walled() },
  );

  behaves(
    "a shared /tmp persists for the next command, and is not the host's",
    async ({ call }) => {
      const name = `/tmp/procwire-lasting-${randomUUID()}`;
      assert.equal(fact(await call("exec_command", { cmd: `echo kept >${name}` }), "exit_code"), 0);
      const found = await call("exec_command", { cmd: `cat ${name}; ls -la /tmp | head -2 | tail -1` });
      assert.match(textOf(found), /^kept\ndrwxrwxrwt/, found.text);
      assert.ok(!existsSync(name));
    },
    {
      skip: noSandbox,
      options: (directory) => ({
        sandbox: { type: "bubblewrap", writableRoots: [directory], network: false, privateTmp: "shared" },
      }),
    },
  );

  for (const network of [true, false]) {
    behaves(
      `a sandboxed command ${network ? "reaches" : "does not reach"} the network with network: ${network}`,
      async ({ call }) => {
        const server = createServer((socket) => socket.end("hello\n")).listen(0, "127.0.0.1");
        try {
          await until("listening", () => server.listening);
          const address = server.address();
          assert.ok(typeof address === "object" && address);
          const cmd = `exec 3<>/dev/tcp/127.0.0.1/${address.port} && cat <&3`;
          const output = await call("exec_command", { cmd });
          if (network) assert.equal(textOf(output), "hello\n");
          else {
            assert.match(textOf(output), /Connection refused/);
            assert.equal(fact(output, "sandbox_denied"), true, "the result names the sandbox as the cause");
            assert.match(output.text, /^Sandbox: probably denied an operation, for example network access$/m);
          }
        } finally {
          server.close();
        }
      },
      { skip: noSandbox, options: walled(undefined, network) },
    );
  }

  // One directory per test, because the tests run concurrently.
  const retried = recordingPolicy({ type: "allow" });
  behaves(
    "a denied command runs again without the sandbox after an approval",
    async ({ call, directory }) => {
      const outside = `${directory}-retried`;
      try {
        const output = await call("exec_command", { cmd: `echo x >${outside} && echo written` });
        assert.deepEqual([fact(output, "exit_code"), textOf(output)], [0, "written\n"]);
        assert.ok(existsSync(outside));
        assert.deepEqual(
          retried.prompts.splice(0).map(({ kind }) => kind),
          ["retry"],
        );
      } finally {
        rmSync(outside, { force: true });
      }
    },
    { skip: noSandbox, options: walled(retried.policy) },
  );

  const judged = recordingPolicy({ type: "refuse", reason: "no" });
  behaves(
    "a retry without the sandbox resolves its directory again",
    async ({ call, directory }) => {
      const cmd = "cd .. && mv sub old && ln -s /etc sub; touch /etc/procwire-test";
      mkdirSync(join(directory, "sub"));
      await call("exec_command", { cmd, workdir: "sub", login: false });
      assert.deepEqual(
        judged.prompts.splice(0).map(({ kind, workdir }) => [kind, workdir]),
        [["retry", "/etc"]],
      );
      assert.ok(!existsSync("/etc/procwire-test"));
    },
    { skip: noSandbox, options: walled(judged.policy) },
  );

  behaves(
    "a sandboxed command has a working terminal, and Ctrl-C reaches it",
    async ({ call }) => {
      const cmd = 'trap "echo interrupted; exit 9" INT; echo ready; while :; do sleep 0.05; done';
      const session_id = sessionOf(await call("exec_command", { cmd, tty: true, yield_time_ms: 250 }));
      await call("wait_for", { session_id, until: "pattern", pattern: "ready" });
      const output = await call("write_stdin", { session_id, chars: "\u0003", yield_time_ms: 30_000 });
      assert.deepEqual([fact(output, "exit_code")], [9], output.text);
      assert.match(textOf(output), /interrupted/);
    },
    { skip: noSandbox, options: walled() },
  );
}

/** Allows sandboxed commands, and gives every other request the same answer. */
function recordingPolicy(answer: ApprovalAnswer): { policy: ApprovalPolicy; prompts: ApprovalRequest[] } {
  const prompts: ApprovalRequest[] = [];
  const policy: ApprovalPolicy = {
    review: ({ kind }) => ({ type: kind === "command" ? "allow" : "ask" }),
    ask: async (request) => {
      prompts.push(request);
      return answer;
    },
  };
  return { policy, prompts };
}
