import assert from "node:assert/strict";
import { readFile } from "node:fs/promises";
import { test } from "node:test";
import type { JobLedger } from "../../../src/fanout/ledger/job-ledger.ts";
import { PostgresStore } from "../../../src/fanout/ledger/postgres/postgres-store.ts";
import { SqliteStore } from "../../../src/fanout/ledger/sqlite/sqlite-store.ts";
import { report } from "../../support/models/mock-responses.ts";
import { postgresMissing, startPostgres } from "../../support/servers/postgres.ts";
import { repetitions } from "../../support/system/repetitions.ts";
import { skipUnless } from "../../support/system/skip-unless.ts";
import { catTable, FanoutHarness, type FanoutRun } from "../fanout-harness.ts";

/** Ten rows are read before the first row starts. */
const FEW_ROWS: FanoutRun = { firstRows: { rows: 10, chars: Number.POSITIVE_INFINITY } };
const ROWS = repetitions(1_500);

/** A store whose jobs get no row after the first ones before `gate` opens. */
class GatedStore extends SqliteStore {
  appended = 0;
  readonly gate = Promise.withResolvers<void>();

  override async open(id: string): Promise<JobLedger | null> {
    const ledger = await super.open(id);
    if (!ledger) return null;
    const append = ledger.appendRows.bind(ledger);
    ledger.appendRows = async (rows, answers) => {
      await this.gate.promise;
      this.appended += rows.length;
      await append(rows, answers);
    };
    return ledger;
  }
}

test("the first rows are executed while the rest of the table is still being read", async () => {
  // No further row arrives before the first ten have started: a job that waited for the whole table would never begin.
  await using harness = await FanoutHarness.open((request) => {
    if (harness.asked.length === 10) store.gate.resolve();
    return report(request);
  });
  const store = new GatedStore(harness.jobsHome);
  const end = await harness.run({ ...FEW_ROWS, table: catTable(ROWS), concurrency: 32, store });
  assert.equal(end.end.type, "finished");
  assert.equal(store.appended, ROWS - 10);
  const { job, counts } = end.summary;
  assert.deepEqual([job.status, job.totalRows, job.isReading], ["completed", ROWS, false]);
  assert.equal(counts.completed, ROWS);
  assert.equal(new Set(harness.asked).size, ROWS);
  assert.deepEqual(
    (await harness.output()).map((row) => row.item_id),
    Array.from({ length: ROWS }, (_row, index) => `row-${index + 1}`),
  );
});

test("a run that stopped within the table continues reading there, with the same ids", async () => {
  const stop = new AbortController();
  const harness = await FanoutHarness.open((request) => {
    stop.abort(new Error("enough"));
    return report(request);
  });
  await using _ = harness;
  // Long enough that the table is appended in several parts.
  const cat = "cat".repeat(300_000 / ROWS);
  const table = `name,id\n${Array.from({ length: ROWS }, (_row, index) => `${cat},${index % 7}\n`).join("")}`;
  const run = { ...FEW_ROWS, table, task: { idColumn: "id" }, concurrency: 32 };
  const first = await harness.run({ ...run, signal: stop.signal });
  assert.deepEqual([first.end.type, first.summary.job.isReading], ["stopped", true]);
  const second = await harness.run(run);
  assert.deepEqual([second.end.type, second.summary.job.totalRows], ["finished", ROWS]);
  assert.equal(second.summary.job.id, first.summary.job.id);
  const ids = (await harness.output()).map((row) => row.item_id);
  assert.equal(new Set(ids).size, ROWS);
  assert.deepEqual(ids.slice(0, 9), ["0", "1", "2", "3", "4", "5", "6", "0-2", "1-2"]);
});

test("an invalid row ends the job and keeps its answers; the corrected table executes only the rest", async () => {
  await using harness = await FanoutHarness.open((request) => report(request));
  const lines = catTable(ROWS).trimEnd().split("\n");
  const broken = [...lines.slice(0, 100), "cat,too many fields", ...lines.slice(100)].join("\n");
  const first = await harness.run({ ...FEW_ROWS, table: broken });
  assert.ok(first.end.type === "stopped" && first.end.status === "failed");
  assert.match(first.summary.job.stop?.reason ?? "", /cannot be read to its end: csv row 101 has 2 fields/);
  const answered = first.summary.counts.completed;
  const second = await harness.run({ ...FEW_ROWS, table: `${lines.join("\n")}\n`, concurrency: 32 });
  assert.equal(second.summary.counts.completed, ROWS);
  assert.ok(answered > 0);
  assert.equal(harness.asked.length, ROWS);
});

test("rows that are read later reuse answers before they can be leased", async () => {
  await using harness = await FanoutHarness.open((request) => report(request));
  await harness.run({ ...FEW_ROWS, table: catTable(ROWS), concurrency: 32 });
  const again = await harness.run({ ...FEW_ROWS, table: `${catTable(ROWS)}one more\n` });
  assert.equal(again.summary.counts.completed, ROWS + 1);
  assert.equal(harness.asked.length, ROWS + 1);
});

test("columns that occur only in later rows reach their agents and the output", async () => {
  await using harness = await FanoutHarness.open((request) => report(request));
  const rows = Array.from({ length: 600 }, (_row, index) => ({
    name: `cat_${index}`,
    ...Object.fromEntries(index === 599 ? [["late", "at last"]] : []),
  }));
  const table = rows.map((row) => JSON.stringify(row)).join("\n");
  const end = await harness.run({ ...FEW_ROWS, table, format: "jsonl", concurrency: 32 });
  assert.deepEqual(end.summary.job.headers, ["name", "late"]);
  const last = harness.mock.requests.find((request) => request.item?.itemId === "row-600");
  assert.match(JSON.stringify(last?.body), /at last/);
  assert.match(await readFile(harness.outputPath, "utf8"), /^name,late,/);
});

test("a column that only the instruction names is rejected before any model call", async () => {
  await using harness = await FanoutHarness.open((request) => report(request));
  const run = { ...FEW_ROWS, table: catTable(ROWS), task: { instruction: "{nothing}" } };
  await assert.rejects(harness.run(run), /unknown placeholder \{nothing\}/);
  assert.equal(harness.asked.length, 0);
});

const missing = await postgresMissing();

test("rows of a table that is read in parts are executed once each on Postgres", {
  skip: skipUnless(missing === null, missing ?? ""),
}, async () => {
  const postgres = await startPostgres();
  try {
    const databaseUrl = await postgres.createDatabase();
    await using store = await PostgresStore.open({ databaseUrl });
    await using harness = await FanoutHarness.open((request) => report(request));
    const end = await harness.run({ ...FEW_ROWS, table: catTable(ROWS), concurrency: 16, store });
    assert.deepEqual([end.summary.job.status, end.summary.counts.completed], ["completed", ROWS]);
    assert.equal(harness.asked.length, ROWS);
    assert.equal(new Set(harness.asked).size, ROWS);
  } finally {
    await postgres.close();
  }
});
