import assert from "node:assert/strict";
import { mkdir, mkdtemp, readdir, readFile, rename, rm, symlink, writeFile } from "node:fs/promises";
import { tmpdir } from "node:os";
import path from "node:path";
import { suite, test } from "node:test";
import { TablePaths, tableAccess } from "../../../src/fanout/tool/table-path-access.ts";
import { availableSandboxes } from "../../../src/sandbox/sandbox-probe.ts";
import type { ApprovalRequest } from "../../../src/tools/policy/approval.ts";
import {
  answer,
  functionCall,
  type MockAnswer,
  type MockRequest,
  report,
  says,
  startMockResponses,
  toolOutputs,
} from "../../support/models/mock-responses.ts";
import { runCli } from "../../support/servers/run-cli.ts";
import { catTable } from "../fanout-harness.ts";

const skip = availableSandboxes().includes("bubblewrap") ? false : "bubblewrap is not installed here";
if (skip && process.env.CI) throw new Error(skip);

interface World {
  /** The working directory of the run. */
  workspace: string;
  /** A folder of the same user that no sandbox grants. */
  outside: string;
  /** Lets the main agent call the tool once; returns the tool's output, and how many rows were asked. */
  spawn(sandbox: string, args: object): Promise<{ said: string; rowsAsked: number }>;
}

async function inWorld(
  body: (world: World) => Promise<void>,
  rowAgent: (request: MockRequest) => MockAnswer | Promise<MockAnswer> = (request) => report(request),
): Promise<void> {
  const root = await mkdtemp(path.join(tmpdir(), "procwire-access-"));
  const workspace = path.join(root, "workspace");
  const outside = path.join(root, "outside");
  await mkdir(workspace);
  await mkdir(outside);
  await writeFile(path.join(workspace, "cats.csv"), catTable(2));
  await writeFile(path.join(outside, "secret.csv"), catTable(2));
  const spawn: World["spawn"] = async (sandbox, args) => {
    let rowsAsked = 0;
    const mock = await startMockResponses((request) => {
      if (request.item) {
        rowsAsked++;
        return rowAgent(request);
      }
      const [output] = toolOutputs(request.body);
      if (output !== undefined) return says(output);
      return answer(functionCall("s", "spawn_agents_on_csv", { instruction: "{name}", ...args }));
    });
    try {
      const { code, stdout, stderr } = await runCli(
        ["exec", "-c", "features.enable_fanout=true", "--sandbox", sandbox, "do it"],
        { cwd: workspace, env: { OPENAI_BASE_URL: mock.url, OPENAI_API_KEY: "dummy" } },
      );
      assert.equal(code, 0, stderr);
      return { said: stdout.trim(), rowsAsked };
    } finally {
      await mock.close();
    }
  };
  try {
    await body({ workspace, outside, spawn });
  } finally {
    await rm(root, { recursive: true, force: true });
  }
}

suite("spawn_agents_on_csv behind walls", { concurrency: 3, skip }, () => {
  test("an output outside of the workspace is refused before any row is asked", async () => {
    await inWorld(async ({ workspace, outside, spawn }) => {
      await mkdir(path.join(workspace, ".git/hooks"), { recursive: true });
      await symlink(outside, path.join(workspace, "link"));
      await symlink(path.join(outside, "planted.csv"), path.join(workspace, "dangling.csv"));
      const outputs = [
        path.join(outside, "out.csv"),
        "../outside/out.csv",
        "link/out.csv",
        "link/new/folder/out.csv",
        "dangling.csv",
        ".git/hooks/post-checkout",
      ];
      for (const output of outputs) {
        const { said, rowsAsked } = await spawn("workspace-write", {
          csv_path: "cats.csv",
          output_csv_path: output,
        });
        assert.match(said, /^output_csv_path .* may not be written: /, output);
        assert.equal(rowsAsked, 0, output);
      }
      assert.deepEqual(await readdir(outside), ["secret.csv"]);
      assert.deepEqual(await readdir(path.join(workspace, ".git/hooks")), []);
    });
  });

  test("an output inside of the workspace is written, also in a new folder", async () => {
    await inWorld(async ({ workspace, spawn }) => {
      const { said } = await spawn("workspace-write", {
        csv_path: "cats.csv",
        output_csv_path: "results/out.csv",
      });
      assert.equal(JSON.parse(said).completed_items, 2);
      assert.match(await readFile(path.join(workspace, "results/out.csv"), "utf8"), /,completed,/);
    });
  });

  test("a table outside of the workspace is not read", async () => {
    await inWorld(async ({ workspace, outside, spawn }) => {
      await symlink(path.join(outside, "secret.csv"), path.join(workspace, "innocent.csv"));
      for (const input of [path.join(outside, "secret.csv"), "innocent.csv"]) {
        const { said, rowsAsked } = await spawn("workspace-write", { csv_path: input });
        assert.match(said, /^csv_path .* may not be read: /, input);
        assert.equal(rowsAsked, 0);
      }
    });
  });

  test("a read-only run writes no file that the model names; its results are in the job's folder", async () => {
    await inWorld(async ({ workspace, spawn }) => {
      const { said } = await spawn("read-only", { csv_path: "cats.csv", output_csv_path: "out.csv" });
      assert.match(said, /^output_csv_path .* may not be written: /);
      const summary = JSON.parse((await spawn("read-only", { csv_path: "cats.csv" })).said);
      const jobs = path.join(workspace, ".procwire/jobs");
      assert.equal(summary.output_csv_path, path.join(jobs, summary.job_id, "results.csv"));
      assert.match(await readFile(summary.output_csv_path, "utf8"), /,completed,/);
      assert.deepEqual((await readdir(workspace)).sort(), [".procwire", "cats.csv"]);
    });
  });

  test("a folder that is swapped for a link while rows are worked on is not followed", async () => {
    let swap = async () => undefined as unknown;
    await inWorld(
      async ({ workspace, outside, spawn }) => {
        const folder = path.join(workspace, "results");
        await mkdir(folder);
        swap = async () => {
          swap = async () => undefined;
          await rename(folder, path.join(workspace, "moved"));
          await symlink(outside, folder);
        };
        const { said } = await spawn("workspace-write", {
          csv_path: "cats.csv",
          output_csv_path: "results/out.csv",
        });
        assert.match(said, /may not be written/);
        assert.deepEqual(await readdir(outside), ["secret.csv"]);
      },
      async (request) => {
        await swap();
        return report(request);
      },
    );
  });

  test("without walls a path may lie anywhere, as for the commands of the same run", async () => {
    await inWorld(async ({ outside, spawn }) => {
      const output = path.join(outside, "out.csv");
      const { said } = await spawn("none", {
        csv_path: path.join(outside, "secret.csv"),
        output_csv_path: output,
      });
      assert.equal(JSON.parse(said).output_csv_path, output);
      assert.match(await readFile(output, "utf8"), /,completed,/);
    });
  });
});

test("a path outside of the workspace needs the approval of the policy, and is used when it is given", async () => {
  const asked: ApprovalRequest[] = [];
  const paths = new TablePaths(tableAccess("workspace-write", "/workspace", false), "/workspace", {
    review: (request) => {
      asked.push(request);
      return request.cmd.includes("secret") ? { type: "refuse", reason: "never" } : { type: "allow" };
    },
    ask: async () => ({ type: "refuse", reason: "nobody is there" }),
  });
  const { signal } = new AbortController();
  assert.deepEqual(await paths.judgeOutput("/elsewhere/out.csv", signal), {
    type: "granted",
    path: "/elsewhere/out.csv",
  });
  assert.equal(await paths.refusalOf("/elsewhere"), null);
  assert.equal((await paths.judgeInput("/elsewhere/in.csv", signal)).type, "granted");
  assert.equal((await paths.judgeOutput("/elsewhere/secret/out.csv", signal)).type, "refused");
  assert.deepEqual(
    asked.map(({ kind, cmd }) => [kind, cmd]),
    [
      ["unsandboxed", "spawn_agents_on_csv: write /elsewhere/out.csv"],
      ["unsandboxed", "spawn_agents_on_csv: read /elsewhere/in.csv"],
      ["unsandboxed", "spawn_agents_on_csv: write /elsewhere/secret/out.csv"],
    ],
  );
});

test("a run whose commands run on a server has the working directory of this machine and no more", async () => {
  const paths = new TablePaths(tableAccess("none", "/workspace", true), "/workspace");
  const { signal } = new AbortController();
  assert.equal((await paths.judgeOutput("out.csv", signal)).type, "granted");
  assert.equal((await paths.judgeOutput("/etc/out.csv", signal)).type, "refused");
  assert.equal((await paths.judgeInput("/etc/passwd", signal)).type, "refused");
});
