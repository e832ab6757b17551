import assert from "node:assert/strict";
import { once } from "node:events";
import { link, mkdir, mkdtemp, readdir, rm, stat } from "node:fs/promises";
import { tmpdir } from "node:os";
import path from "node:path";
import { DatabaseSync } from "node:sqlite";
import { test } from "node:test";
import { Worker } from "node:worker_threads";
import { NO_USAGE } from "../../../src/agent/usage.ts";
import { ManualClock } from "../../../src/async/clock.ts";
import { SqliteStore } from "../../../src/fanout/ledger/sqlite/sqlite-store.ts";
import { storeContract } from "./store-contract.ts";

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
    close: () => rm(home, { recursive: true, force: true }),
  };
});

async function withHome(body: (home: string) => Promise<void>): Promise<void> {
  const home = await mkdtemp(path.join(tmpdir(), "procwire-store-"));
  try {
    await body(home);
  } finally {
    await rm(home, { recursive: true, force: true });
  }
}

const job = {
  id: "11111111-2222-4333-8444-555555555555",
  key: "k",
  task: { instruction: "x", schema: null, model: "m", reasoningEffort: null, tools: "none", idColumn: null },
  settings: { maxAttempts: 3, rowTimeoutMs: 1, rowLimit: null },
  inputPath: "a",
  outputPath: "b",
  createdAtMs: 1,
} as const;

async function* noRows() {}

test("only one process runs a job at a time, and the right ends with its holder", async () => {
  await withHome(async (home) => {
    const store = new SqliteStore(home);
    await store.create(job, noRows(), () => ({ headers: [], isReading: false }));
    const first = await store.open(job.id);
    await using second = await store.open(job.id);
    assert.ok(first && second);
    assert.equal(await first.beginRun(), true);
    assert.equal(await first.beginRun(), true);
    assert.equal(await second.beginRun(), false);
    assert.equal(await second.isBeingRun(), true);
    // Reading and changing the status does not need the right to run: `jobs cancel` does it from another process.
    assert.equal(await second.setStatus("cancelled", ["pending"]), true);
    await first[Symbol.asyncDispose]();
    assert.equal(await second.isBeingRun(), false);
    assert.equal(await second.beginRun(), true);
  });
});

test("a job folder that was deleted by hand is forgotten", async () => {
  await withHome(async (home) => {
    const store = new SqliteStore(home);
    await store.create(job, noRows(), () => ({ headers: [], isReading: false }));
    await rm(path.join(home, job.id), { recursive: true });
    assert.equal(await store.find("k"), null);
    assert.deepEqual(await store.list(), []);
  });
});

test("a folder without a ledger is no job and none is made in it", async () => {
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

test("a ledger of a newer version is refused, not misread", async () => {
  await withHome(async (home) => {
    const store = new SqliteStore(home);
    await store.create(job, noRows(), () => ({ headers: [], isReading: false }));
    const db = new DatabaseSync(path.join(home, job.id, "ledger.sqlite"));
    db.exec("PRAGMA user_version = 999");
    db.close();
    await assert.rejects(store.open(job.id), /newer procwire \(version 999\)/);
  });
});

test("a store that does not exist yet is empty", async () => {
  const store = new SqliteStore(path.join(tmpdir(), "procwire-no-such-home"));
  assert.deepEqual(await store.list(), []);
  assert.equal(await store.find("k"), null);
  assert.equal(await store.open("1"), null);
});

test("a row that waits for its back-off does not wait longer because the clock is set back", async () => {
  await withHome(async (home) => {
    const clock = new ManualClock();
    const store = new SqliteStore(home, { clock });
    const rows = async function* () {
      yield { itemId: "row-1", rowIndex: 0, sourceId: null, row: {} };
    };
    await store.create(job, rows(), () => ({ headers: [], isReading: false }));
    await using ledger = await store.open(job.id);
    assert.ok(ledger);
    await ledger.beginRun();
    await ledger.setStatus("running", ["pending"]);
    const [claim] = await ledger.claim(1);
    assert.ok(claim);
    await ledger.retry(claim, { errorClass: "transport", message: "cut", usage: NO_USAGE }, 30_000);
    assert.deepEqual(await ledger.claim(1), []);
    clock.setForward(-3_600_000);
    assert.equal((await ledger.claim(1)).length, 1);
  });
});

test("reading a table in uses no more disk than one and a half times the table", async () => {
  await withHome(async (home) => {
    const store = new SqliteStore(home);
    const text = "a word or two about a cat, ".repeat(40);
    const kept = path.join(home, "kept.partial-files");
    let inputBytes = 0;
    const rows = async function* () {
      for (let rowIndex = 0; rowIndex < 10_000; rowIndex++) {
        const row = { name: `cat_${rowIndex}`, text };
        inputBytes += `${row.name},"${text}"\n`.length;
        yield { itemId: `row-${rowIndex + 1}`, rowIndex, sourceId: null, row, question: "0".repeat(32) };
      }
      // A hard link to every file that exists by now, so that one removed at the end is still counted.
      await mkdir(kept);
      const partial = path.join(home, `${job.id}.partial`);
      for (const name of await readdir(partial)) await link(path.join(partial, name), path.join(kept, name));
    };
    await store.create(job, rows(), () => ({ headers: ["name", "text"], isReading: false }));
    const sizes = await Promise.all((await readdir(kept)).map((name) => stat(path.join(kept, name))));
    const bytes = sizes.reduce((total, { size }) => total + size, 0);
    assert.ok(bytes > inputBytes / 2, `${bytes} bytes seen`);
    assert.ok(bytes <= 1.5 * inputBytes, `${bytes} bytes for ${inputBytes}`);
  });
});

test("a run begins although another process checks at that moment whether the job is being run", async () => {
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
    assert.equal(await ledger.beginRun(), true);
    await once(looking, "exit");
  });
});
