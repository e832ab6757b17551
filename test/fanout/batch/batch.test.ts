import assert from "node:assert/strict";
import { mkdtemp, readFile, rm, writeFile } from "node:fs/promises";
import { tmpdir } from "node:os";
import path from "node:path";
import { after, before, describe, test } from "node:test";
import { parse } from "csv-parse/sync";
import {
  type BatchStep,
  type MockBatches,
  type MockBatchesOptions,
  startMockBatches,
} from "../../support/models/mock-batches.ts";
import { answer, functionCall, inputItems, message, report } from "../../support/models/mock-responses.ts";
import { postgresMissing, startPostgres, type TestPostgres } from "../../support/servers/postgres.ts";
import { type CliEnd, runCli, startCli } from "../../support/servers/run-cli.ts";
import { selectCases } from "../../support/system/repetitions.ts";
import { skipUnless } from "../../support/system/skip-unless.ts";
import { until } from "../../support/system/until.ts";
import { catTable } from "../fanout-harness.ts";

const ROWS = 6;

/** A directory with a table, an API with batches, and the program. */
class BatchBench implements AsyncDisposable {
  readonly directory: string;
  readonly mock: MockBatches;
  readonly extra: readonly string[];

  private constructor(directory: string, mock: MockBatches, extra: readonly string[]) {
    this.directory = directory;
    this.mock = mock;
    this.extra = extra;
  }

  static async open(options: MockBatchesOptions, extra: readonly string[] = []): Promise<BatchBench> {
    const directory = await mkdtemp(path.join(tmpdir(), "procwire-batch-"));
    await writeFile(path.join(directory, "cats.csv"), catTable(ROWS));
    return new BatchBench(directory, await startMockBatches(options), extra);
  }

  get args(): string[] {
    return ["fanout", "cats.csv", "--instruction", "{name}", "--output", "out.csv", "--batch", ...this.extra];
  }

  get options() {
    return { cwd: this.directory, env: { OPENAI_BASE_URL: this.mock.url } };
  }

  run(...more: string[]): Promise<CliEnd> {
    return runCli([...this.args, ...more], this.options);
  }

  jobs(...args: string[]): Promise<CliEnd> {
    return runCli(["jobs", ...args, ...this.extra], this.options);
  }

  async output(): Promise<Record<string, string>[]> {
    return parse(await readFile(path.join(this.directory, "out.csv"), "utf8"), { columns: true });
  }

  /** How often each row was answered, by batches and single calls together. */
  answers(): Record<string, number> {
    const ids = [
      ...this.mock.answeredItems(),
      ...this.mock.single.requests.map((request) => request.item?.itemId ?? "?"),
    ];
    return Object.fromEntries([...Map.groupBy(ids, (id) => id)].map(([id, all]) => [id, all.length]));
  }

  async [Symbol.asyncDispose](): Promise<void> {
    await this.mock.close();
    await rm(this.directory, { recursive: true, force: true, maxRetries: 10 });
  }
}

const everyRowOnce = Object.fromEntries(Array.from({ length: ROWS }, (_, index) => [`row-${index + 1}`, 1]));

function assertComplete(rows: Record<string, string>[]): void {
  assert.deepEqual(
    rows.map((row) => [row.item_id, row.status, row.attempt_count]),
    Array.from({ length: ROWS }, (_, index) => [`row-${index + 1}`, "completed", "1"]),
  );
}

describe("a job with batches", { concurrency: 3 }, () => {
  test("answers one row by a single call and all others by one batch at half the cost", async () => {
    await using bench = await BatchBench.open({ handler: (request) => report(request) });
    const end = await bench.run("--model", "gpt-5", "--json");
    assert.equal(end.code, 0, end.stderr);
    assertComplete(await bench.output());
    assert.deepEqual(bench.answers(), everyRowOnce);
    assert.equal(bench.mock.batches.length, 1);
    assert.equal(bench.mock.single.requests.length, 1);
    const summary = JSON.parse(end.stdout.trimEnd().split("\n").at(-1) ?? "");
    // Each row has one input and one output token, at $1.25 and $10 per million; five of six rows cost half.
    assert.ok(Math.abs(summary.cost_usd - ((1 + 5 / 2) * 11.25) / 1e6) < 1e-12, `${summary.cost_usd}`);
    const shown = await bench.jobs("show", summary.job_id);
    assert.match(shown.stdout, /^batches {3}batch_1: 5 rows, done$/m);
  });

  test("repeats rows without a report by single calls and completes every row", async () => {
    await using bench = await BatchBench.open({
      handler: (request) => {
        const item = request.item?.itemId;
        if (request.path === "batch" && item === "row-3") return answer(message("I would rather talk."));
        if (request.path === "batch" && item === "row-4") {
          return answer(functionCall("c", "report_agent_job_result", { job_id: "x" }));
        }
        if (request.path === "batch" && item === "row-5") {
          return { type: "status", status: 500, body: { error: { message: "oops" } } };
        }
        return report(request);
      },
    });
    const end = await bench.run();
    assert.equal(end.code, 0, end.stderr);
    const rows = await bench.output();
    assert.deepEqual(
      rows.map((row) => [row.item_id, row.status, row.attempt_count]),
      [1, 1, 2, 2, 1, 1].map((attempts, index) => [`row-${index + 1}`, "completed", `${attempts}`]),
    );
    assert.deepEqual(bench.mock.single.requests.map((request) => request.item?.itemId).sort(), [
      "row-1",
      "row-3",
      "row-4",
      "row-5",
    ]);
    // The single call continues from the batch's answer and repairs it, instead of starting again.
    const steps = (itemId: string) => {
      const singleCall = bench.mock.single.requests.find((request) => request.item?.itemId === itemId);
      return inputItems(singleCall?.body ?? {}).map(({ type, role }) => [type, role].filter(Boolean).join(" "));
    };
    assert.deepEqual(steps("row-3"), ["message user", "message assistant", "message user"]);
    assert.deepEqual(steps("row-4"), ["message user", "function_call", "function_call_output"]);
    assert.deepEqual(steps("row-5"), ["message user"]);
  });

  for (const status of ["expired", "cancelled"] as const) {
    test(`applies the results of a batch that was ${status}, and leaves the other rows to single calls`, async () => {
      await using bench = await BatchBench.open({
        handler: (request) => report(request),
        fate: () => ({ status, answers: 2 }),
      });
      let end = await bench.run();
      if (status === "cancelled") {
        // The batch was cancelled at the provider: single calls cost twice as much, so they are not made without a command.
        assert.equal(end.code, 1);
        assert.match(end.stderr, /batch batch_1 was cancelled at the provider/);
        assert.equal(bench.mock.answeredItems().length, 2);
        end = await bench.run();
      }
      assert.equal(end.code, 0, end.stderr);
      assertComplete(await bench.output());
      assert.deepEqual(bench.answers(), everyRowOnce);
      assert.equal(bench.mock.batches.length, 1);
    });
  }

  test("repeats the rows of a failed batch by single calls", async () => {
    await using bench = await BatchBench.open({
      handler: (request) => report(request),
      fate: () => ({ status: "failed", errors: { code: "invalid_json_line", message: "line 1 is bad" } }),
    });
    const end = await bench.run("--json");
    assert.equal(end.code, 0, end.stderr);
    assertComplete(await bench.output());
    assert.equal(bench.mock.batches.length, 1);
    assert.equal(bench.mock.single.requests.length, ROWS);
  });

  test("submits a batch again if the provider had no capacity", async () => {
    await using bench = await BatchBench.open({
      handler: (request) => report(request),
      fate: (_, number) =>
        number === 0
          ? { status: "failed", errors: { code: "token_limit_exceeded", message: "Enqueued token limit" } }
          : {},
    });
    const end = await bench.run();
    assert.equal(end.code, 0, end.stderr);
    assertComplete(await bench.output());
    assert.equal(bench.mock.batches.length, 2);
    assert.equal(bench.mock.batches[0]?.fileId, bench.mock.batches[1]?.fileId);
    assert.equal(bench.mock.single.requests.length, 1);
  });

  test("resumes an open batch although the resuming command does not request batches", async () => {
    let isReady = false;
    await using bench = await BatchBench.open({
      handler: (request) => report(request),
      fate: () => (isReady ? {} : { status: "in_progress" }),
    });
    const run = startCli([...bench.args, "--json"], bench.options);
    await until("the batch is submitted", () => bench.mock.batches.length > 0, run.ended);
    run.child.kill("SIGINT");
    assert.equal((await run.ended).code, 130);
    isReady = true;
    const end = await runCli(
      bench.args.filter((arg) => arg !== "--batch"),
      bench.options,
    );
    assert.equal(end.code, 0, end.stderr);
    assertComplete(await bench.output());
    assert.deepEqual(bench.answers(), everyRowOnce);
  });

  test("cancels its batches at the provider when the job is cancelled", async () => {
    await using bench = await BatchBench.open({
      handler: (request) => report(request),
      fate: () => ({ status: "in_progress" }),
    });
    const run = startCli([...bench.args, "--json"], bench.options);
    await until("the batch is submitted", () => bench.mock.batches.length > 0, run.ended);
    const { job_id: jobId } = JSON.parse(run.stdout.split("\n")[0] ?? "");
    assert.equal((await bench.jobs("cancel", jobId)).code, 0);
    assert.equal((await run.ended).code, 1);
    assert.deepEqual(bench.mock.cancelled, ["batch_1"]);
  });

  test("submits no more rows than the budget allows, and pauses when it is exhausted", async () => {
    await using bench = await BatchBench.open({ handler: (request) => report(request) });
    // Each row uses two tokens. The first row measures that, and a quarter is reserved.
    const end = await bench.run("--budget", "8");
    assert.equal(end.code, 1);
    assert.match(end.stderr, /the budget of 8 tokens is used up/);
    const answered = Object.values(bench.answers()).reduce((sum, count) => sum + count, 0);
    assert.ok(answered >= 3 && answered <= 4, `${answered} rows were answered`);
  });

  test("estimates the cost of a row from rows that called the model, not from reused answers", async () => {
    await using bench = await BatchBench.open({ handler: (request) => report(request) });
    const table = path.join(bench.directory, "cats.csv");
    const single = await runCli(
      bench.args.filter((arg) => arg !== "--batch"),
      bench.options,
    );
    assert.equal(single.code, 0, single.stderr);
    await writeFile(table, catTable(4 * ROWS));
    const end = await bench.run("--budget", "8");
    assert.match(end.stderr, /the budget of 8 tokens is used up/);
    const answered = Object.values(bench.answers()).reduce((sum, count) => sum + count, 0) - ROWS;
    assert.ok(answered >= 3 && answered <= 4, `${answered} rows were answered`);
  });

  test("rejects --tools exec with exit code 2", async () => {
    await using bench = await BatchBench.open({ handler: (request) => report(request) });
    const tools = await bench.run("--tools", "exec");
    assert.equal(tools.code, 2);
    assert.match(tools.stderr, /a batch has one request per row/);
  });
});

type Moment = readonly [step: BatchStep, when: "arrived" | "done"];

const STEPS: readonly BatchStep[] = ["list files", "upload", "list batches", "create", "get", "download"];
const MOMENTS: readonly Moment[] = STEPS.flatMap((step): Moment[] => [
  [step, "arrived"],
  [step, "done"],
]);

function killAtEachMoment(moments: readonly Moment[], extra: () => Promise<readonly string[]>): void {
  for (const [step, when] of moments) {
    test(`submits nothing twice and has every row once after kill -9 at "${step}" (${when})`, async () => {
      const reached = Promise.withResolvers<void>();
      let isArmed = true;
      await using bench = await BatchBench.open(
        {
          handler: (request) => report(request),
          onStep: (at, moment) => {
            if (!isArmed || at !== step || moment !== when) return;
            isArmed = false;
            reached.resolve();
            return new Promise<void>(() => undefined);
          },
        },
        await extra(),
      );
      const killed = startCli(bench.args, bench.options);
      await Promise.race([reached.promise, killed.ended]);
      killed.child.kill("SIGKILL");
      assert.equal((await killed.ended).signal, "SIGKILL", killed.stderr);
      const end = await bench.run();
      assert.equal(end.code, 0, end.stderr);
      assert.equal(bench.mock.batches.length, 1);
      const uploads = [...bench.mock.files.values()].filter(({ name }) => name.startsWith("procwire-"));
      assert.equal(uploads.length, 1);
      assertComplete(await bench.output());
      assert.deepEqual(bench.answers(), everyRowOnce);
    });
  }
}

describe("a job with batches on SQLite", { concurrency: 3 }, () => {
  const few: readonly Moment[] = [
    ["upload", "arrived"],
    ["upload", "done"],
    ["create", "arrived"],
    ["create", "done"],
    ["download", "done"],
  ];
  killAtEachMoment(selectCases(MOMENTS, few), async () => []);
});

const missing = await postgresMissing();

describe("a job with batches on Postgres", {
  concurrency: 3,
  skip: skipUnless(missing === null, missing ?? ""),
}, () => {
  let postgres: TestPostgres;
  before(async () => {
    postgres = await startPostgres();
  });
  after(() => postgres.close());
  const few: readonly Moment[] = [
    ["create", "arrived"],
    ["create", "done"],
  ];
  killAtEachMoment(selectCases(MOMENTS, few), async () => ["--database-url", await postgres.createDatabase()]);
});
