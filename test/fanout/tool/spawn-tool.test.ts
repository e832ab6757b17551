import assert from "node:assert/strict";
import { mkdtemp, readdir, readFile, rm, writeFile } from "node:fs/promises";
import { tmpdir } from "node:os";
import path from "node:path";
import { suite, test } from "node:test";
import {
  answer,
  completed,
  created,
  functionCall,
  inputItems,
  type MockAnswer,
  type MockHandler,
  type MockRequest,
  type MockResponses,
  report,
  says,
  startMockResponses,
  toolOutputs,
} from "../../support/models/mock-responses.ts";
import { type CliEnd, runCli, startCli } from "../../support/servers/run-cli.ts";
import { until } from "../../support/system/until.ts";
import { catTable } from "../fanout-harness.ts";

interface Setup {
  directory: string;
  mock: MockResponses;
  exec(args: string[]): Promise<CliEnd>;
}

async function withExec(handler: MockHandler, body: (setup: Setup) => Promise<void>): Promise<void> {
  const directory = await mkdtemp(path.join(tmpdir(), "procwire-exec-"));
  const mock = await startMockResponses(handler);
  const env = { OPENAI_BASE_URL: mock.url, OPENAI_API_KEY: "dummy" };
  try {
    await body({
      directory,
      mock,
      exec: (args) => runCli(["exec", "-s", "danger-full-access", ...args], { cwd: directory, env }),
    });
  } finally {
    await mock.close();
    await rm(directory, { recursive: true, force: true, maxRetries: 10 });
  }
}

/** Answers as the test server of upstream Codex does: the main agent spawns once, row agents report, all others are done. */
function agentJobsResponder(spawnArguments: () => object): MockHandler {
  let seenMain = false;
  let calls = 0;
  return (request) => {
    const isToolResult = inputItems(request.body).some((item) => item.type === "function_call_output");
    if (isToolResult) return { type: "sse", events: [created("resp-tool"), completed({}, "resp-tool")] };
    if (request.item) {
      const { jobId, itemId } = request.item;
      const args = { job_id: jobId, item_id: itemId, result: { item_id: itemId } };
      return answer(functionCall(`call-worker-${calls++}`, "report_agent_job_result", args));
    }
    if (!seenMain) {
      seenMain = true;
      return answer(functionCall("call-spawn", "spawn_agents_on_csv", spawnArguments()));
    }
    return { type: "sse", events: [created("resp-default"), completed({}, "resp-default")] };
  };
}

const FANOUT = ["-c", "features.enable_fanout=true", "-c", "agents.max_threads=64", "--skip-git-repo-check"];
const PROMPT = "Use spawn_agents_on_csv on the provided CSV and do not do work yourself.";

// Side by side, because each is mostly waiting for programs to start.
suite("procwire exec with fan-out", { concurrency: 3 }, () => {
  test("exits after the job of spawn_agents_on_csv completes", async () => {
    let input = "";
    let output = "";
    const responder = agentJobsResponder(() => ({
      csv_path: input,
      instruction:
        "Write a playful 2-line poem about the cat named {name}. Return a JSON object with keys name and poem. Call report_agent_job_result exactly once and then stop.",
      output_csv_path: output,
      max_concurrency: 64,
    }));
    await withExec(responder, async ({ directory, mock, exec }) => {
      input = path.join(directory, "agent_jobs_input.csv");
      output = path.join(directory, "agent_jobs_output.csv");
      await writeFile(input, catTable(100));
      const { code, stderr } = await exec([...FANOUT, PROMPT]);
      assert.equal(code, 0, stderr);
      const lines = (await readFile(output, "utf8")).split("\n").filter((line) => line !== "");
      assert.equal(lines.length, 101);
      assert.equal(mock.requests.length, 102);
    });
  });

  /** The main agent calls the tool once and then repeats its output; row agents follow the given handler. */
  function spawning(
    args: object,
    worker: (request: MockRequest) => MockAnswer = (request) => report(request),
  ): MockHandler {
    return (request) => {
      if (request.item) return worker(request);
      const outputs = toolOutputs(request.body);
      return outputs.length === 0 ? answer(functionCall("s", "spawn_agents_on_csv", args)) : says(outputs[0] ?? "");
    };
  }

  test("the tool returns eight fields, and the output is next to the input", async () => {
    const args = { csv_path: "cats.csv", instruction: "{name}", id_column: "name", unknown_extra: 1 };
    await withExec(
      spawning(args, (request) => (request.item?.itemId === "cat_2" ? says("no") : report(request))),
      async ({ directory, exec }) => {
        await writeFile(path.join(directory, "cats.csv"), catTable(3));
        const { code, stdout, stderr } = await exec([...FANOUT, PROMPT]);
        assert.equal(code, 0, stderr);
        const summary = JSON.parse(stdout);
        assert.deepEqual(Object.keys(summary), [
          "job_id",
          "status",
          "output_csv_path",
          "total_items",
          "completed_items",
          "failed_items",
          "job_error",
          "failed_item_errors",
        ]);
        assert.equal(summary.status, "completed_with_errors");
        assert.deepEqual(summary.failed_item_errors, [
          {
            item_id: "cat_2",
            source_id: "cat_2",
            last_error: "worker finished without calling report_agent_job_result",
          },
        ]);
        const file = `cats.agent-job-${summary.job_id.slice(0, 8)}.csv`;
        assert.equal(path.basename(summary.output_csv_path), file);
        assert.ok((await readdir(directory)).includes(file));
        assert.match(stderr, /agent job [0-9a-f]{8} completed_with_errors: 2 of 3 rows completed, 1 failed/);
      },
    );
  });

  test("the JSON events hold the job and its rows, and the usage counts the workers", async () => {
    await withExec(spawning({ csv_path: "cats.csv", instruction: "{name}" }), async ({ directory, exec }) => {
      await writeFile(path.join(directory, "cats.csv"), catTable(5));
      const { code, stdout, stderr } = await exec([...FANOUT, "--json", PROMPT]);
      assert.equal(code, 0, stderr);
      assert.equal(stderr, "");
      const events = stdout
        .split("\n")
        .filter((line) => line !== "")
        .map((line) => JSON.parse(line));
      const types = events.map((event) => event.type);
      assert.deepEqual(types.slice(0, 4), ["thread.started", "turn.started", "item.started", "job.started"]);
      assert.equal(types.filter((type) => type === "row.completed").length, 5);
      assert.ok(types.includes("job.progress"));
      assert.equal(events.find((event) => event.type === "job.completed").completed_items, 5);
      assert.equal(types.filter((type) => type === "turn.completed").length, 1);
      assert.deepEqual(events.at(-1), {
        type: "turn.completed",
        usage: {
          input_tokens: 7,
          cached_input_tokens: 0,
          output_tokens: 7,
          reasoning_output_tokens: 0,
          cache_write_input_tokens: 0,
        },
        workers_usage: {
          input_tokens: 5,
          cached_input_tokens: 0,
          output_tokens: 5,
          reasoning_output_tokens: 0,
        },
      });
    });
  });

  test("wrong arguments go back to the model as text and start nothing", async () => {
    const wrong: [object, RegExp][] = [
      [{ csv_path: "cats.csv" }, /^failed to parse function arguments: instruction must be a string$/],
      [{ csv_path: "cats.csv", instruction: " " }, /^the instruction is empty/],
      [{ csv_path: "cats.csv", instruction: "{x}" }, /^unknown placeholder \{x\}/],
      [{ csv_path: "none.csv", instruction: "x" }, /^failed to read csv input none.csv: ENOENT/],
      [{ csv_path: "cats.csv", instruction: "x", id_column: "ID" }, /^id_column ID was not found in csv headers/],
      [
        { csv_path: "cats.csv", instruction: "x", max_concurrency: 2.5 },
        /^failed to parse function arguments: max_concurrency must be a whole number$/,
      ],
      [{ csv_path: "cats.csv", instruction: "x", max_runtime_seconds: 0 }, /^max_runtime_seconds must be at least 1$/],
    ];
    const handler: MockHandler = (request) => {
      const outputs = toolOutputs(request.body);
      if (outputs.length > 0) return says(JSON.stringify(outputs));
      return answer(...wrong.map(([args], index) => functionCall(`s${index}`, "spawn_agents_on_csv", args)));
    };
    await withExec(handler, async ({ directory, mock, exec }) => {
      await writeFile(path.join(directory, "cats.csv"), catTable(1));
      const { code, stdout } = await exec([...FANOUT, PROMPT]);
      assert.equal(code, 0);
      const outputs: string[] = JSON.parse(stdout);
      for (const [index, [, message]] of wrong.entries()) assert.match(outputs[index] ?? "", message);
      assert.equal(mock.requests.length, 2);
    });
  });

  test("a job that requests more concurrency than the cap reports its actual concurrency", async () => {
    const args = { csv_path: "cats.csv", instruction: "{name}", max_concurrency: 1000 };
    await withExec(spawning(args), async ({ directory, mock, exec }) => {
      await writeFile(path.join(directory, "cats.csv"), catTable(30));
      const { stderr } = await exec([...FANOUT, "-c", "agents.max_threads=3", PROMPT]);
      assert.match(stderr, /agent job concurrency: requested=1000 max_threads=3 effective=3/);
      assert.ok(mock.peakInFlight <= 3);
    });
  });

  test("agents of a job start jobs only if the depth allows it, and nested jobs do not deadlock", async () => {
    const args = { csv_path: "cats.csv", instruction: "outer {name}", max_concurrency: 2 };
    const inner = { csv_path: "cats.csv", instruction: "inner {name}", output_csv_path: "inner.csv" };
    const handler = spawning(args, (request) => {
      const outputs = toolOutputs(request.body);
      const text = JSON.stringify(request.body.input);
      if (text.includes("inner cat") || outputs.length > 0) return report(request, { saw: outputs[0] ?? "" });
      return answer(functionCall("n", "spawn_agents_on_csv", inner));
    });
    await withExec(handler, async ({ directory, exec }) => {
      await writeFile(path.join(directory, "cats.csv"), catTable(1));
      const flat = await exec([...FANOUT, PROMPT]);
      assert.equal(flat.code, 0, flat.stderr);
      const output = JSON.parse(flat.stdout).output_csv_path;
      assert.match(await readFile(output, "utf8"), /unsupported call: spawn_agents_on_csv/);

      const nested = await exec([
        ...FANOUT,
        "-c",
        "agents.max_depth=2",
        "-c",
        "agents.job_fresh=true",
        "-c",
        "agents.max_threads=1",
        PROMPT,
      ]);
      assert.equal(nested.code, 0, nested.stderr);
      assert.equal(JSON.parse(nested.stdout).completed_items, 1);
      assert.match(await readFile(path.join(directory, "inner.csv"), "utf8"), /,completed,1,/);
    });
  });

  test("an interrupt during a job writes its table, and the same call resumes the job", async () => {
    let slow = true;
    const args = {
      csv_path: "cats.csv",
      instruction: "{name}",
      output_csv_path: "out.csv",
      max_concurrency: 2,
    };
    const handler = spawning(args, (request) =>
      slow && !["row-1", "row-2"].includes(request.item?.itemId ?? "") ? { type: "hang" } : report(request),
    );
    await withExec(handler, async ({ directory, mock, exec }) => {
      await writeFile(path.join(directory, "cats.csv"), catTable(6));
      const env = { OPENAI_BASE_URL: mock.url, OPENAI_API_KEY: "dummy" };
      const run = startCli(["exec", "-s", "danger-full-access", ...FANOUT, PROMPT], { cwd: directory, env });
      await until("five requests", () => mock.requests.length >= 5, run.ended);
      run.child.kill("SIGINT");
      const { code, stderr } = await run.ended;
      assert.equal(code, 130, stderr);
      assert.match(stderr, /turn interrupted/);
      const table = await readFile(path.join(directory, "out.csv"), "utf8");
      assert.equal(table.match(/,completed,1,/g)?.length, 2);
      assert.equal(table.match(/,pending,0,/g)?.length, 4);
      const before = mock.requests.length;
      slow = false;
      const again = await exec([...FANOUT, PROMPT]);
      assert.equal(again.code, 0, again.stderr);
      assert.equal(mock.requests.length - before, 4 + 2);
    });
  });
});
