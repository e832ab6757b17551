import assert from "node:assert/strict";
import { once } from "node:events";
import { link, mkdir, mkdtemp, readdir, rm, stat } from "node:fs/promises";
import { tmpdir } from "node:os";
import path from "node:path";
import { DatabaseSync } from "node:sqlite";
import { test } from "node:test";
import { Worker } from "node:worker_threads";
import { NO_USAGE } from "../../../../src/agent/token-usage.ts";
import type { ItemRecord } from "../../../../src/fanout/job.ts";
import type { JobLedger } from "../../../../src/fanout/ledger/job-ledger.ts";
import { SqliteDatabase } from "../../../../src/fanout/ledger/sqlite/sqlite-database.ts";
import { FIND_ANSWERS } from "../../../../src/fanout/ledger/sqlite/sqlite-statements.ts";
import { SqliteStore } from "../../../../src/fanout/ledger/sqlite/sqlite-store.ts";
import { ManualClock } from "../../../support/manual-clock.ts";
import { PLAIN_TASK, storeContract } from "../store-contract.ts";

storeContract("sqlite", async () => {
  const home = await mkdtemp(path.join(tmpdir(), "procwire-store-"));
  const clock = new ManualClock();
  const store = new SqliteStore(home, { clock });
  return {
    store,
    pass: (ms) => clock.advance(ms),
    async afterDeath(ledger) {
      await ledger[Symbol.asyncDispose]();
      const reopened = await store.open(ledger.jobId);
      assert.ok(reopened);
      return reopened;
    },
    close: () => rm(home, { recursive: true, force: true, maxRetries: 10 }),
  };
});

async function withHome(body: (home: string) => Promise<void>): Promise<void> {
  const home = await mkdtemp(path.join(tmpdir(), "procwire-store-"));
  try {
    await body(home);
  } finally {
    await rm(home, { recursive: true, force: true, maxRetries: 10 });
  }
}

const job = {
  id: "11111111-2222-4333-8444-555555555555",
  key: "k",
  task: PLAIN_TASK,
  settings: { maxAttempts: 3, rowTimeoutMs: 1, rowLimit: null },
  inputPath: "a",
  outputPath: "b",
  createdAtMs: 1,
} as const;

async function* noRows() {}

test("only one process runs a job at a time, and its lock ends with the process", async () => {
  await withHome(async (home) => {
    const store = new SqliteStore(home);
    await store.create(job, noRows(), () => ({ headers: [], isReading: false }));
    const first = await store.open(job.id);
    await using second = await store.open(job.id);
    assert.ok(first && second);
    assert.equal(await first.acquireRun(), true);
    assert.equal(await first.acquireRun(), true);
    assert.equal(await second.acquireRun(), false);
    assert.equal(await second.isRunHeld(), true);
    // Reading and changing the status does not need the right to run: `jobs cancel` does it from another process.
    assert.equal(await second.setStatus("cancelled", ["pending"]), true);
    await first[Symbol.asyncDispose]();
    assert.equal(await second.isRunHeld(), false);
    assert.equal(await second.acquireRun(), true);
  });
});

test("a job whose directory was deleted by hand no longer exists", async () => {
  await withHome(async (home) => {
    const store = new SqliteStore(home);
    await store.create(job, noRows(), () => ({ headers: [], isReading: false }));
    await rm(path.join(home, job.id), { recursive: true });
    assert.equal(await store.find("k"), null);
    assert.deepEqual(await store.list(), []);
  });
});

test("a directory without a ledger is not a job, and no ledger is created in it", async () => {
  await withHome(async (home) => {
    const store = new SqliteStore(home);
    await store.create(job, noRows(), () => ({ headers: [], isReading: false }));
    await rm(path.join(home, job.id, "ledger.sqlite"));
    assert.equal(await store.open(job.id), null);
    assert.deepEqual(
      (await readdir(path.join(home, job.id))).filter((name) => name === "ledger.sqlite"),
      [],
    );
  });
});

async function setSchemaVersion(home: string, version: number, sql = ""): Promise<void> {
  const store = new SqliteStore(home);
  await store.create(job, noRows(), () => ({ headers: [], isReading: false }));
  const db = new DatabaseSync(path.join(home, job.id, "ledger.sqlite"));
  db.exec(`${sql}; PRAGMA user_version = ${version}`);
  db.close();
}

/** Returns the changes that make a ledger of the current version one of version 6. */
function downgradeSql(jobs: string, batches: string, text: string): string {
  return `ALTER TABLE ${jobs} DROP COLUMN stop_cause; ALTER TABLE ${batches} DROP COLUMN is_assumed;
    UPDATE ${jobs} SET status = 'cancelled', last_error = '${text}'`;
}

for (const [text, cause] of [
  ["cancelled by the user", "cancelled_by_user"],
  ["cancelled by worker request", "cancelled_by_row_agent"],
  ["interrupted", "interrupted"],
  ["the quota is used up", "other"],
] as const)
  test(`a ledger of version 6 gets the cause of its stop: ${cause}`, async () => {
    await withHome(async (home) => {
      await setSchemaVersion(home, 6, downgradeSql("agent_jobs", "agent_job_batches", text));
      await using ledger = await new SqliteStore(home).open(job.id);
      assert.deepEqual((await ledger?.job())?.stop, { cause, reason: text });
    });
  });

test("a ledger with a newer schema version is rejected", async () => {
  await withHome(async (home) => {
    await setSchemaVersion(home, 999);
    await assert.rejects(
      new SqliteStore(home).open(job.id),
      /^Error: cannot read job 11111111: schema version 999 was created by a newer procwire; this version supports 7; delete it/,
    );
  });
});

for (const version of [1, 2, 3, 4, 5]) {
  test(`a ledger with the pre-release schema version ${version} is rejected and can be deleted`, async () => {
    await withHome(async (home) => {
      await setSchemaVersion(home, version);
      const store = new SqliteStore(home);
      const message =
        `cannot read job 11111111: schema version ${version} was created by a pre-release procwire; ` +
        "delete it with `procwire jobs rm 11111111`, or use the version that created it";
      await assert.rejects(store.open(job.id), { message });
      await assert.rejects(store.find("k"), { message });
      assert.deepEqual(await store.list(), []);
      assert.deepEqual(await store.unreadable(), [{ id: job.id, reason: message }]);
      assert.equal(await store.remove(job.id), job.id);
      assert.equal(await store.find("k"), null);
    });
  });
}

test("a store that does not exist yet is empty", async () => {
  const store = new SqliteStore(path.join(tmpdir(), "procwire-no-such-home"));
  assert.deepEqual(await store.list(), []);
  assert.equal(await store.find("k"), null);
  assert.equal(await store.open("1"), null);
});

test("a row in backoff does not wait longer if the clock is set back", async () => {
  await withHome(async (home) => {
    const clock = new ManualClock();
    const store = new SqliteStore(home, { clock });
    const rows = async function* () {
      yield { itemId: "row-1", rowIndex: 0, sourceId: null, row: {} };
    };
    await store.create(job, rows(), () => ({ headers: [], isReading: false }));
    await using ledger = await store.open(job.id);
    assert.ok(ledger);
    await ledger.acquireRun();
    await ledger.setStatus("running", ["pending"]);
    const [lease] = await ledger.lease(1);
    assert.ok(lease);
    await ledger.retry(lease, { errorClass: "transport", message: "cut", usage: NO_USAGE }, 30_000);
    assert.deepEqual(await ledger.lease(1), []);
    clock.setForward(-3_600_000);
    assert.equal((await ledger.lease(1)).length, 1);
  });
});

const TABLES: readonly { what: string; rows: number; columns: number; chars: number }[] = [
  { what: "rows of a kilobyte", rows: 5_000, columns: 2, chars: 1_000 },
  { what: "rows of 190 bytes", rows: 10_000, columns: 1, chars: 189 },
  { what: "rows of 190 bytes in eight columns", rows: 10_000, columns: 8, chars: 184 },
  { what: "rows of 80 bytes", rows: 20_000, columns: 1, chars: 79 },
  { what: "rows of 80 bytes in four columns", rows: 20_000, columns: 4, chars: 76 },
  { what: "rows of 40 bytes", rows: 100_000, columns: 1, chars: 39 },
];
for (const { what, rows: count, columns, chars } of TABLES) {
  test(`a ledger of ${what} uses at most one and a half times the disk space of the table`, async () => {
    await withHome(async (home) => {
      const store = new SqliteStore(home);
      const linksDirectory = path.join(home, "kept.partial-files");
      const headers = Array.from({ length: columns }, (_, index) => `column_${index + 1}`);
      const cell = 'a "word" or two about a cat '.repeat(40).slice(0, chars / columns);
      let inputBytes = 0;
      const rows = async function* () {
        for (let rowIndex = 0; rowIndex < count; rowIndex++) {
          const row = Object.fromEntries(headers.map((name) => [name, cell]));
          inputBytes += columns * (cell.length + 1);
          yield { itemId: `row-${rowIndex + 1}`, rowIndex, sourceId: null, row, question: "1f".repeat(16) };
        }
        // A hard link to every file that exists by now, so that one removed at the end is still counted.
        await mkdir(linksDirectory);
        const partial = path.join(home, `${job.id}.partial`);
        for (const name of await readdir(partial))
          await link(path.join(partial, name), path.join(linksDirectory, name));
      };
      await store.create(job, rows(), () => ({ headers, isReading: false }));
      const sizes = await Promise.all(
        (await readdir(linksDirectory)).map((name) => stat(path.join(linksDirectory, name))),
      );
      const bytes = sizes.reduce((total, { size }) => total + size, 0);
      assert.ok(bytes > inputBytes / 2, `${bytes} bytes seen`);
      assert.ok(bytes <= 1.5 * inputBytes, `${bytes} bytes for ${inputBytes}`);
    });
  });
}

async function allOf(ledger: JobLedger): Promise<ItemRecord[]> {
  const items: ItemRecord[] = [];
  for await (const item of ledger.items()) items.push(item);
  return items;
}

test("rows are read back unchanged, for any content of cells and columns", async () => {
  await withHome(async (home) => {
    const store = new SqliteStore(home);
    const rows: Record<string, unknown>[] = [
      { name: "Tom", note: 'a "quoted"\nline' },
      { name: "", note: "" },
      { name: "nul \0", note: "separator \x1f" },
      { name: "half a pair \ud83d", note: "[1]" },
      { name: 1, note: null },
      { note: "other", name: "order" },
      {},
      { 2: "b", 1: "a", __proto_: "x", "": "y" },
      ...Array.from({ length: 150 }, (_, index) => ({ [`column_${index}`]: `${index}` })),
    ];
    const items = rows.map((row, rowIndex) => {
      const itemId = rowIndex % 3 === 0 ? `cat-${rowIndex}` : `row-${rowIndex + 1}`;
      return { itemId, rowIndex, sourceId: null, row };
    });
    const first = async function* () {
      yield* items.slice(0, 5);
    };
    await store.create(job, first(), () => ({ headers: [], isReading: true }));
    await using ledger = await store.open(job.id);
    assert.ok(ledger);
    await ledger.appendRows(items.slice(5), []);
    const found = await allOf(ledger);
    assert.deepEqual(
      found.map(({ itemId, row }) => ({ itemId, row: Object.entries(row) })),
      items.map(({ itemId, row }) => ({ itemId, row: Object.entries(row) })),
    );
    for (const { itemId, rowIndex } of items) {
      assert.equal((await ledger.item(itemId))?.rowIndex, rowIndex);
    }
    // Row 4 has another id; the other ids do not exist.
    for (const itemId of ["row-4", "row-0", "row-05", "row-9999", "row-", "Row-2", " row-2", ""]) {
      assert.equal(await ledger.item(itemId), null, itemId);
    }
  });
});

test("answers are found by an index on questions, not by a scan of completed rows", async () => {
  await withHome(async (home) => {
    const db = new SqliteDatabase(path.join(home, "ledger.sqlite"));
    const plan = db.all(`EXPLAIN QUERY PLAN ${FIND_ANSWERS}`, { questions: "[]" }).map(({ detail }) => detail);
    db.close();
    assert.match(plan.join("\n"), /by_question \(question=\?\)/);
  });
});

test("a run begins although another process checks the run lock at that moment", async () => {
  await withHome(async (home) => {
    const store = new SqliteStore(home);
    await store.create(job, noRows(), () => ({ headers: [], isReading: false }));
    await using ledger = await store.open(job.id);
    assert.ok(ledger);
    const lockFile = path.join(home, job.id, "ledger.sqlite.run-lock");
    const looking = new Worker(
      `const { DatabaseSync } = require("node:sqlite");
       const { parentPort, workerData } = require("node:worker_threads");
       const lock = new DatabaseSync(workerData);
       lock.exec("BEGIN EXCLUSIVE");
       parentPort.postMessage("held");
       setTimeout(() => lock.close(), 20);`,
      { eval: true, workerData: lockFile },
    );
    await once(looking, "message");
    assert.equal(await ledger.acquireRun(), true);
    await once(looking, "exit");
  });
});

test("reused answers are stored once a full disk has space again", async (context) => {
  await withHome(async (home) => {
    const store = new SqliteStore(home);
    const rows = async function* () {
      yield { itemId: "row-1", rowIndex: 0, sourceId: null, row: { name: "Tom" }, question: "1".repeat(32) };
    };
    await store.create(job, rows(), () => ({ headers: ["name"], isReading: false }));
    await using ledger = await store.open(job.id);
    assert.ok(ledger);
    assert.equal(await ledger.acquireRun(), true);
    const full = Object.assign(new Error("database or disk is full"), { errcode: 13 });
    const transaction = context.mock.method(SqliteDatabase.prototype, "transaction");
    transaction.mock.mockImplementationOnce(() => {
      throw full;
    });
    const answer = { question: "1".repeat(32), result: "{}", jobId: "other", itemId: "row-1" };
    assert.equal(await ledger.completeWithReused([{ rowIndex: 0, answer }]), 1);
    assert.equal((await ledger.item("row-1"))?.status, "completed");
  });
});
