import assert from "node:assert/strict";
import { mkdtemp, readFile, rm, writeFile } from "node:fs/promises";
import { tmpdir } from "node:os";
import path from "node:path";
import { suite, test } from "node:test";
import {
  type MockHandler,
  type MockResponses,
  report,
  says,
  startMockResponses,
} from "../support/models/mock-responses.ts";
import { type CliEnd, type CliRun, runCli, startCli } from "../support/servers/run-cli.ts";
import { runMain } from "../support/servers/run-main.ts";
import { until } from "../support/system/until.ts";
import { catTable } from "./fanout-harness.ts";

interface Setup {
  directory: string;
  mock: MockResponses;
  run(...args: string[]): Promise<CliEnd>;
  start(...args: string[]): CliRun;
  /** The id of the only job. */
  jobId(): Promise<string>;
}

async function withJobs(handler: MockHandler, body: (setup: Setup) => Promise<void>): Promise<void> {
  const directory = await mkdtemp(path.join(tmpdir(), "procwire-jobs-"));
  const mock = await startMockResponses(handler);
  const options = {
    cwd: directory,
    env: {
      OPENAI_BASE_URL: mock.url,
      PROCWIRE_HOME: path.join(directory, "home"),
      // The default time limit is too short for a busy machine.
      PROCWIRE_COMPLETION_TIMEOUT_MS: "60000",
    },
  };
  const run = (...args: string[]) => runCli(args, options);
  try {
    await writeFile(path.join(directory, "cats.csv"), catTable(4));
    await body({
      directory,
      mock,
      run,
      start: (...args) => startCli(args, options),
      jobId: async () => JSON.parse((await run("jobs", "list", "--json")).stdout).job_id,
    });
  } finally {
    await mock.close();
    await rm(directory, { recursive: true, force: true, maxRetries: 10 });
  }
}

const FANOUT = ["fanout", "cats.csv", "--instruction", "about {name}", "--output", "out.csv", "--max-attempts", "1"];

// Side by side, because each is mostly waiting for programs to start.
suite("procwire jobs", { concurrency: 3 }, () => {
  test("jobs are listed, shown, retried and exported", async () => {
    let willing = false;
    const handler: MockHandler = (request) =>
      willing || request.item?.itemId !== "row-2" ? report(request, { ok: 1 }) : says("no");
    await withJobs(handler, async ({ directory, mock, run, jobId }) => {
      assert.equal(
        (await run("jobs", "list")).stdout.trim(),
        "JOB  STATUS  DONE  FAILED  ROWS  TOKENS  COST  AGE  INPUT  INSTRUCTION",
      );
      assert.equal((await run(...FANOUT)).code, 1);
      const id = await jobId();
      const list = await run("jobs", "list");
      assert.match(
        list.stdout,
        new RegExp(`${id.slice(0, 8)}  completed_with_errors  3     1       4 .*  cats\\.csv  about \\{name\\}\n`),
      );

      const offered = await run("help", "--candidates", "jobs", "--json", "show");
      assert.equal(offered.stdout, `${id.slice(0, 8)}\tcompleted_with_errors: about {name}\n`);

      const show = await run("jobs", "show", id.slice(0, 8));
      assert.equal(show.code, 0, show.stderr);
      assert.match(show.stdout, /rows {6}3 completed, 1 failed, 0 running, 0 pending of 4/);
      assert.match(show.stdout, /failures {2}1 no_report \(\$0\.\d+\)\n {10}row-2: worker finished without calling/);
      const item = await run("jobs", "show", id, "--item", "row-2");
      assert.match(item.stdout, /item {6}row-2 \(row 2\)\nstatus {4}failed, 1 attempts\nerror {5}no_report: /);

      const errors = await run("jobs", "export", id, "--errors", "--output", "bad.csv");
      assert.equal(errors.code, 0, errors.stderr);
      assert.match(await readFile(path.join(directory, "bad.csv"), "utf8"), /cat_2,row-2,1,1,no_report,/);

      const none = await run("jobs", "retry", id, "--class", "timeout", "--no-run");
      assert.match(none.stderr, /0 failed rows are pending again/);
      willing = true;
      const retry = await run("jobs", "retry", id);
      assert.equal(retry.code, 0, retry.stderr);
      assert.match(retry.stderr, /1 failed rows are pending again\njob .* continues: 3 of 4 rows are finished/);
      // The row that answered with text got one reminder to report.
      assert.equal(mock.requests.length, 6);

      const exported = await run("jobs", "export", id, "--output", "again.csv", "--explode");
      assert.equal(exported.code, 0, exported.stderr);
      const table = await readFile(path.join(directory, "again.csv"), "utf8");
      assert.equal(table.trimEnd().split("\n").length, 5);
      assert.match(table, /,result\.ok\n/);
    });
  });

  test("rows of a sample are retried without executing the rest of the table", async () => {
    let isBroken = true;
    await withJobs(
      (request) => (isBroken && request.item?.itemId === "row-1" ? says("no") : report(request)),
      async ({ run, mock, jobId }) => {
        await run(...FANOUT, "--sample", "2");
        // The row that answered with text got one reminder to report.
        assert.equal(mock.requests.length, 3);
        const shown = await run("jobs", "show", await jobId());
        assert.match(shown.stdout, /1 completed, 1 failed, 0 running, 0 pending, 2 unsampled of 4\n/);
        isBroken = false;
        const retried = await run("jobs", "retry", await jobId(), "--item", "row-1");
        assert.equal(retried.code, 0, retried.stderr);
        assert.deepEqual(
          mock.requests.slice(3).map((request) => request.item?.itemId),
          ["row-1"],
        );
        const resumed = await run("jobs", "resume", await jobId());
        assert.equal(resumed.code, 0, resumed.stderr);
        assert.equal(mock.requests.length, 6);
      },
    );
  });

  test("a retry of one item executes only that item, and the counts add up to the table", async () => {
    let isBroken = true;
    const handler: MockHandler = (request) => {
      if (isBroken && request.item?.itemId === "row-1") return says("no");
      // The quota is exhausted after the second row; the first row got one reminder to report.
      return isBroken && request.index >= 3
        ? {
            type: "status",
            status: 429,
            body: { error: { code: "insufficient_quota", message: "no money" } },
          }
        : report(request);
    };
    await withJobs(handler, async ({ run, mock, jobId }) => {
      await run(...FANOUT, "--sample", "3", "--concurrency", "1");
      const id = await jobId();
      const before = await run("jobs", "show", id);
      assert.match(before.stdout, /rows {6}1 completed, 1 failed, 0 running, 1 pending, 1 unsampled of 4/);
      isBroken = false;
      const requestsBefore = mock.requests.length;
      const retried = await run("jobs", "retry", id, "--item", "row-1");
      assert.equal(retried.code, 0, retried.stderr);
      assert.deepEqual(
        mock.requests.slice(requestsBefore).map((request) => request.item?.itemId),
        ["row-1"],
      );
      const { stdout } = await run("jobs", "show", id, "--json");
      const summary = JSON.parse(stdout);
      assert.deepEqual(
        ["status", "completed_items", "failed_items", "pending_items", "unsampled_items"].map((key) => summary[key]),
        ["paused", 2, 0, 1, 1],
      );
      assert.match(summary.job_error, /the requested rows are finished; 1 other rows are left/);
      const resumed = await run("jobs", "resume", id);
      assert.equal(resumed.code, 0, resumed.stderr);
      assert.equal(mock.requests.length, requestsBefore + 3);
    });
  });

  test("a running job is watched to its end, and another process can cancel it", async () => {
    const hold = Promise.withResolvers<void>();
    const handler: MockHandler = async (request) => {
      if (request.item?.itemId !== "row-1") await hold.promise;
      return report(request);
    };
    await withJobs(handler, async ({ mock, run, start, jobId }) => {
      const running = start(...FANOUT, "--concurrency", "2");
      await until("three requests", () => mock.requests.length >= 3, running.ended);
      const id = await jobId();
      const twice = await run(...FANOUT);
      assert.equal(twice.code, 1);
      assert.match(twice.stderr, /is being run by another process; `procwire jobs watch/);
      const watching = start("jobs", "watch", id);
      await until("the job is watched", () => watching.stderr.includes("continues"), watching.ended);
      const cancel = await run("jobs", "cancel", id);
      assert.equal(cancel.code, 0, cancel.stderr);
      const ended = await running.ended;
      assert.equal(ended.code, 1, ended.stderr);
      assert.match(ended.stderr, /cancelled: 1 of 4 rows completed/);
      const watched = await watching.ended;
      assert.equal(watched.code, 1);
      assert.match(watched.stdout, /status {4}cancelled \(cancelled by the user\)/);

      assert.match((await run("jobs", "cancel", id)).stderr, /is cancelled and cannot be cancelled/);
      hold.resolve();
      const resumed = await run("jobs", "resume", id);
      assert.equal(resumed.code, 0, resumed.stderr);
      assert.equal((await run("jobs", "watch", id)).code, 0);
    });
  });

  test("`jobs watch` reports an interrupted job", async () => {
    await withJobs(
      () => ({ type: "hang" }),
      async ({ mock, run, start, jobId }) => {
        const running = start(...FANOUT);
        await until("a request", () => mock.requests.length >= 1, running.ended);
        running.child.kill("SIGKILL");
        await running.ended;
        const watched = await run("jobs", "watch", await jobId());
        assert.equal(watched.code, 1);
        assert.match(watched.stderr, /no process works on job [0-9a-f]{8}; `procwire jobs resume/);
      },
    );
  });

  test("a command that fails prints the reason in one line", async () => {
    const cases: [string[], number, RegExp][] = [
      [[], 2, /give a subcommand: list, show/],
      [["destroy"], 2, /unknown subcommand `destroy`; expected list, show/],
      [["show"], 2, /missing JOB; use `procwire jobs show JOB`/],
      [["rm"], 2, /missing JOB; use `procwire jobs rm JOB`/],
      [["rm", "12345678"], 1, /unknown job `12345678`; `procwire jobs list` shows them/],
      [["prune", "--older-than", "x"], 2, /invalid --older-than `x`; expected a number of days/],
      [["show", "12345678"], 1, /unknown job `12345678`; `procwire jobs list` shows them/],
      [["retry", "1", "--class", "bad"], 2, /unknown --class `bad`; expected rate_limit, timeout/],
    ];
    const outcomes = await runMain(
      cases.map(([args]) => ["jobs", ...args]),
      { cwd: tmpdir(), env: { PROCWIRE_HOME: path.join(tmpdir(), "procwire-no-such-home") } },
    );
    for (const [index, [, expected, message]] of cases.entries()) {
      const { code, stderr } = outcomes[index] ?? assert.fail("no outcome");
      assert.equal(code, expected, stderr);
      assert.match(stderr, message);
      assert.equal(stderr.trimEnd().split("\n").length, 1);
    }
  });
});
