import assert from "node:assert/strict";
import { mkdtemp, readdir, rm } from "node:fs/promises";
import { tmpdir } from "node:os";
import path from "node:path";
import { after, before, test } from "node:test";
import { setImmediate as nextTurn } from "node:timers/promises";
import pg from "pg";
import { NO_USAGE } from "../../../../src/agent/token-usage.ts";
import { systemClock } from "../../../../src/async/clock.ts";
import { OutageRetry } from "../../../../src/async/outage-retry.ts";
import type { ItemLease, JobLedger } from "../../../../src/fanout/ledger/job-ledger.ts";
import { isLostConnection } from "../../../../src/fanout/ledger/postgres/connection-loss.ts";
import { PostgresDatabase } from "../../../../src/fanout/ledger/postgres/postgres-database.ts";
import { COMPLETE_ITEM, READ_FINISHED_BY } from "../../../../src/fanout/ledger/postgres/postgres-statements.ts";
import { PostgresStore } from "../../../../src/fanout/ledger/postgres/postgres-store.ts";
import { usageValues } from "../../../../src/fanout/ledger/record-codec.ts";
import { postgresMissing, startPostgres, type TestPostgres } from "../../../support/servers/postgres.ts";
import { until } from "../../../support/system/until.ts";
import { seededRandom } from "../../run/rate-simulation.ts";
import { PLAIN_TASK, storeContract } from "../store-contract.ts";

const missing = await postgresMissing();
if (missing) {
  test("Postgres store contract", { skip: missing }, () => undefined);
} else {
  let server: TestPostgres;
  let url: string;
  before(async () => {
    server = await startPostgres();
    url = await server.createDatabase();
  });
  after(() => server.close());

  const query = async (sql: string, values: unknown[] = []) => {
    const client = new pg.Client({ connectionString: url });
    await client.connect();
    try {
      return (await client.query(sql, values)).rows;
    } finally {
      await client.end();
    }
  };

  /** Backdates the last heartbeat of a job's rows, and waits until the engine has released them. */
  async function silence(jobId: string): Promise<void> {
    const queue = `job-${jobId}`;
    await query(
      "UPDATE procwire_queue.job SET heartbeat_on = now() - interval '1 hour' WHERE name = $1 AND state = 'active'",
      [queue],
    );
    const active = () => query("SELECT 1 FROM procwire_queue.job WHERE name = $1 AND state = 'active'", [queue]);
    await until("the engine releases the rows", async () => (await active()).length === 0);
  }

  /** The first statement is carried out, but its answer never arrives. */
  function answerLost(pool: pg.Pool): pg.Pool {
    let isLost = false;
    const query = pool.query.bind(pool);
    Object.assign(pool, {
      query: async (text: string, values: unknown[]) => {
        const result = await query(text, values);
        if (isLost) return result;
        isLost = true;
        throw new Error("Connection terminated unexpectedly");
      },
    });
    return pool;
  }

  storeContract("postgres", async () => {
    const store = await PostgresStore.open({ databaseUrl: url, monitorSeconds: 1 });
    return {
      store,
      pass: (ms) => new Promise((wake) => setTimeout(wake, ms)),
      async afterDeath(ledger) {
        await ledger.releaseRun();
        await silence(ledger.jobId);
        const reopened = await store.open(ledger.jobId);
        assert.ok(reopened);
        return reopened;
      },
      close: () => store[Symbol.asyncDispose](),
    };
  });

  async function startedJob(store: PostgresStore, rows: number): Promise<JobLedger> {
    const items = async function* () {
      for (let index = 0; index < rows; index++) {
        yield { itemId: `row-${index + 1}`, rowIndex: index, sourceId: "a\0b", row: { name: "x\0y" } };
      }
    };
    const job = await store.create(
      {
        id: crypto.randomUUID(),
        key: crypto.randomUUID(),
        task: PLAIN_TASK,
        settings: { maxAttempts: 3, rowTimeoutMs: 1, rowLimit: null },
        inputPath: "a",
        outputPath: "b",
        createdAtMs: Date.now(),
      },
      items(),
      () => ({ headers: ["name"], isReading: false }),
    );
    const ledger = await store.open(job.id);
    assert.ok(ledger);
    await ledger.acquireRun();
    await ledger.setStatus("running", ["pending"]);
    return ledger;
  }

  test("delivers the rows of a run whose queue the process that finished the run before removed", async () => {
    await using store = await PostgresStore.open({ databaseUrl: url });
    await using other = await PostgresStore.open({ databaseUrl: url });
    const finisher = await startedJob(other, 3);
    const ledger = await store.open(finisher.jobId);
    assert.ok(ledger);
    await ledger.acquireRun({ join: true });
    // The finishing process removes the queue after the next run has begun.
    await finisher.setStatus("completed", ["running"]);
    await ledger.setStatus("running", ["completed"]);
    const leased = await ledger.lease(10);
    assert.deepEqual(leased.map(({ item }) => item.itemId).toSorted(), ["row-1", "row-2", "row-3"]);
    for (const run of [ledger, finisher]) await run.releaseRun();
  });

  test("two processes that run the same job never get the same row", async () => {
    await using first = await PostgresStore.open({ databaseUrl: url, monitorSeconds: 1 });
    await using second = await PostgresStore.open({ databaseUrl: url, monitorSeconds: 1 });
    const ledger = await startedJob(first, 40);
    const other = await second.open(ledger.jobId);
    assert.ok(other);
    await other.acquireRun({ join: true });
    const leases = (await Promise.all([ledger, other, ledger, other].map((one) => one.lease(10)))).flat();
    assert.equal(new Set(leases.map((lease) => lease.item.itemId)).size, leases.length);
    assert.ok(leases.length >= 20);
    await ledger.releaseRun();
    await other.releaseRun();
  });

  test("a finished row that the engine still delivers is dropped before a model call", async () => {
    await using store = await PostgresStore.open({ databaseUrl: url, monitorSeconds: 1 });
    const ledger = await startedJob(store, 2);
    await query("UPDATE procwire.agent_job_items SET status = 'completed' WHERE job_id = $1 AND row_index = 0", [
      ledger.jobId,
    ]);
    assert.deepEqual(
      (await ledger.lease(2)).map((lease) => lease.item.itemId),
      ["row-2"],
    );
    const left = await query("SELECT 1 FROM procwire_queue.job WHERE name = $1 AND state < 'active'", [
      `job-${ledger.jobId}`,
    ]);
    assert.equal(left.length, 0);
    await ledger.releaseRun();
  });

  test("a worker without heartbeats can no longer report", async () => {
    await using store = await PostgresStore.open({ databaseUrl: url, monitorSeconds: 1 });
    const ledger = await startedJob(store, 1);
    const [late] = await ledger.lease(1);
    assert.ok(late);
    await ledger.releaseRun();
    await silence(ledger.jobId);
    const other = await store.open(ledger.jobId);
    assert.ok(other);
    await other.acquireRun({ join: true });
    const [now] = await other.lease(1);
    assert.ok(now);
    const report = { result: "{}", usage: NO_USAGE, stop: false };
    assert.equal(await ledger.complete(late, report), null);
    assert.ok(await other.complete(now, report));
    await other.releaseRun();
  });

  test("hundreds of rows of a worker that stalls past its lease finish once each", async () => {
    const rows = 300;
    await using stalledStore = await PostgresStore.open({ databaseUrl: url, monitorSeconds: 1 });
    await using otherStore = await PostgresStore.open({ databaseUrl: url, monitorSeconds: 1 });
    const stalled = await startedJob(stalledStore, rows);
    const late = await stalled.lease(rows);
    assert.equal(late.length, rows);
    await silence(stalled.jobId);
    const other = await otherStore.open(stalled.jobId);
    assert.ok(other);
    await other.acquireRun({ join: true });
    const taken = await leaseAll(other, rows);
    const random = seededRandom(15);
    const settle = async (ledger: JobLedger, lease: ItemLease, who: string): Promise<string[]> => {
      for (let turns = Math.floor(random() * 4); turns > 0; turns--) await nextTurn();
      const way = random();
      if (way < 0.2) {
        const failure = { errorClass: "no_report", message: who, usage: NO_USAGE } as const;
        return (await ledger.fail(lease, failure)) ? [`${who} failed`] : [];
      }
      // A worker that releases its row settles nothing: the other one's report must still count.
      if (way < 0.3 && who === "late") {
        await ledger.release(lease, NO_USAGE);
        return [];
      }
      const report = { result: JSON.stringify({ who }), usage: NO_USAGE, stop: false };
      return (await ledger.complete(lease, report)) ? [`${who} completed`] : [];
    };
    const ends = await Promise.all(
      late.map(async (lease) => {
        const again = taken.get(lease.item.itemId);
        assert.ok(again, `${lease.item.itemId} was given to the other worker`);
        const both = [() => settle(stalled, lease, "late"), () => settle(other, again, "other")];
        if (random() < 0.5) both.reverse();
        return (await Promise.all(both.map((act) => act()))).flat();
      }),
    );
    assert.deepEqual(
      ends.filter((end) => end.length !== 1),
      [],
      "every row has one end",
    );
    const counts = await other.counts();
    assert.equal(counts.completed + counts.failed, rows);
    const repeatedRows = await query(
      "SELECT row_index FROM procwire.agent_job_attempts WHERE job_id = $1 AND outcome IN ('reported', 'failed') GROUP BY row_index HAVING COUNT(*) > 1",
      [stalled.jobId],
    );
    assert.deepEqual(repeatedRows, []);
    await stalled.releaseRun();
    await other.releaseRun();
  });

  /** Rows are delivered when the engine has noticed that their worker's heartbeat stopped. */
  async function leaseAll(ledger: JobLedger, rows: number): Promise<Map<string, ItemLease>> {
    const leases = new Map<string, ItemLease>();
    await until("every row is given out again", async () => {
      for (const lease of await ledger.lease(rows)) leases.set(lease.item.itemId, lease);
      return leases.size === rows;
    });
    return leases;
  }

  test("a row that the engine delivers again continues in the process that still works on it", async () => {
    await using store = await PostgresStore.open({ databaseUrl: url, monitorSeconds: 1 });
    const ledger = await startedJob(store, 1);
    const [lease] = await ledger.lease(1);
    assert.ok(lease);
    await silence(ledger.jobId);
    assert.deepEqual(await ledger.lease(1), []);
    assert.ok(await ledger.complete(lease, { result: "{}", usage: NO_USAGE, stop: false }));
    assert.deepEqual(await ledger.lease(1), []);
    await ledger.releaseRun();
  });

  test("a report whose response was lost counts once, for its own attempt", async () => {
    await using store = await PostgresStore.open({ databaseUrl: url });
    const ledger = await startedJob(store, 1);
    const [lease] = await ledger.lease(1);
    assert.ok(lease);
    const pool = new pg.Pool({ connectionString: url, max: 1 });
    const lossy = answerLost(pool);
    const clock = systemClock;
    const outage = new OutageRetry({
      messages: { waiting: "it is back", back: "the database is back", gaveUp: "the database has been away" },
      isOutage: isLostConnection,
      probe: async () => undefined,
      timeoutMs: 1000,
      clock,
      report: () => undefined,
    });
    const database = new PostgresDatabase(lossy, outage);
    const values = {
      jobId: ledger.jobId,
      rowIndex: 0,
      token: lease.leaseToken,
      result: '{"n":1}',
      now: 1,
      ...usageValues(NO_USAGE),
      transcript: null,
    };
    const row = await database.changeOnce(COMPLETE_ITEM, READ_FINISHED_BY, values);
    assert.equal(row?.result_json, '{"n":1}');
    assert.equal(await database.changeOnce(COMPLETE_ITEM, READ_FINISHED_BY, values), undefined);
    await database.close();
    await ledger.releaseRun();
  });

  test("the usage of a job can be read any number of times on one connection", async () => {
    await using store = await PostgresStore.open({ databaseUrl: url });
    await using ledger = await startedJob(store, 1);
    const { settings, outputPath } = await ledger.job();
    await ledger.setOptions({ settings: { ...settings, budget: { tokens: 1000 } }, outputPath });
    const warnings: Error[] = [];
    const onWarning = (warning: Error) => warnings.push(warning);
    process.on("warning", onWarning);
    for (let reads = 0; reads < 20; reads++) await ledger.spending();
    await nextTurn();
    process.off("warning", onWarning);
    assert.deepEqual(warnings, []);
  });

  test("a report is spooled to a file while the database does not respond, until it is stored", async () => {
    const directory = await mkdtemp(path.join(tmpdir(), "procwire-slow-pg-"));
    const listSpoolFiles = async () =>
      (await readdir(directory)).filter((name) => name.startsWith(".procwire-reports-"));
    await using store = await PostgresStore.open({ databaseUrl: url });
    await using ledger = await startedJob(store, 1);
    await ledger.releaseRun();
    await ledger.acquireRun({ outputPath: path.join(directory, "out.csv") });
    const [lease] = await ledger.lease(1);
    assert.ok(lease);
    const blocker = new pg.Client({ connectionString: url });
    await blocker.connect();
    await blocker.query("BEGIN");
    await blocker.query("SELECT 1 FROM procwire.agent_job_items WHERE job_id = $1 FOR UPDATE", [ledger.jobId]);
    const settled = ledger.complete(lease, { result: "{}", usage: NO_USAGE, stop: false });
    await until("the report is spooled", async () => (await listSpoolFiles()).length === 1).finally(() =>
      blocker.end(),
    );
    assert.equal((await settled)?.status, "completed");
    assert.deepEqual(await listSpoolFiles(), []);
    await rm(directory, { recursive: true });
  });

  test("a row at which every worker dies becomes a dead letter and fails with class spawn", async () => {
    await using store = await PostgresStore.open({ databaseUrl: url, monitorSeconds: 1 });
    const ledger = await startedJob(store, 1);
    assert.equal((await ledger.lease(1)).length, 1);
    // As if this were the last delivery that the engine allows.
    await query("UPDATE procwire_queue.job SET retry_count = retry_limit WHERE name = $1", [`job-${ledger.jobId}`]);
    await ledger.releaseRun();
    await silence(ledger.jobId);
    const next = await store.open(ledger.jobId);
    assert.ok(next);
    await next.acquireRun({ join: true });
    assert.deepEqual(await next.lease(1), []);
    const item = await next.item("row-1");
    assert.equal(item?.status, "failed");
    assert.equal(item?.errorClass, "spawn");
    assert.equal(item?.error, "6 workers died at this row");
    await next.releaseRun();
  });

  test("a process that lost the connection with its right to submit batches has no right until it acquires it again", async () => {
    await using store = await PostgresStore.open({ databaseUrl: url });
    await using first = await startedJob(store, 1);
    await using second = await store.open(first.jobId);
    assert.ok(second);
    assert.equal(await first.batches.acquireLeadership(), true);
    assert.equal(await first.batches.acquireLeadership(), true);
    assert.equal(await second.batches.acquireLeadership(), false);
    const ended = await query(
      `SELECT pg_terminate_backend(pid) FROM pg_locks WHERE locktype = 'advisory'
        AND ((classid::bigint << 32) | objid::bigint) = hashtextextended('batches of ' || $1, 0)`,
      [first.jobId],
    );
    assert.equal(ended.length, 1);
    await until("the right is free", () => second.batches.acquireLeadership());
    await until("the first process notices the loss", async () => !(await first.batches.acquireLeadership()));
    await second[Symbol.asyncDispose]();
    await until("the right is free again", () => first.batches.acquireLeadership());
  });

  test("a database with a pre-release schema is rejected and left unchanged", async () => {
    const old = await server.createDatabase();
    const client = new pg.Client({ connectionString: old });
    await client.connect();
    try {
      await client.query(
        "CREATE SCHEMA procwire; CREATE TABLE procwire.version (version integer); INSERT INTO procwire.version VALUES (4)",
      );
      await assert.rejects(PostgresStore.open({ databaseUrl: old }), {
        message:
          "the database cannot be used: schema version 4 was created by a pre-release procwire; use another database, " +
          "drop the schemas procwire and procwire_queue with all their jobs, or use the version that created them",
      });
      const { rows } = await client.query("SELECT version FROM procwire.version");
      assert.deepEqual(rows, [{ version: 4 }]);
    } finally {
      await client.end();
    }
  });

  test("a database of version 6 gets the causes of its stopped jobs", async () => {
    const database = await server.createDatabase();
    const client = new pg.Client({ connectionString: database });
    await client.connect();
    try {
      await using store = await PostgresStore.open({ databaseUrl: database });
      const { jobId } = await startedJob(store, 1);
      await client.query(
        `ALTER TABLE procwire.agent_jobs DROP COLUMN stop_cause; ALTER TABLE procwire.agent_job_batches DROP COLUMN is_assumed;
         UPDATE procwire.agent_jobs SET last_error = 'cancelled by the user'; UPDATE procwire.version SET version = 6`,
      );
      await using upgraded = await PostgresStore.open({ databaseUrl: database });
      await using ledger = await upgraded.open(jobId);
      const stop = { cause: "cancelled_by_user", reason: "cancelled by the user" };
      assert.deepEqual((await ledger?.job())?.stop, stop);
    } finally {
      await client.end();
    }
  });

  test("an unreachable database is reported in one line", async () => {
    await assert.rejects(
      PostgresStore.open({ databaseUrl: "postgres://nobody@127.0.0.1:1/none" }),
      /^Error: the database cannot be used: .*ECONNREFUSED/,
    );
  });
}
