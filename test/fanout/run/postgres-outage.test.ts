import assert from "node:assert/strict";
import { mkdtemp, readdir, readFile, rm, writeFile } from "node:fs/promises";
import { tmpdir } from "node:os";
import path from "node:path";
import { suite, test } from "node:test";
import { parse } from "csv-parse/sync";
import pg from "pg";
import { DatabaseRoad } from "../../support/faults/database-proxy.ts";
import { type MockResponses, report, startMockResponses } from "../../support/models/mock-responses.ts";
import { postgresMissing, startPostgres, type TestPostgres } from "../../support/servers/postgres.ts";
import { type CliRun, startCli } from "../../support/servers/run-cli.ts";
import { until } from "../../support/system/until.ts";
import { catTable } from "../fanout-harness.ts";

const ROWS = 40;
/** When any process of the fleet last had the engine look for workers without heartbeats. */
const LAST_LOOK = "SELECT extract(epoch FROM max(monitor_on)) AS at FROM procwire_queue.queue WHERE name LIKE 'job-%'";
const missing = await postgresMissing();
if (missing && process.env.CI) throw new Error(missing);

interface Fleet {
  directory: string;
  road: DatabaseRoad;
  postgres: TestPostgres;
  mock: MockResponses;
  /** Sends the delayed answers, and later ones at once. */
  answerAll(): void;
  query(sql: string): Promise<Record<string, unknown>[]>;
  runs: { coordinator: CliRun; worker: CliRun };
  /** Runs the same commands once more, after their processes were killed. */
  startAgain(): void;
  /** Kills one of the two, which is then no longer expected to end well. */
  kill(run: CliRun): Promise<void>;
}

/** Runs a coordinator and a worker, each with rows in flight whose answers are delayed. */
async function withFleet(disturb: (fleet: Fleet) => Promise<void>): Promise<void> {
  const directory = await mkdtemp(path.join(tmpdir(), "procwire-outage-"));
  const postgres = await startPostgres();
  const gate = Promise.withResolvers<void>();
  const mock = await startMockResponses(async (request) => {
    await gate.promise;
    return report(request);
  });
  const url = await postgres.createDatabase();
  await using road = await DatabaseRoad.to(url);
  const query = async (sql: string) => {
    const client = new pg.Client({ connectionString: url });
    await client.connect();
    const { rows } = await client.query<Record<string, unknown>>(sql);
    await client.end();
    return rows;
  };
  // A coordinator spools next to its output, a worker to the directory for temporary files.
  const options = { cwd: directory, env: { OPENAI_BASE_URL: mock.url, TMPDIR: directory } };
  const database = ["--database-url", road.url, "--concurrency", "4"];
  const runs: CliRun[] = [];
  const start = (args: string[]) => {
    const run = startCli(["fanout", ...args, ...database], options);
    runs.push(run);
    return run;
  };
  try {
    await writeFile(path.join(directory, "cats.csv"), catTable(ROWS));
    const startCoordinator = () => start(["cats.csv", "--instruction", "{name}", "--output", "out.csv"]);
    const startWorker = () => start(["worker", "--exit-when-idle"]);
    const coordinator = startCoordinator();
    await until("the coordinator's rows", () => mock.inFlight === 4, coordinator.ended);
    const worker = startWorker();
    await until("the worker's rows", () => mock.inFlight === 8, worker.ended);
    const fleet = new Set([coordinator, worker]);
    const kill = async (run: CliRun) => {
      fleet.delete(run);
      run.child.kill("SIGKILL");
      await run.ended;
    };

    await disturb({
      directory,
      road,
      postgres,
      mock,
      answerAll: gate.resolve,
      query,
      runs: { coordinator, worker },
      startAgain: () => {
        fleet.add(startWorker());
        fleet.add(startCoordinator());
      },
      kill,
    });

    for (const run of fleet) {
      const { code, stderr } = await run.ended;
      assert.equal(code, 0, stderr);
    }
    const rows: Record<string, string>[] = parse(await readFile(path.join(directory, "out.csv"), "utf8"), {
      columns: true,
    });
    assert.deepEqual(
      rows.map((row) => [row.item_id, row.status, row.attempt_count]),
      Array.from({ length: ROWS }, (_, index) => [`row-${index + 1}`, "completed", "1"]),
    );
    const executedIds = mock.requests.map((request) => request.item?.itemId);
    assert.equal(new Set(executedIds).size, ROWS);
    assert.equal(executedIds.length, ROWS, "no row is executed twice");
  } finally {
    for (const run of runs) run.child.kill("SIGKILL");
    await Promise.all(runs.map((run) => run.ended));
    await mock.close();
    await postgres.close();
    await rm(directory, { recursive: true, force: true, maxRetries: 10 });
  }
}

suite("a fleet during a database outage", { concurrency: 2, skip: missing ?? false }, () => {
  test("waits, finishes the rows that were answered meanwhile, and repeats no row", async () => {
    await withFleet(async ({ road, mock, answerAll, runs }) => {
      await road.takeAway();
      answerAll();
      await until("all answers to be given", () => mock.inFlight === 0);
      for (const run of [runs.coordinator, runs.worker]) {
        await until("the outage to be reported", () => /database: .*waiting/.test(run.stderr), run.ended);
      }
      await road.giveBack();
    });
  });

  test("keeps its rows over a crash and an outage longer than the heartbeat timeout", async () => {
    await withFleet(async ({ road, postgres, mock, answerAll, query, runs }) => {
      await road.takeAway();
      await postgres.stop();
      await postgres.start();
      // For the engine, the last heartbeats of the fleet are an hour old.
      await query("UPDATE procwire_queue.job SET heartbeat_on = heartbeat_on - interval '1 hour'");
      for (const run of [runs.coordinator, runs.worker]) {
        await until("the outage to be reported", () => /database: .*waiting/.test(run.stderr), run.ended);
      }
      await road.giveBack();
      for (const run of [runs.coordinator, runs.worker]) {
        await until("the end of the outage to be reported", () => /database is back/.test(run.stderr), run.ended);
      }
      // The engine looks for workers without heartbeats, and must not take a row from any worker.
      const looks = async () => Number((await query(LAST_LOOK))[0]?.at);
      const before = await looks();
      await until("the engine has looked", async () => (await looks()) > before, runs.coordinator.ended);
      assert.equal(mock.requests.length, 8);
      answerAll();
    });
  });

  test("loses no report if it is killed meanwhile: the next start applies the spooled reports", async () => {
    await withFleet(async ({ directory, postgres, mock, answerAll, runs, startAgain, kill }) => {
      const spooled = () => spooledReports(directory);
      await postgres.stop();
      answerAll();
      await until("all reports are spooled", async () => (await spooled()).length === 8, runs.worker.ended);
      for (const run of [runs.coordinator, runs.worker]) await kill(run);
      await postgres.start();
      assert.equal(mock.requests.length, 8);
      startAgain();
      await until("no report is spooled any more", async () => (await spooled()).length === 0);
    });
  });

  test("applies the reports of a killed process through another process of the machine", async () => {
    await withFleet(async ({ directory, postgres, mock, answerAll, query, runs, kill }) => {
      await postgres.stop();
      answerAll();
      await until(
        "all reports are spooled",
        async () => (await spooledReports(directory)).length === 8,
        runs.worker.ended,
      );
      await kill(runs.worker);
      assert.equal(mock.requests.length, 8);
      await postgres.start();
      // The rows of the dead worker are given to another one as soon as the engine looks.
      await query("UPDATE procwire_queue.job SET heartbeat_on = heartbeat_on - interval '1 hour'");
    });
  });

  test("continues when its sessions are ended repeatedly while rows finish", async () => {
    await withFleet(async ({ answerAll, query, runs, mock }) => {
      answerAll();
      const { ended } = runs.coordinator;
      for (let seen = 8; seen < ROWS; seen += 8) {
        await until(`${seen} rows to be executed`, () => mock.requests.length >= seen, ended);
        await query(
          "SELECT pg_terminate_backend(pid) FROM pg_stat_activity WHERE datname LIKE 'test%' AND pid <> pg_backend_pid()",
        );
      }
    });
  });
});

/** Returns the lines of the spool files. */
async function spooledReports(directory: string): Promise<string[]> {
  const names = (await readdir(directory)).filter((name) => name.startsWith(".procwire-reports-"));
  const texts = await Promise.all(names.map((name) => readFile(path.join(directory, name), "utf8").catch(() => "")));
  return texts.flatMap((text) => text.split("\n").filter((line) => line !== ""));
}
