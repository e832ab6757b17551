import assert from "node:assert/strict";
import { mkdtemp, readdir, rm } from "node:fs/promises";
import { tmpdir } from "node:os";
import path from "node:path";
import { after, before, test } from "node:test";
import { setImmediate as nextTurn } from "node:timers/promises";
import pg from "pg";
import { NO_USAGE } from "../../../../src/agent/token-usage.ts";
import { systemClock } from "../../../../src/async/clock.ts";
import { Outage } from "../../../../src/async/outage.ts";
import type { Claim, JobLedger } from "../../../../src/fanout/ledger/job-ledger.ts";
import { isLostConnection } from "../../../../src/fanout/ledger/postgres/connection-loss.ts";
import { PostgresDatabase } from "../../../../src/fanout/ledger/postgres/postgres-database.ts";
import {
  COMPLETE_ITEM,
  READ_SETTLED_BY,
} from "../../../../src/fanout/ledger/postgres/postgres-statements.ts";
import { PostgresStore } from "../../../../src/fanout/ledger/postgres/postgres-store.ts";
import { usageValues } from "../../../../src/fanout/ledger/record-codec.ts";
import { postgresMissing, startPostgres, type TestPostgres } from "../../../support/servers/postgres.ts";
import { until } from "../../../support/system/until.ts";
import { seededRandom } from "../../run/rate-simulation.ts";
import { PLAIN_TASK, storeContract } from "../store-contract.ts";

const missing = await postgresMissing();
if (missing) {
  test("the Postgres store keeps the contract", { skip: missing }, () => undefined);
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
    for (let tries = 0; tries < 300; tries++) {
      const active = await query("SELECT 1 FROM procwire_queue.job WHERE name = $1 AND state = 'active'", [
        queue,
      ]);
      if (active.length === 0) return;
      await new Promise((wake) => setTimeout(wake, 100));
    }
    assert.fail("the engine never noticed");
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
        await ledger.endRun();
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
    await ledger.beginRun();
    await ledger.setStatus("running", ["pending"]);
    return ledger;
  }

  test("two processes that run the same job never get the same row", async () => {
    await using first = await PostgresStore.open({ databaseUrl: url, monitorSeconds: 1 });
    await using second = await PostgresStore.open({ databaseUrl: url, monitorSeconds: 1 });
    const ledger = await startedJob(first, 40);
    const other = await second.open(ledger.jobId);
    assert.ok(other);
    await other.beginRun({ join: true });
    const claims = (await Promise.all([ledger, other, ledger, other].map((one) => one.claim(10)))).flat();
    assert.equal(new Set(claims.map((claim) => claim.item.itemId)).size, claims.length);
    assert.ok(claims.length >= 20);
    await ledger.endRun();
    await other.endRun();
  });

  test("a finished row that the engine still delivers is dropped before a model is asked", async () => {
    await using store = await PostgresStore.open({ databaseUrl: url, monitorSeconds: 1 });
    const ledger = await startedJob(store, 2);
    await query(
      "UPDATE procwire.agent_job_items SET status = 'completed' WHERE job_id = $1 AND row_index = 0",
      [ledger.jobId],
    );
    assert.deepEqual(
      (await ledger.claim(2)).map((claim) => claim.item.itemId),
      ["row-2"],
    );
    const left = await query("SELECT 1 FROM procwire_queue.job WHERE name = $1 AND state < 'active'", [
      `job-${ledger.jobId}`,
    ]);
    assert.equal(left.length, 0);
    await ledger.endRun();
  });

  test("a worker that counts as dead can no longer report", async () => {
    await using store = await PostgresStore.open({ databaseUrl: url, monitorSeconds: 1 });
    const ledger = await startedJob(store, 1);
    const [late] = await ledger.claim(1);
    assert.ok(late);
    await ledger.endRun();
    await silence(ledger.jobId);
    const other = await store.open(ledger.jobId);
    assert.ok(other);
    await other.beginRun({ join: true });
    const [now] = await other.claim(1);
    assert.ok(now);
    const report = { result: "{}", usage: NO_USAGE, stop: false };
    assert.equal(await ledger.complete(late, report), null);
    assert.ok(await other.complete(now, report));
    await other.endRun();
  });

  test("hundreds of rows whose worker stalls past its lease and comes back are settled once each, by one of the two", async () => {
    const rows = 300;
    await using stalledStore = await PostgresStore.open({ databaseUrl: url, monitorSeconds: 1 });
    await using otherStore = await PostgresStore.open({ databaseUrl: url, monitorSeconds: 1 });
    const stalled = await startedJob(stalledStore, rows);
    const late = await stalled.claim(rows);
    assert.equal(late.length, rows);
    await silence(stalled.jobId);
    const other = await otherStore.open(stalled.jobId);
    assert.ok(other);
    await other.beginRun({ join: true });
    const taken = await claimAll(other, rows);
    const random = seededRandom(15);
    const settle = async (ledger: JobLedger, claim: Claim, who: string): Promise<string[]> => {
      for (let turns = Math.floor(random() * 4); turns > 0; turns--) await nextTurn();
      const way = random();
      if (way < 0.2) {
        const failure = { errorClass: "no_report", message: who, usage: NO_USAGE } as const;
        return (await ledger.fail(claim, failure)) ? [`${who} failed`] : [];
      }
      // A worker that releases its row settles nothing: the other one's report must still count.
      if (way < 0.3 && who === "late") {
        await ledger.release(claim, NO_USAGE);
        return [];
      }
      const report = { result: JSON.stringify({ who }), usage: NO_USAGE, stop: false };
      return (await ledger.complete(claim, report)) ? [`${who} completed`] : [];
    };
    const ends = await Promise.all(
      late.map(async (claim) => {
        const again = taken.get(claim.item.itemId);
        assert.ok(again, `${claim.item.itemId} was given to the other worker`);
        const both = [() => settle(stalled, claim, "late"), () => settle(other, again, "other")];
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
    const kept = await query(
      "SELECT row_index FROM procwire.agent_job_attempts WHERE job_id = $1 AND outcome IN ('reported', 'failed') GROUP BY row_index HAVING COUNT(*) > 1",
      [stalled.jobId],
    );
    assert.deepEqual(kept, []);
    await stalled.endRun();
    await other.endRun();
  });

  /** Rows are delivered when the engine has noticed that their worker's heartbeat stopped. */
  async function claimAll(ledger: JobLedger, rows: number): Promise<Map<string, Claim>> {
    const claims = new Map<string, Claim>();
    await until("every row is given out again", async () => {
      for (const claim of await ledger.claim(rows)) claims.set(claim.item.itemId, claim);
      return claims.size === rows;
    });
    return claims;
  }

  test("a row that the engine delivers again continues in the process that still works on it", async () => {
    await using store = await PostgresStore.open({ databaseUrl: url, monitorSeconds: 1 });
    const ledger = await startedJob(store, 1);
    const [claim] = await ledger.claim(1);
    assert.ok(claim);
    await silence(ledger.jobId);
    assert.deepEqual(await ledger.claim(1), []);
    assert.ok(await ledger.complete(claim, { result: "{}", usage: NO_USAGE, stop: false }));
    assert.deepEqual(await ledger.claim(1), []);
    await ledger.endRun();
  });

  test("a report whose answer was lost counts once, and as the attempt's own", async () => {
    await using store = await PostgresStore.open({ databaseUrl: url });
    const ledger = await startedJob(store, 1);
    const [claim] = await ledger.claim(1);
    assert.ok(claim);
    const pool = new pg.Pool({ connectionString: url, max: 1 });
    const lossy = answerLost(pool);
    const clock = systemClock;
    const outage = new Outage({
      words: { waiting: "it is back", back: "the database is back", gaveUp: "the database has been away" },
      isLoss: isLostConnection,
      probe: async () => undefined,
      patienceMs: 1000,
      clock,
      tell: () => undefined,
    });
    const database = new PostgresDatabase(lossy, outage);
    const values = {
      jobId: ledger.jobId,
      rowIndex: 0,
      token: claim.token,
      result: '{"n":1}',
      now: 1,
      ...usageValues(NO_USAGE),
      transcript: null,
    };
    const row = await database.changeOnce(COMPLETE_ITEM, READ_SETTLED_BY, values);
    assert.equal(row?.result_json, '{"n":1}');
    assert.equal(await database.changeOnce(COMPLETE_ITEM, READ_SETTLED_BY, values), undefined);
    await database.close();
    await ledger.endRun();
  });

  test("a report that a database neither takes nor refuses is kept in a file until it is taken", async () => {
    const folder = await mkdtemp(path.join(tmpdir(), "procwire-slow-pg-"));
    const kept = async () => (await readdir(folder)).filter((name) => name.startsWith(".procwire-reports-"));
    await using store = await PostgresStore.open({ databaseUrl: url });
    await using ledger = await startedJob(store, 1);
    const { settings } = await ledger.job();
    await ledger.setOptions({ settings, outputPath: path.join(folder, "out.csv") });
    const [claim] = await ledger.claim(1);
    assert.ok(claim);
    const blocker = new pg.Client({ connectionString: url });
    await blocker.connect();
    await blocker.query("BEGIN");
    await blocker.query("SELECT 1 FROM procwire.agent_job_items WHERE job_id = $1 FOR UPDATE", [
      ledger.jobId,
    ]);
    const settled = ledger.complete(claim, { result: "{}", usage: NO_USAGE, stop: false });
    await until("the report is kept", async () => (await kept()).length === 1).finally(() => blocker.end());
    assert.equal((await settled)?.status, "completed");
    assert.deepEqual(await kept(), []);
    await rm(folder, { recursive: true });
  });

  test("a row at which every worker dies ends in the dead letters and fails as spawn", async () => {
    await using store = await PostgresStore.open({ databaseUrl: url, monitorSeconds: 1 });
    const ledger = await startedJob(store, 1);
    assert.equal((await ledger.claim(1)).length, 1);
    // As if this were the last delivery that the engine allows.
    await query("UPDATE procwire_queue.job SET retry_count = retry_limit WHERE name = $1", [
      `job-${ledger.jobId}`,
    ]);
    await ledger.endRun();
    await silence(ledger.jobId);
    const next = await store.open(ledger.jobId);
    assert.ok(next);
    await next.beginRun({ join: true });
    assert.deepEqual(await next.claim(1), []);
    const item = await next.item("row-1");
    assert.equal(item?.status, "failed");
    assert.equal(item?.errorClass, "spawn");
    assert.equal(item?.error, "6 workers died at this row");
    await next.endRun();
  });

  test("a database that cannot be reached is reported in one line", async () => {
    await assert.rejects(
      PostgresStore.open({ databaseUrl: "postgres://nobody@127.0.0.1:1/none" }),
      /^Error: the database cannot be used: .*ECONNREFUSED/,
    );
  });
}
