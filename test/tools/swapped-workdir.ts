import assert from "node:assert/strict";
import { mkdirSync, renameSync, symlinkSync, writeFileSync } from "node:fs";
import { join } from "node:path";
import type { ApprovalPolicy, ApprovalRequest } from "../../src/tools/policy/approval.ts";
import { noSandbox } from "../sandbox/sandbox-fixture.ts";
import { repetitions } from "../support/system/repetitions.ts";
import { fact, sessionOf, textOf } from "./calls.ts";
import type { Behaves } from "./host.ts";

/** Enough for a race with a probability of 2%. */
const ROUNDS = repetitions(300);

/** Allows everything. Calls `meanwhile` between the prompt and the answer. */
function allowing(meanwhile: (request: ApprovalRequest) => void = () => undefined): ApprovalPolicy {
  return {
    review: () => ({ type: "ask" }),
    ask: async (request) => {
      meanwhile(request);
      return { type: "allow" };
    },
  };
}

/** A command runs in the directory that was approved, or not at all. */
export function testSwappedWorkdirs(behaves: Behaves): void {
  const SWAPS: Record<string, (directory: string) => void> = {
    "for a symbolic link": (directory) => {
      renameSync(join(directory, "sub"), join(directory, "old"));
      symlinkSync("elsewhere", join(directory, "sub"));
    },
    "for another directory": (directory) => {
      renameSync(join(directory, "sub"), join(directory, "old"));
      renameSync(join(directory, "elsewhere"), join(directory, "sub"));
    },
    "together with its parent": (directory) => {
      mkdirSync(join(directory, "elsewhere", "below"));
      renameSync(join(directory, "sub"), join(directory, "old"));
      symlinkSync("elsewhere", join(directory, "sub"));
    },
  };
  for (const [how, swap] of Object.entries(SWAPS)) {
    const at: { directory: string } = { directory: "" };
    behaves(
      `a working directory that is swapped ${how} after its approval is rejected`,
      async ({ call, directory }) => {
        at.directory = directory;
        mkdirSync(join(directory, "sub", "below"), { recursive: true });
        mkdirSync(join(directory, "elsewhere"));
        const workdir = how === "together with its parent" ? "sub/below" : "sub";
        const output = await call("exec_command", { cmd: "pwd -P; touch ran", workdir, login: false });
        assert.equal(output.ok, false, output.text);
        assert.match(output.text, /^exec_command failed: cwd `.*`: directory changed since it was checked/);
      },
      { options: () => ({ approval: allowing(() => swap(at.directory)) }) },
    );
  }

  let approved = "";
  const judged: string[] = [];
  behaves(
    "a command runs only in the approved directory, even if the directory is swapped continuously",
    async ({ call, directory }) => {
      for (const name of ["sub", "elsewhere"]) {
        mkdirSync(join(directory, name));
        writeFileSync(join(directory, name, "name"), name);
      }
      const swapping = await call("exec_command", {
        cmd: "while :; do mv sub aside; ln -s elsewhere sub; rm sub; mv aside sub; done",
        yield_time_ms: 250,
        login: false,
      });
      let ran = 0;
      for (let round = 0; round < ROUNDS; round++) {
        const output = await call("exec_command", { cmd: "cat name", workdir: "sub", login: false });
        if (!output.ok) continue;
        ran++;
        // Under the one name or the other, `sub` and `aside` are the same directory.
        assert.equal(textOf(output), approved.endsWith("elsewhere") ? "elsewhere" : "sub", approved);
      }
      assert.ok(ran > 0, "no command ran at all");
      await call("kill_session", { session_id: sessionOf(swapping) });
    },
    {
      options: () => ({
        approval: allowing(({ workdir }) => {
          approved = workdir;
        }),
      }),
    },
  );

  behaves(
    "the default directory is resolved again before an unsandboxed command, if a sandboxed one may have swapped it",
    async ({ call, directory }) => {
      const home = join(directory, "home");
      const swap = `mv ${home} ${home}.old && ln -s /etc ${home}`;
      const swapped = await call("exec_command", { cmd: swap, workdir: directory });
      assert.equal(fact(swapped, "exit_code"), 0, swapped.text);
      const output = await call("exec_command", {
        cmd: "pwd -P",
        sandbox_permissions: "require_escalated",
        login: false,
      });
      assert.deepEqual([textOf(output), judged], ["/etc\n", ["/etc"]]);
    },
    {
      skip: noSandbox,
      options: (directory) => {
        mkdirSync(join(directory, "home"));
        judged.length = 0;
        return {
          cwd: join(directory, "home"),
          sandbox: { type: "bubblewrap", writableRoots: [directory], network: false },
          approval: {
            review: ({ kind }) => ({ type: kind === "command" ? "allow" : "ask" }),
            ask: async ({ workdir }) => {
              judged.push(workdir);
              return { type: "allow" };
            },
          },
        };
      },
    },
  );
}
