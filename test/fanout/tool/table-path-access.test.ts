import assert from "node:assert/strict";
import { mkdir, mkdtemp, readdir, readFile, rename, rm, symlink, writeFile } from "node:fs/promises";
import { tmpdir } from "node:os";
import path from "node:path";
import { suite, test } from "node:test";
import { createHttpModelApi } from "../../../src/agent/api/http-model-api.ts";
import { responsesDialect } from "../../../src/agent/api/responses-dialect.ts";
import { SqliteStore } from "../../../src/fanout/ledger/sqlite/sqlite-store.ts";
import { createRowCaller } from "../../../src/fanout/run/row-resources.ts";
import { createSpawnAgentsTool } from "../../../src/fanout/tool/spawn-tool.ts";
import { TablePathPolicy, tableAccess } from "../../../src/fanout/tool/table-path-access.ts";
import { availableSandboxes } from "../../../src/sandbox/sandbox-probe.ts";
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
  /** A directory of the same user that no sandbox grants. */
  outside: string;
  /** Lets the main agent call the tool once. Returns the tool's output and the number of model calls for rows. */
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
        {
          cwd: workspace,
          env: { OPENAI_BASE_URL: mock.url, OPENAI_API_KEY: "dummy", PROCWIRE_HOME: "state" },
        },
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
    await rm(root, { recursive: true, force: true, maxRetries: 10 });
  }
}

suite("spawn_agents_on_csv in a sandbox", { concurrency: 3, skip }, () => {
  test("an output outside of the workspace is rejected before any model call", async () => {
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
        "state/jobs/out.csv",
        "state/threads/out.csv",
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

  test("an output inside of the workspace is written, also to a new directory", async () => {
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

  test("a read-only run writes no file that the model names; its results are in the job directory", async () => {
    await inWorld(async ({ workspace, spawn }) => {
      const { said } = await spawn("read-only", { csv_path: "cats.csv", output_csv_path: "out.csv" });
      assert.match(said, /^output_csv_path .* may not be written: /);
      const summary = JSON.parse((await spawn("read-only", { csv_path: "cats.csv" })).said);
      const jobs = path.join(workspace, "state/jobs");
      assert.equal(summary.output_csv_path, path.join(jobs, summary.job_id, "results.csv"));
      assert.match(await readFile(summary.output_csv_path, "utf8"), /,completed,/);
      assert.deepEqual((await readdir(workspace)).sort(), ["cats.csv", "state"]);
    });
  });

  test("a directory that becomes a symbolic link during the run is not followed", async () => {
    let swap = async () => undefined as unknown;
    await inWorld(
      async ({ workspace, outside, spawn }) => {
        const directory = path.join(workspace, "results");
        await mkdir(directory);
        swap = async () => {
          swap = async () => undefined;
          await rename(directory, path.join(workspace, "moved"));
          await symlink(outside, directory);
        };
        const { said } = await spawn("workspace-write", {
          csv_path: "cats.csv",
          output_csv_path: "results/out.csv",
        });
        assert.match(said, /the directory was moved or replaced meanwhile; the file is in \S+\/moved;/);
        assert.deepEqual(await readdir(outside), ["secret.csv"]);
        assert.deepEqual(await readdir(path.join(workspace, "moved")), ["out.csv"]);
      },
      async (request) => {
        await swap();
        return report(request);
      },
    );
  });

  test("a directory that becomes a symbolic link between the check and the run is rejected", async () => {
    await inWorld(async ({ workspace, outside }) => {
      const directory = path.join(workspace, "results");
      await mkdir(directory);
      /** Replaces the directory after the tool has checked its path. */
      class SwappingStore extends SqliteStore {
        override async withKey<T>(key: string, signal: AbortSignal, task: () => Promise<T>): Promise<T> {
          await rename(directory, path.join(workspace, "moved"));
          await symlink(outside, directory);
          return super.withKey(key, signal, task);
        }
      }
      const mock = await startMockResponses((request) => report(request));
      const api = createHttpModelApi(responsesDialect, { baseUrl: mock.url, apiKey: "dummy" });
      const jobsHome = path.join(workspace, ".procwire/jobs");
      const tool = createSpawnAgentsTool({
        ...createRowCaller(api, { width: 1 }),
        context: { threadId: "t", turnId: "u", notify: () => undefined, addSubagentsUsage: () => undefined },
        cwd: workspace,
        access: tableAccess("workspace-write", workspace, false),
        store: new SwappingStore(jobsHome),
        jobsHome,
        model: "m",
        reasoningEffort: null,
        rowTools: "none",
        maxThreads: 1,
      });
      const args = { csv_path: "cats.csv", instruction: "{name}", output_csv_path: "results/out.csv" };
      const { text } = await tool.call(args);
      api.close();
      await mock.close();
      assert.match(text, /^write \S+out\.csv: it lies outside of the writable directories/);
      assert.equal(mock.requests.length, 0);
      assert.deepEqual(await readdir(outside), ["secret.csv"]);
    });
  });

  test("an output that becomes a symbolic link during the run is not written", async () => {
    let plant = async () => undefined as unknown;
    await inWorld(
      async ({ workspace, outside, spawn }) => {
        const victim = path.join(outside, "secret.csv");
        plant = async () => {
          plant = async () => undefined;
          await symlink(victim, path.join(workspace, "out.csv"));
        };
        const { said } = await spawn("workspace-write", { csv_path: "cats.csv", output_csv_path: "out.csv" });
        assert.match(said, /out\.csv: a symbolic link has this name; remove the link/);
        assert.equal(await readFile(victim, "utf8"), catTable(2));
        assert.deepEqual(await readdir(outside), ["secret.csv"]);
      },
      async (request) => {
        await plant();
        return report(request);
      },
    );
  });

  test("an unsandboxed run may use any path, like its commands", async () => {
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

test("a run with commands on a server has access to the local working directory only", async () => {
  const paths = new TablePathPolicy(tableAccess("none", "/workspace", true), "/workspace");
  assert.equal((await paths.checkOutput("out.csv")).type, "granted");
  assert.equal((await paths.checkOutput("/etc/out.csv")).type, "refused");
  assert.equal((await paths.checkInput("/etc/passwd")).type, "refused");
});

test("a table cannot replace a start-up file of a shell", async () => {
  const paths = new TablePathPolicy(tableAccess("workspace-write", "/workspace", false), "/workspace");
  for (const name of [".bash_profile", ".zshenv.zwc", ".config/fish/config.fish"])
    assert.equal((await paths.checkOutput(name)).type, "refused", name);
  assert.equal((await paths.checkOutput("profile.csv")).type, "granted");
});
