import assert from "node:assert/strict";
import { mkdtemp, readFile, rm, writeFile } from "node:fs/promises";
import { tmpdir } from "node:os";
import path from "node:path";
import { after, before, suite, test } from "node:test";
import { parse } from "csv-parse/sync";
import type { NewItem, NewJob } from "../../../src/fanout/job.ts";
import { PostgresStore } from "../../../src/fanout/ledger/postgres/postgres-store.ts";
import { DatabaseRoad } from "../../support/faults/database-proxy.ts";
import { report, startMockResponses } from "../../support/models/mock-responses.ts";
import { postgresMissing, startPostgres, type TestPostgres } from "../../support/servers/postgres.ts";
import { type CliRun, runCli, startCli } from "../../support/servers/run-cli.ts";
import { until } from "../../support/system/until.ts";
import { catTable } from "../fanout-harness.ts";

const missing = await postgresMissing();
if (missing && process.env.CI) throw new Error(missing);

suite("a database that is unavailable when a command starts", { skip: missing ?? false }, () => {
  let directory: string;
  let postgres: TestPostgres;
  before(async () => {
    directory = await mkdtemp(path.join(tmpdir(), "procwire-away-"));
    await writeFile(path.join(directory, "cats.csv"), catTable(20));
    postgres = await startPostgres();
  });
  after(async () => {
    await postgres.close();
    await rm(directory, { recursive: true, force: true, maxRetries: 10 });
  });

  /** How often a run has said that it waits. */
  const countOutageReports = (run: CliRun) =>
    run.stderr.split("\n").filter((line) => line.includes("waiting until")).length;

  test("fails the run after --outage-timeout, with the reason, and fails read-only commands at once", async () => {
    await using road = await DatabaseRoad.to(await postgres.createDatabase());
    await road.takeAway();
    const options = { cwd: directory, env: { OPENAI_BASE_URL: "http://127.0.0.1:1" } };
    const impatient = ["--database-url", road.url, "--outage-timeout", "1"];
    const worker = await runCli(["fanout", "worker", ...impatient], options);
    assert.equal(worker.code, 1);
    assert.match(worker.stderr, /waiting until it is back/);
    assert.match(worker.stderr, /the database cannot be used: the database has been away for \d+ s: .*ECONNREFUSED/);
    const list = await runCli(["jobs", "list", "--database-url", road.url], options);
    assert.equal(list.code, 1);
    assert.match(list.stderr, /the database cannot be used: .*ECONNREFUSED/);
    assert.doesNotMatch(list.stderr, /waiting/);
    const patient = startCli(["jobs", "list", ...impatient.with(-1, "60")], options);
    await until("the list to wait", () => countOutageReports(patient) === 1, patient.ended);
    await road.giveBack();
    assert.equal((await patient.ended).code, 0, patient.stderr);
  });

  test("ends the wait with exit code 130 on an interrupt", async () => {
    await using road = await DatabaseRoad.to(await postgres.createDatabase());
    await road.takeAway();
    const options = { cwd: directory, env: { OPENAI_BASE_URL: "http://127.0.0.1:1" } };
    const worker = startCli(["fanout", "worker", "--database-url", road.url], options);
    await until("the worker to wait", () => countOutageReports(worker) === 1, worker.ended);
    worker.child.kill("SIGINT");
    assert.equal((await worker.ended).code, 130, worker.stderr);
  });

  test("does not treat a wrong database name as an outage", async () => {
    const url = new URL(await postgres.createDatabase());
    url.pathname = "/elsewhere";
    const worker = await runCli(["fanout", "worker", "--database-url", url.href], {
      cwd: directory,
      env: { OPENAI_BASE_URL: "http://127.0.0.1:1" },
    });
    assert.equal(worker.code, 1);
    assert.match(worker.stderr, /database "elsewhere" does not exist/);
    assert.doesNotMatch(worker.stderr, /waiting/);
  });

  test("is awaited while a job is created, and one job is created", async () => {
    await using road = await DatabaseRoad.to(await postgres.createDatabase());
    const troubles: string[] = [];
    await using store = await PostgresStore.open({
      databaseUrl: road.url,
      onError: (error) => troubles.push(String(error)),
    });
    let tries = 0;
    const made = await store.withKey("key", new AbortController().signal, async () => {
      const first = tries++ === 0;
      async function* rows(): AsyncGenerator<NewItem, void, undefined> {
        yield { rowIndex: 0, itemId: "a", sourceId: null, row: { name: "a" } };
        if (!first) return;
        await road.takeAway();
        void until("the outage to be reported", () => troubles.some((one) => one.includes("waiting"))).then(() =>
          road.giveBack(),
        );
      }
      return store.create(NEW_JOB, rows(), () => ({ headers: ["name"], isReading: false }));
    });
    assert.equal(tries, 2);
    assert.deepEqual(
      (await store.list()).map(({ id, totalRows }) => ({ id, totalRows })),
      [{ id: made.id, totalRows: 1 }],
    );
  });

  test("is awaited by coordinator, worker and `jobs watch`, each reports it once, and every row is executed once", async () => {
    const url = await postgres.createDatabase();
    const mock = await startMockResponses((request) => report(request));
    const options = { cwd: directory, env: { OPENAI_BASE_URL: mock.url } };
    const runs: CliRun[] = [];
    const start = (...words: string[]) => {
      const run = startCli([...words, "--database-url", url], options);
      runs.push(run);
      return run;
    };
    await postgres.stop();
    try {
      const coordinator = start("fanout", "cats.csv", "--instruction", "{name}", "--output", "out.csv");
      const worker = start("fanout", "worker");
      const watch = start("jobs", "watch", "00000000");
      for (const run of runs)
        await until("the run to report that it waits", () => countOutageReports(run) > 0, run.ended);
      await postgres.start();
      const { code, stderr } = await coordinator.ended;
      assert.equal(code, 0, stderr);
      await until("the worker to be ready", () => worker.stderr.includes("worker ready"), worker.ended);
      worker.child.kill("SIGINT");
      assert.equal((await worker.ended).code, 130, worker.stderr);
      assert.match((await watch.ended).stderr, /unknown job/);
      for (const run of runs) {
        assert.equal(countOutageReports(run), 1, run.stderr);
        assert.match(run.stderr, /database: the database is back after \d+ s\n/);
      }
      const rows: { status: string }[] = parse(await readFile(path.join(directory, "out.csv"), "utf8"), {
        columns: true,
      });
      assert.deepEqual(
        rows.map(({ status }) => status),
        Array(20).fill("completed"),
      );
      assert.equal(mock.requests.length, 20);
    } finally {
      for (const run of runs) run.child.kill("SIGKILL");
      await Promise.all(runs.map((run) => run.ended));
      await mock.close();
    }
  });
});

const NEW_JOB: NewJob = {
  id: "00000000-0000-4000-8000-000000000001",
  key: "key",
  task: {
    instruction: "{name}",
    schema: null,
    model: "m",
    reasoningEffort: null,
    tools: "none",
    idColumn: null,
  },
  settings: { maxAttempts: 3, rowTimeoutMs: 60_000, rowLimit: null },
  inputPath: "in.csv",
  outputPath: "out.csv",
  createdAtMs: 1,
};
