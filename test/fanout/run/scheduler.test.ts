import assert from "node:assert/strict";
import { test } from "node:test";
import { NO_USAGE } from "../../../src/agent/token-usage.ts";
import { CANCELLED_BY_USER, type ItemRecord, type JobRecord } from "../../../src/fanout/job.ts";
import type { ItemLease, JobLedger } from "../../../src/fanout/ledger/job-ledger.ts";
import type { RowAgent, RowOutcome } from "../../../src/fanout/row/row-outcome.ts";
import { RateLimiter } from "../../../src/fanout/run/rate-limiter.ts";
import { type SchedulerOptions, scheduleRows } from "../../../src/fanout/run/scheduler.ts";
import { ManualClock } from "../../support/manual-clock.ts";
import { until } from "../../support/system/until.ts";

const job: JobRecord = {
  id: "j",
  key: "k",
  name: "n",
  task: { instruction: "x", schema: null, model: "m", reasoningEffort: null, tools: "none", idColumn: null },
  settings: { maxAttempts: 1, rowTimeoutMs: 1000, rowLimit: null },
  inputPath: "",
  outputPath: "",
  headers: [],
  totalRows: 0,
  status: "running",
  stop: null,
  createdAtMs: 0,
  updatedAtMs: 0,
  startedAtMs: 0,
  completedAtMs: null,
  isReading: false,
};

const item = (rowIndex: number): ItemRecord => ({
  itemId: `row-${rowIndex + 1}`,
  rowIndex,
  sourceId: null,
  row: {},
  status: "running",
  attempts: 1,
  result: null,
  errorClass: null,
  error: null,
  usage: NO_USAGE,
  startedAtMs: 0,
  reportedAtMs: null,
  completedAtMs: null,
});

/** A ledger that records every step, and whose commits the test can delay or break. */
function fakeLedger(rows: number) {
  const log: string[] = [];
  let next = 0;
  let open = rows;
  const commit: { run: (what: string) => Promise<void> } = { run: async () => undefined };
  const settle = async (what: string, lease: ItemLease, left: number) => {
    log.push(`${what} ${lease.item.itemId}`);
    await commit.run(`${what} ${lease.item.itemId}`);
    open += left;
    log.push(`committed ${lease.item.itemId}`);
    return true;
  };
  const ledger: JobLedger = {
    jobId: "j",
    shared: false,
    spending: async () => null,
    appendRows: () => Promise.reject(new Error("no table is read here")),
    finishReading: () => Promise.reject(new Error("no table is read here")),
    batches: new Proxy({} as JobLedger["batches"], {
      get: () => () => Promise.reject(new Error("no batches here")),
    }),
    views: new Proxy({} as JobLedger["views"], {
      get: () => () => Promise.reject(new Error("nobody looks here")),
    }),
    job: async () => job,
    counts: async () => ({
      total: rows,
      pending: open,
      running: 0,
      completed: rows - open,
      failed: 0,
      finishedWithUsage: 0,
      usage: NO_USAGE,
    }),
    acquireRun: async () => true,
    releaseRun: async () => undefined,
    isRunHeld: async () => true,
    lease: async (limit) => {
      const leases: ItemLease[] = [];
      while (leases.length < limit && next < rows) {
        const lease = { item: item(next), leaseToken: `t${next}` };
        next++;
        log.push(`lease ${lease.item.itemId}`);
        leases.push(lease);
      }
      return leases;
    },
    isDone: async () => open === 0,
    nextDueAtMs: async () => null,
    complete: async (lease) => ((await settle("complete", lease, -1)) ? lease.item : null),
    fail: async (lease) => ((await settle("fail", lease, -1)) ? lease.item : null),
    retry: async (lease) => settle("retry", lease, 0),
    release: async (lease) => settle("release", lease, 0),
    setStatus: async () => true,
    setOptions: async () => undefined,
    retryFailed: async () => 0,
    items: async function* () {},
    item: async () => null,
    finishedSince: async function* () {},
    attempts: async () => [],
    unattempted: async () => [],
    completeWithReused: async () => 0,
    [Symbol.asyncDispose]: async () => undefined,
  };
  return { ledger, log, commit };
}

function run(ledger: JobLedger, rowAgent: RowAgent, extra: Partial<SchedulerOptions> = {}) {
  const clock = new ManualClock();
  const options: SchedulerOptions = {
    job,
    ledger,
    rowAgent,
    limiter: new RateLimiter({ width: 2, clock }),
    concurrency: 2,
    clock,
    signal: new AbortController().signal,
    ...extra,
  };
  return { clock, ended: scheduleRows(options) };
}

const refused: RowOutcome = {
  type: "failed",
  errorClass: "refused",
  message: "no",
  usage: NO_USAGE,
  final: true,
};

test("a slot leases its next row only after its last one is committed", async () => {
  const { ledger, log, commit } = fakeLedger(4);
  const held = Promise.withResolvers<void>();
  commit.run = (what) => (what === "fail row-1" ? held.promise : Promise.resolve());
  const { clock, ended } = run(ledger, async () => refused);
  await clock.advance(10);
  // The other slot works through all the other rows; this one waits for its commit.
  await until("the other rows to be committed", () => log.filter((line) => line.startsWith("committed")).length === 3);
  assert.deepEqual(
    log.filter((line) => line.startsWith("lease")),
    ["lease row-1", "lease row-2", "lease row-3", "lease row-4"],
  );
  assert.ok(!log.includes("committed row-1"));
  held.resolve();
  assert.deepEqual(await ended, { type: "finished" });
  assert.equal(log.at(-1), "committed row-1");
});

test("a slow first row delays the others only for a limited time", async () => {
  const { ledger, log } = fakeLedger(3);
  const slow = Promise.withResolvers<void>();
  const rowAgent: RowAgent = async ({ item: { rowIndex } }) => {
    if (rowIndex === 0) await slow.promise;
    return refused;
  };
  const { clock, ended } = run(ledger, rowAgent, { warmFirst: true });
  await until("the first row to be leased", () => log.length === 1);
  await clock.advance(9_000);
  assert.deepEqual(log, ["lease row-1"]);
  await clock.advance(2_000);
  await until("the other rows to be done", () => log.includes("committed row-3"));
  slow.resolve();
  assert.deepEqual(await ended, { type: "finished" });
});

test("one slot executes rows strictly in sequence", async () => {
  const { ledger, log } = fakeLedger(3);
  const { ended } = run(ledger, async () => refused, { concurrency: 1 });
  await ended;
  assert.deepEqual(
    log,
    [1, 2, 3].flatMap((row) => [`lease row-${row}`, `fail row-${row}`, `committed row-${row}`]),
  );
});

test("a ledger error stops the job, aborts the rows in flight and is reported", async () => {
  const { ledger, commit } = fakeLedger(10);
  commit.run = async (what) => {
    if (what === "fail row-1") throw new Error("disk full");
  };
  let aborted = 0;
  const { ended } = run(ledger, (lease, signal) => {
    if (lease.item.rowIndex === 0) return Promise.resolve(refused);
    return new Promise((resolve) =>
      signal.addEventListener("abort", () => {
        aborted++;
        resolve({ type: "interrupted", usage: NO_USAGE });
      }),
    );
  });
  await assert.rejects(ended, /disk full/);
  assert.equal(aborted, 1);
});

test("an interrupt releases rows and leases no more", async () => {
  const { ledger, log } = fakeLedger(10);
  const controller = new AbortController();
  const { clock, ended } = run(
    ledger,
    (_lease, signal) =>
      new Promise((resolve) =>
        signal.addEventListener("abort", () => resolve({ type: "interrupted", usage: NO_USAGE })),
      ),
    { signal: controller.signal },
  );
  await clock.advance(1);
  controller.abort(new Error("SIGINT"));
  assert.deepEqual(await ended, { type: "stopped", status: "paused", cause: "interrupted", reason: "interrupted" });
  assert.deepEqual(
    log.filter((line) => line.startsWith("lease") || line.startsWith("release")),
    ["lease row-1", "lease row-2", "release row-1", "release row-2"],
  );
});

test("a status change by another process takes effect at the next poll", async () => {
  const { ledger } = fakeLedger(1);
  const stopped: JobLedger = {
    ...ledger,
    job: async () => ({ ...job, status: "paused", stop: { cause: "other", reason: "quota" } }),
  };
  const done = Promise.withResolvers<RowOutcome>();
  const { clock, ended } = run(stopped, () => done.promise, { pollMs: 100 });
  await clock.advance(150);
  done.resolve(refused);
  assert.deepEqual(await ended, { type: "stopped", status: "paused", cause: "other", reason: "quota" });
});

for (const [cause, aborts] of [
  ["cancelled_by_user", true],
  ["other", false],
] as const) {
  test(`a job that another process cancels with the cause ${cause} ${aborts ? "aborts" : "does not abort"} its rows`, async () => {
    const { ledger } = fakeLedger(1);
    const stop = { cause, reason: CANCELLED_BY_USER.reason };
    const cancelled: JobLedger = { ...ledger, job: async () => ({ ...job, status: "cancelled", stop }) };
    const done = Promise.withResolvers<RowOutcome>();
    let rowSignal: AbortSignal | undefined;
    const row = (_lease: unknown, signal: AbortSignal) => {
      rowSignal = signal;
      return done.promise;
    };
    const { clock, ended } = run(cancelled, row, { pollMs: 100 });
    await clock.advance(150);
    assert.equal(rowSignal?.aborted, aborts);
    done.resolve(refused);
    assert.deepEqual(await ended, { type: "stopped", status: "cancelled", ...stop });
  });
}

test("a poll between the commit of a row and its end does not count its usage twice", async () => {
  const { ledger } = fakeLedger(2);
  const usage = { ...NO_USAGE, inputTokens: 40 };
  let committed = 0;
  const counting: JobLedger = {
    ...ledger,
    counts: async () => ({ ...(await ledger.counts()), usage: { ...NO_USAGE, inputTokens: 40 * committed } }),
  };
  const toolsClosed = Promise.withResolvers<void>();
  const rowAgent: RowAgent = async (lease) => {
    const stored = await ledger.complete(lease, { result: "{}", usage, stop: false });
    assert.ok(stored);
    committed++;
    await toolsClosed.promise;
    return { type: "reported", item: stored, usage, stop: false };
  };
  const { clock, ended } = run(counting, rowAgent, { budget: { tokens: 100 }, isReading: () => false, pollMs: 100 });
  await until("the first row to be committed", () => committed === 1);
  await clock.advance(150);
  toolsClosed.resolve();
  assert.deepEqual(await ended, { type: "finished" });
});

test("a job whose last row uses up the budget is finished, not paused", async () => {
  const usage = { ...NO_USAGE, inputTokens: 50 };
  for (const { rows, expected } of [
    { rows: 2, expected: "finished" },
    { rows: 3, expected: "stopped" },
  ]) {
    const { ledger } = fakeLedger(rows);
    const rowAgent: RowAgent = async (lease) => {
      const stored = await ledger.complete(lease, { result: "{}", usage, stop: false });
      assert.ok(stored);
      return { type: "reported", item: stored, usage, stop: false };
    };
    const { ended } = run(ledger, rowAgent, { budget: { tokens: 100 } });
    assert.equal((await ended).type, expected, `${rows} rows`);
  }
});
