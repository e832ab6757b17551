import assert from "node:assert/strict";
import { after, before, suite, test } from "node:test";
import pg from "pg";
import type { NewItem, NewJob } from "../../../src/fanout/job.ts";
import type { JobSettings } from "../../../src/fanout/job-settings.ts";
import type { JobLedger } from "../../../src/fanout/ledger/job-ledger.ts";
import { PostgresStore } from "../../../src/fanout/ledger/postgres/postgres-store.ts";
import { DatabaseRoad } from "../../support/faults/database-proxy.ts";
import { postgresMissing, startPostgres, type TestPostgres } from "../../support/servers/postgres.ts";
import { PLAIN_TASK } from "./store-contract.ts";

const missing = await postgresMissing();
if (missing && process.env.CI) throw new Error(missing);

const RACES = 40;
const SETTINGS: JobSettings = { maxAttempts: 3, rowTimeoutMs: 60_000, rowLimit: null };

function newJob(): NewJob {
  const id = crypto.randomUUID();
  return {
    id,
    key: id,
    task: PLAIN_TASK,
    settings: SETTINGS,
    inputPath: "in.csv",
    outputPath: "out.csv",
    createdAtMs: 1,
  };
}

async function* fourRows(): AsyncGenerator<NewItem> {
  for (let rowIndex = 0; rowIndex < 4; rowIndex++) {
    yield { itemId: `row-${rowIndex + 1}`, rowIndex, sourceId: null, row: { name: "cat" } };
  }
}

suite("processes with a shared database", { skip: missing ?? false }, () => {
  let postgres: TestPostgres;
  before(async () => {
    postgres = await startPostgres();
  });
  after(() => postgres.close());

  async function open(store: PostgresStore, jobId: string): Promise<JobLedger> {
    const ledger = await store.open(jobId);
    assert.ok(ledger);
    return ledger;
  }

  test("lease no more rows at the same moment than their common budget allows", async () => {
    const databaseUrl = await postgres.createDatabase();
    await using first = await PostgresStore.open({ databaseUrl });
    await using second = await PostgresStore.open({ databaseUrl });
    for (let race = 0; race < RACES; race++) {
      const job = newJob();
      await first.create(job, fourRows(), () => ({ headers: ["name"], isReading: false }));
      await using one = await open(first, job.id);
      await using other = await open(second, job.id);
      await one.acquireRun();
      await other.acquireRun({ join: true });
      // The cost of a row is unknown, so one row at a time starts.
      await one.setOptions({ settings: { ...SETTINGS, budget: { tokens: 1_000 } }, outputPath: "out.csv" });
      await one.setStatus("running", ["pending"]);
      const leases = await Promise.all([one.lease(2), other.lease(2)]);
      assert.equal(leases.flat().length, 1, `race ${race}`);
    }
  });

  test("send heartbeats first when the database is available again", async () => {
    const databaseUrl = await postgres.createDatabase();
    await using road = await DatabaseRoad.to(databaseUrl);
    // No heartbeat comes by its time.
    await using store = await PostgresStore.open({ databaseUrl: road.url, heartbeatSeconds: 3_600 });
    const job = newJob();
    await store.create(job, fourRows(), () => ({ headers: ["name"], isReading: false }));
    await using ledger = await open(store, job.id);
    await ledger.acquireRun();
    await ledger.setStatus("running", ["pending"]);
    assert.equal((await ledger.lease(2)).length, 2);
    const client = new pg.Client({ connectionString: databaseUrl });
    await client.connect();
    try {
      await client.query("UPDATE procwire_queue.job SET heartbeat_on = now() - interval '2 hours'");
      await road.takeAway();
      const listed = store.list();
      await road.giveBack();
      await listed;
      const { rows } = await client.query(
        "SELECT count(*) AS n FROM procwire_queue.job WHERE state = 'active' AND heartbeat_on > now() - interval '1 hour'",
      );
      assert.equal(Number(rows[0]?.n), 2);
    } finally {
      await client.end();
    }
  });
});
