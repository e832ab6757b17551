import assert from "node:assert/strict";
import { mkdtemp, readFile, rm, writeFile } from "node:fs/promises";
import { tmpdir } from "node:os";
import path from "node:path";
import { test } from "node:test";
import { parse } from "csv-parse/sync";
import { report, startMockResponses } from "../../support/models/mock-responses.ts";
import { postgresMissing, startPostgres } from "../../support/servers/postgres.ts";
import { type CliRun, runCli, startCli } from "../../support/servers/run-cli.ts";
import { until } from "../../support/system/until.ts";
import { catTable } from "../fanout-harness.ts";

const ROWS = 60;
const missing = await postgresMissing();

export function killOneOfThreeWorkers(): void {
  test("a job of three workers loses no row and repeats no reported row when one is killed with -9", {
    skip: missing ?? false,
  }, async () => {
    const directory = await mkdtemp(path.join(tmpdir(), "procwire-workers-"));
    const postgres = await startPostgres();
    const open = Promise.withResolvers<void>();
    const mock = await startMockResponses(async (request) => {
      await open.promise;
      return report(request);
    });
    // The worker to be killed gets a model that never answers, so that it certainly holds rows.
    const tarPit = await startMockResponses(() => ({ type: "hang" }));
    const url = await postgres.createDatabase();
    const database = ["--database-url", url, "--heartbeat", "10"];
    const worker = (base: string) =>
      startCli(["fanout", "worker", ...database, "--concurrency", "4", "--exit-when-idle"], {
        cwd: directory,
        env: { OPENAI_BASE_URL: base },
      });
    const runs: CliRun[] = [];
    try {
      await writeFile(path.join(directory, "cats.csv"), catTable(ROWS));
      const args = ["fanout", "cats.csv", "--instruction", "{name}", "--output", "out.csv", ...database];
      const options = { cwd: directory, env: { OPENAI_BASE_URL: mock.url } };
      const first = startCli([...args, "--concurrency", "2", "--json"], options);
      runs.push(first);
      await until("two requests", () => mock.requests.length >= 2, first.ended);
      const doomed = worker(tarPit.url);
      const others = [worker(mock.url), worker(mock.url)];
      runs.push(doomed, ...others);
      await until(
        "all workers ask",
        () => tarPit.requests.length >= 4 && mock.requests.length >= 10,
        Promise.race([doomed.ended, first.ended]),
      );
      doomed.child.kill("SIGKILL");
      await doomed.ended;
      open.resolve();

      const { code, stdout, stderr } = await first.ended;
      assert.equal(code, 0, stderr);
      for (const other of others) {
        const end = await other.ended;
        assert.equal(end.code, 0, end.stderr);
        assert.match(end.stderr, /working on job [0-9a-f]{8}\n[\s\S]*rows of job [0-9a-f]{8} done here/);
      }

      const rows: Record<string, string>[] = parse(await readFile(path.join(directory, "out.csv"), "utf8"), {
        columns: true,
      });
      assert.deepEqual(
        rows.map((row) => [row.item_id, row.status, row.attempt_count]),
        Array.from({ length: ROWS }, (_, index) => [`row-${index + 1}`, "completed", "1"]),
      );
      // Every row was answered once; the rows of the dead worker had one more request without a report.
      const answered = mock.requests.map((request) => request.item?.itemId);
      assert.equal(answered.length, ROWS);
      assert.equal(new Set(answered).size, ROWS);
      assert.equal(tarPit.requests.length, 4);
      const events = stdout
        .trimEnd()
        .split("\n")
        .map((line) => JSON.parse(line));
      assert.equal(events.filter((event) => event.type === "row.completed").length, ROWS);

      const again = await runCli(args, options);
      assert.equal(again.code, 0, again.stderr);
      assert.equal(mock.requests.length, ROWS);
      const list = await runCli(["jobs", "list", "--database-url", url], options);
      assert.match(list.stdout, /completed {2}60 /);
    } finally {
      for (const run of runs) run.child.kill("SIGKILL");
      await Promise.all(runs.map((run) => run.ended));
      await Promise.all([mock.close(), tarPit.close()]);
      await postgres.close();
      await rm(directory, { recursive: true, force: true, maxRetries: 10 });
    }
  });
}
