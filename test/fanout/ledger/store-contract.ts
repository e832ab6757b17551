import assert from "node:assert/strict";
import { suite, test } from "node:test";
import { asBatched, NO_USAGE } from "../../../src/agent/token-usage.ts";
import type { ItemRecord, ItemStatus, JobTask, NewItem, NewJob } from "../../../src/fanout/job.ts";
import type { JobLedger, JobStore } from "../../../src/fanout/ledger/job-ledger.ts";

/** Task of a job for tests that do not depend on the task. */
export const PLAIN_TASK: JobTask = {
  instruction: "x",
  schema: null,
  model: "m",
  reasoningEffort: null,
  tools: "none",
  idColumn: null,
};

/** Operations that the contract tests need from a store. */
export interface StoreHarness {
  store: JobStore;
  /** Lets this much time pass for the store. */
  pass(ms: number): Promise<void>;
  /** Leaves a ledger as a killed process does, and opens it as the next process would. */
  afterDeath(ledger: JobLedger): Promise<JobLedger>;
  close(): Promise<void>;
}

const usage = { inputTokens: 10, cachedInputTokens: 4, outputTokens: 2, reasoningOutputTokens: 1 };

let made = 0;

function newJob(extra: Partial<NewJob> = {}): NewJob {
  made++;
  return {
    id: crypto.randomUUID(),
    key: `key-${process.pid}-${made}`,
    task: {
      instruction: "look at {name}",
      schema: { type: "object" },
      model: "m",
      reasoningEffort: null,
      tools: "none",
      idColumn: null,
    },
    settings: { maxAttempts: 3, rowTimeoutMs: 1000, rowLimit: null, reuse: true },
    inputPath: "in.csv",
    outputPath: "out.csv",
    createdAtMs: 1_700_000_000_000 + made,
    ...extra,
  };
}

async function* rows(count: number): AsyncGenerator<NewItem> {
  for (let index = 0; index < count; index++) {
    yield { itemId: `row-${index + 1}`, rowIndex: index, sourceId: null, row: { name: `cat_${index + 1}` } };
  }
}

async function collect<T>(items: AsyncIterable<T>): Promise<T[]> {
  const all: T[] = [];
  for await (const item of items) all.push(item);
  return all;
}

/** The contract that every kind of store keeps. */
export function storeContract(name: string, open: () => Promise<StoreHarness>): void {
  // Concurrently: a store has to support that, and slow tests mostly wait.
  suite(`${name} store contract`, { concurrency: 4 }, () => promises(name, open));
}

function promises(name: string, open: () => Promise<StoreHarness>): void {
  const contract = (what: string, body: (harness: StoreHarness) => Promise<void>): void => {
    test(`${name}: ${what}`, async () => {
      const harness = await open();
      try {
        await body(harness);
      } finally {
        await harness.close();
      }
    });
  };

  async function started(harness: StoreHarness, count: number, extra: Partial<NewJob> = {}): Promise<JobLedger> {
    const job = await harness.store.create(newJob(extra), rows(count), () => ({
      headers: ["name"],
      isReading: false,
    }));
    const ledger = await harness.store.open(job.id);
    assert.ok(ledger);
    assert.equal(await ledger.acquireRun(), true);
    assert.equal(await ledger.setStatus("running", ["pending"]), true);
    return ledger;
  }

  async function leaseOne(ledger: JobLedger) {
    const [lease] = await leaseSome(ledger, 1);
    assert.ok(lease, "a row to lease");
    return lease;
  }

  /** A delivery engine may deliver fewer rows at a time than requested. */
  async function leaseSome(ledger: JobLedger, count: number) {
    const leases = [];
    for (let tries = 0; leases.length < count && tries < 200; tries++) {
      leases.push(...(await ledger.lease(count - leases.length)));
    }
    return leases.sort((a, b) => a.item.rowIndex - b.item.rowIndex);
  }

  const statuses = async (ledger: JobLedger): Promise<ItemStatus[]> =>
    (await collect(ledger.items())).map((item) => item.status);

  contract("a run leases only the items that it selects, and is done when they are finished", async (harness) => {
    const ledger = await started(harness, 4);
    const { settings, outputPath } = await ledger.job();
    await ledger.setOptions({ settings: { ...settings, onlyItems: ["row-3"] }, outputPath });
    assert.deepEqual((await ledger.job()).settings.onlyItems, ["row-3"]);
    const lease = await leaseOne(ledger);
    assert.equal(lease.item.itemId, "row-3");
    assert.equal(await ledger.isDone(), false);
    await ledger.complete(lease, { result: "{}", usage, stop: false });
    assert.equal(await ledger.isDone(), true);
    for (let tries = 0; tries < 5; tries++) assert.deepEqual(await ledger.lease(4), []);
    await ledger.setOptions({ settings, outputPath });
    assert.equal(await ledger.isDone(), false);
    assert.equal((await leaseSome(ledger, 3)).length, 3);
    await ledger[Symbol.asyncDispose]();
  });

  contract("find returns a created job with its task, settings, paths and columns", async ({ store }) => {
    const job = newJob();
    const record = await store.create(job, rows(3), () => ({ headers: ["name"], isReading: false }));
    assert.deepEqual(await store.find(job.key), record);
    assert.deepEqual(record, {
      ...job,
      name: `agent-job-${job.id.slice(0, 8)}`,
      headers: ["name"],
      totalRows: 3,
      isReading: false,
      status: "pending",
      stop: null,
      updatedAtMs: job.createdAtMs,
      startedAtMs: null,
      completedAtMs: null,
    });
    assert.equal(await store.find("no such key"), null);
  });

  contract("every attempt at a row is stored with its transcript", async (harness) => {
    await using ledger = await started(harness, 1);
    const said = (text: string) => JSON.stringify([{ type: "said", text }]);
    const failure = { errorClass: "schema", message: "bad", usage } as const;
    await ledger.release(await leaseOne(ledger), NO_USAGE);
    await ledger.release(await leaseOne(ledger), usage, said("given back"));
    await ledger.retry(await leaseOne(ledger), { ...failure, transcript: said("wrong\0") }, 0);
    await ledger.fail(await leaseOne(ledger), failure);
    assert.equal(await ledger.retryFailed({}), 1);
    const lease = await leaseOne(ledger);
    const report = { result: "{}", usage, stop: false, transcript: said("right") };
    assert.ok(await ledger.complete(lease, report));
    assert.equal(await ledger.complete(lease, report), null);
    const attempts = await ledger.attempts("row-1");
    assert.deepEqual(
      attempts.map(({ outcome, errorClass, message }) => [outcome, errorClass, message]),
      [
        ["released", null, null],
        ["retried", "schema", "bad"],
        ["failed", "schema", "bad"],
        ["reported", null, null],
      ],
    );
    assert.deepEqual(attempts[3]?.transcript, [{ type: "said", text: "right" }]);
    assert.deepEqual(attempts[2]?.transcript, []);
    assert.deepEqual(attempts[3]?.usage, usage);
    assert.ok((attempts[3]?.startedAtMs ?? 0) > 0);
    assert.deepEqual(await ledger.attempts("row-2"), []);
  });

  contract("a row without an attempt takes another job's answer to the same question", async (harness) => {
    const { store } = harness;
    const stem = crypto.randomUUID().replaceAll("-", "").slice(1);
    const asking = async function* (names: string) {
      for (const [index, name] of [...names].entries()) {
        const question = `${stem}${name}`;
        yield { itemId: `${name}${index}`, rowIndex: index, sourceId: null, row: { name }, question };
      }
    };
    const questions = (await collect(asking("abc"))).map((item) => item.question);
    const open = async (names: string) => {
      const job = await store.create(newJob(), asking(names), () => ({
        headers: ["name"],
        isReading: false,
      }));
      const ledger = await store.open(job.id);
      assert.ok(ledger);
      await ledger.acquireRun();
      await ledger.setStatus("running", ["pending"]);
      return ledger;
    };
    await using first = await open("ab");
    for (const lease of await leaseSome(first, 2)) {
      if (lease.item.itemId === "a0") await first.complete(lease, { result: '{"n":1}', usage, stop: false });
      else await first.fail(lease, { errorClass: "schema", message: "no", usage });
    }
    await using second = await open("cba");
    await using source = await store.answersFromOtherJobs(second.jobId);
    const found = await source.find(questions);
    assert.deepEqual(found, [{ question: questions[0], result: '{"n":1}', jobId: first.jobId, itemId: "a0" }]);
    const unasked = await second.unattempted(-1, 10);
    assert.deepEqual(
      unasked.map((row) => row.rowIndex),
      [0, 1, 2],
    );
    const [answer] = found;
    assert.ok(answer);
    assert.equal(await second.completeWithReused([{ rowIndex: 2, answer }]), 1);
    assert.equal(await second.completeWithReused([{ rowIndex: 2, answer }]), 0);
    const item = await second.item("a2");
    assert.deepEqual([item?.status, item?.result, item?.usage], ["completed", '{"n":1}', NO_USAGE]);
    const [attempt] = await second.attempts("a2");
    assert.deepEqual([attempt?.outcome, attempt?.message], ["reused", `answered by item a0 of job ${first.jobId}`]);
    // A job does not reuse its own answers, and a row that failed and is retried needs a new answer.
    assert.equal(await first.retryFailed({}), 1);
    assert.deepEqual(await first.unattempted(-1, 10), []);
    await using own = await store.answersFromOtherJobs(first.jobId);
    assert.deepEqual(
      (await own.find(questions)).map((one) => one.jobId),
      [second.jobId],
    );
  });

  contract("a job is removed with its rows, and its key no longer names a job", async (harness) => {
    const { store } = harness;
    const job = newJob();
    await store.create(job, rows(2), () => ({ headers: ["name"], isReading: false }));
    const remaining = await store.create(newJob(), rows(1), () => ({ headers: ["name"], isReading: false }));
    assert.equal(await store.remove("no such job"), null);
    assert.equal(await store.remove(job.id.slice(0, 13)), job.id);
    assert.equal(await store.find(job.key), null);
    assert.equal(await store.open(job.id), null);
    assert.ok((await store.list()).some((one) => one.id === remaining.id));
    assert.equal(
      (
        await store.create({ ...job, id: crypto.randomUUID() }, rows(1), () => ({
          headers: ["name"],
          isReading: false,
        }))
      ).totalRows,
      1,
    );
    await using running = await started(harness, 1);
    await assert.rejects(store.remove(running.jobId), /is (being run by another process|running)/);
  });

  contract("an error while the rows are read leaves no job behind", async ({ store }) => {
    const job = newJob();
    const broken = async function* () {
      yield* rows(2);
      throw new Error("row 3 is broken");
    };
    await assert.rejects(
      store.create(job, broken(), () => ({ headers: ["name"], isReading: false })),
      /row 3 is broken/,
    );
    assert.equal(await store.find(job.key), null);
    assert.equal(await store.open(job.id), null);
    assert.ok((await store.list()).every((other) => other.id !== job.id));
  });

  contract("a newer job takes over the key; the list has both, newest first", async ({ store }) => {
    const first = newJob();
    const second = newJob({ key: first.key });
    await store.create(first, rows(1), () => ({ headers: ["name"], isReading: false }));
    await store.create(second, rows(1), () => ({ headers: ["name"], isReading: false }));
    assert.equal((await store.find(first.key))?.id, second.id);
    const ids = (await store.list()).map((job) => job.id);
    assert.ok(ids.indexOf(second.id) < ids.indexOf(first.id));
    assert.ok(ids.includes(first.id));
  });

  contract("a job is opened by the beginning of its id unless that is ambiguous", async ({ store }) => {
    const id = crypto.randomUUID();
    const twin = `${id.slice(0, -1)}${id.endsWith("0") ? "1" : "0"}`;
    await store.create(newJob({ id }), rows(1), () => ({ headers: ["name"], isReading: false }));
    await using ledger = await store.open(id.slice(0, 8));
    assert.equal(ledger?.jobId, id);
    await store.create(newJob({ id: twin }), rows(1), () => ({ headers: ["name"], isReading: false }));
    await assert.rejects(store.open(id.slice(0, 8)), /ambiguous/);
    assert.equal(await store.open("ffffffff-no-such"), null);
  });

  contract("a job without rows leases nothing and counts zero", async (harness) => {
    await using ledger = await started(harness, 0);
    assert.deepEqual(await ledger.lease(5), []);
    assert.deepEqual(await ledger.counts(), {
      total: 0,
      pending: 0,
      running: 0,
      completed: 0,
      failed: 0,
      finishedWithUsage: 0,
      usage: NO_USAGE,
    });
  });

  contract("each row is leased once, and its attempt counts", async (harness) => {
    await using ledger = await started(harness, 5);
    const first = await leaseSome(ledger, 2);
    const rest = await leaseSome(ledger, 3);
    const leased = [...first, ...rest].map((lease) => lease.item.rowIndex).sort();
    assert.deepEqual(leased, [0, 1, 2, 3, 4]);
    assert.ok([...first, ...rest].every(({ item }) => item.status === "running" && item.attempts === 1));
    assert.deepEqual(first[0]?.item.row, { name: `cat_${(first[0]?.item.rowIndex ?? 0) + 1}` });
    assert.deepEqual(await ledger.lease(1), []);
    assert.equal((await ledger.counts()).running, 5);
  });

  contract("the first report wins and every later outcome of the attempt is rejected", async (harness) => {
    await using ledger = await started(harness, 1);
    const lease = await leaseOne(ledger);
    const completed = await ledger.complete(lease, { result: '{"n":1}', usage, stop: false });
    assert.equal(await ledger.complete(lease, { result: '{"n":2}', usage, stop: true }), null);
    assert.equal(await ledger.fail(lease, { errorClass: "timeout", message: "late", usage }), null);
    assert.equal(await ledger.retry(lease, { errorClass: "timeout", message: "late", usage }, 0), false);
    assert.equal(await ledger.release(lease, usage), false);
    const item = await ledger.item("row-1");
    assert.deepEqual(item, completed, "the report gives back the row as the ledger has it");
    assert.equal(item?.status, "completed");
    assert.equal(item?.result, '{"n":1}');
    assert.ok(item?.reportedAtMs !== null && item?.completedAtMs !== null);
    assert.deepEqual(item?.usage, usage);
    assert.equal((await ledger.job()).status, "running");
    assert.deepEqual(await ledger.lease(1), []);
  });

  contract("a report with stop cancels the job in the same transaction", async (harness) => {
    await using ledger = await started(harness, 2);
    const lease = await leaseOne(ledger);
    await ledger.complete(lease, { result: "{}", usage, stop: true });
    const job = await ledger.job();
    assert.equal(job.status, "cancelled");
    assert.deepEqual(job.stop, { cause: "cancelled_by_row_agent", reason: "cancelled by worker request" });
    assert.deepEqual((await statuses(ledger)).sort(), ["completed", "pending"]);
    assert.deepEqual(await ledger.lease(1), []);
  });

  contract("a retried row is leased after its delay with the next attempt number and a new token", async (harness) => {
    await using ledger = await started(harness, 1);
    const first = await leaseOne(ledger);
    assert.equal(await ledger.retry(first, { errorClass: "no_report", message: "silent", usage }, 400), true);
    assert.deepEqual(await ledger.lease(1), []);
    const waiting = await ledger.item("row-1");
    assert.equal(waiting?.status, "pending");
    assert.equal(waiting?.errorClass, "no_report");
    assert.equal(typeof (await ledger.nextDueAtMs()), "number");
    await harness.pass(1500);
    const second = await leaseOne(ledger);
    assert.equal(second.item.attempts, 2);
    assert.notEqual(second.leaseToken, first.leaseToken);
    assert.equal(await ledger.complete(first, { result: "{}", usage, stop: false }), null);
    assert.ok(await ledger.complete(second, { result: "{}", usage, stop: false }));
    const item = await ledger.item("row-1");
    assert.equal(item?.error, null);
    assert.equal(item?.usage.inputTokens, 20);
  });

  contract("a released row is leased again at once, and its attempt does not count", async (harness) => {
    await using ledger = await started(harness, 1);
    const first = await leaseOne(ledger);
    assert.equal(await ledger.release(first, usage), true);
    const second = await leaseOne(ledger);
    assert.equal(second.item.attempts, 1);
    assert.equal(second.item.usage.inputTokens, 10);
  });

  contract("rows with an earlier attempt are left to single calls once the job uses batches", async (harness) => {
    const ledger = await started(harness, 3);
    const [retried, failed] = await leaseSome(ledger, 2);
    assert.ok(retried && failed);
    const failure = { errorClass: "schema", message: "bad", usage } as const;
    await ledger.retry(retried, failure, 0);
    await ledger.fail(failed, failure);
    const { settings, outputPath } = await ledger.job();
    await ledger.setOptions({ settings: { ...settings, batch: true }, outputPath });
    assert.equal(await ledger.retryFailed({}), 1);
    assert.deepEqual(
      (await ledger.batches.newRows(-1, 3)).map((item) => item.itemId),
      ["row-3"],
    );
    assert.deepEqual(
      (await leaseSome(ledger, 2)).map(({ item }) => item.itemId),
      ["row-1", "row-2"],
    );
  });

  contract("the budget includes the usage of a batch result without an answer", async (harness) => {
    const ledger = await started(harness, 1);
    const { settings, outputPath } = await ledger.job();
    await ledger.setOptions({ settings: { ...settings, batch: true, budget: { tokens: 100 } }, outputPath });
    const [row] = await ledger.batches.newRows(-1, 1);
    assert.ok(row);
    assert.equal(await ledger.batches.assign("group", [row.rowIndex]), 1);
    assert.equal(await ledger.batches.release("group", row.rowIndex, asBatched(usage)), true);
    const spending = await ledger.spending();
    assert.deepEqual(spending?.used ?? asBatched(usage), asBatched(usage));
    assert.deepEqual((await ledger.counts()).usage, asBatched(usage));
  });

  contract("a failed row is not leased again until it is retried", async (harness) => {
    await using ledger = await started(harness, 3);
    for (const errorClass of ["schema", "timeout", "refused"] as const) {
      const message = `for ${errorClass}`;
      const failed = await ledger.fail(await leaseOne(ledger), { errorClass, message, usage });
      assert.ok(failed);
      assert.deepEqual(await ledger.item(failed.itemId), failed);
      assert.deepEqual([failed.errorClass, failed.error], [errorClass, message]);
    }
    assert.deepEqual(await ledger.lease(3), []);
    assert.equal((await ledger.counts()).failed, 3);
    assert.equal(await ledger.retryFailed({ errorClasses: ["schema"] }), 1);
    const byId = (await collect(ledger.items({ statuses: ["failed"] })))[0];
    assert.ok(byId);
    assert.equal(await ledger.retryFailed({ itemIds: [byId.itemId, "no such row"] }), 1);
    assert.equal((await leaseSome(ledger, 2)).length, 2);
    assert.equal(await ledger.retryFailed({}), 1);
    assert.equal((await leaseOne(ledger)).item.attempts, 1);
  });

  contract("rows of a dead process are leased again, and their attempts do not count", async (harness) => {
    const dying = await started(harness, 3);
    const [finished] = await leaseSome(dying, 3);
    assert.ok(finished);
    await dying.complete(finished, { result: "{}", usage, stop: false });
    await using ledger = await harness.afterDeath(dying);
    assert.equal(await ledger.acquireRun(), true);
    const again = await leaseSome(ledger, 2);
    assert.equal(again.length, 2);
    assert.ok(again.every(({ item }) => item.attempts === 1 && item.itemId !== finished.item.itemId));
  });

  contract("a job's status changes only from the given statuses", async (harness) => {
    await using ledger = await started(harness, 1);
    assert.equal(await ledger.setStatus("completed", ["pending"]), false);
    assert.equal(await ledger.setStatus("paused", ["running"], { cause: "other", reason: "quota" }), true);
    const paused = await ledger.job();
    assert.equal(paused.status, "paused");
    assert.deepEqual(paused.stop, { cause: "other", reason: "quota" });
    assert.equal(paused.completedAtMs, null);
    assert.ok(paused.startedAtMs !== null);
    assert.equal(await ledger.setStatus("running", ["paused"]), true);
    assert.equal((await ledger.job()).stop, null);
    assert.equal(await ledger.setStatus("cancelled", ["running"]), true);
    assert.ok((await ledger.job()).completedAtMs !== null);
  });

  contract("a row limit excludes later rows from leases, counts and items", async (harness) => {
    await using ledger = await started(harness, 5, {
      settings: { maxAttempts: 3, rowTimeoutMs: 1000, rowLimit: 2 },
    });
    assert.equal((await leaseSome(ledger, 2)).length, 2);
    assert.deepEqual(await ledger.lease(5), []);
    assert.equal((await ledger.counts()).total, 2);
    assert.equal((await collect(ledger.items())).length, 2);
    const settings = { maxAttempts: 5, rowTimeoutMs: 9, rowLimit: null, reuse: true };
    await ledger.setOptions({ settings, outputPath: "other.csv" });
    assert.equal((await ledger.counts()).total, 5);
    assert.equal((await leaseSome(ledger, 3)).length, 3);
    const job = await ledger.job();
    assert.deepEqual(job.settings, settings);
    assert.equal(job.outputPath, "other.csv");
  });

  contract("a row limit that is set later applies, and the rows return when it is removed", async (harness) => {
    await using ledger = await started(harness, 5);
    const settings = { maxAttempts: 3, rowTimeoutMs: 1000, rowLimit: 2 as number | null };
    await ledger.setOptions({ settings, outputPath: "out.csv" });
    const first = await leaseSome(ledger, 2);
    assert.deepEqual(
      first.map((lease) => lease.item.rowIndex),
      [0, 1],
    );
    for (let looks = 0; looks < 3; looks++) assert.deepEqual(await ledger.lease(5), []);
    await ledger.setOptions({ settings: { ...settings, rowLimit: null }, outputPath: "out.csv" });
    const rest = await leaseSome(ledger, 3);
    assert.deepEqual(
      rest.map((lease) => [lease.item.rowIndex, lease.item.attempts]),
      [
        [2, 1],
        [3, 1],
        [4, 1],
      ],
    );
  });

  contract("items are in table order, in whatever order they finished", async (harness) => {
    await using ledger = await started(harness, 1203);
    const leases = await leaseSome(ledger, 1203);
    for (const lease of leases.toReversed()) {
      if (lease.item.rowIndex % 2 === 0) {
        await ledger.complete(lease, { result: "{}", usage: NO_USAGE, stop: false });
      }
    }
    const all = await collect(ledger.items());
    assert.deepEqual(
      all.map((item) => item.rowIndex),
      Array.from({ length: 1203 }, (_, index) => index),
    );
    const completed = await collect(ledger.items({ statuses: ["completed"] }));
    assert.equal(completed.length, 602);
    const settled = await collect(ledger.finishedSince(0));
    const byEnd = (item: ItemRecord, other: ItemRecord) =>
      (item.completedAtMs ?? 0) - (other.completedAtMs ?? 0) || item.rowIndex - other.rowIndex;
    assert.deepEqual(settled, completed.toSorted(byEnd));
    const [last] = settled.slice(-1);
    const lastMs = last?.completedAtMs ?? 0;
    assert.deepEqual(
      await collect(ledger.finishedSince(lastMs)),
      settled.filter((item) => item.completedAtMs === lastMs),
    );
    assert.deepEqual(await collect(ledger.finishedSince(lastMs + 1)), []);
  });

  contract("a page of rows is filtered by status, class and text at any offset", async (harness) => {
    await using ledger = await started(harness, 120);
    const leases = await leaseSome(ledger, 60);
    for (const lease of leases) {
      const { rowIndex } = lease.item;
      if (rowIndex % 3 === 0) {
        await ledger.complete(lease, { result: `{"said":"Blue_${rowIndex}"}`, usage, stop: false });
      } else if (rowIndex % 3 === 1) {
        const errorClass = rowIndex % 2 === 0 ? "schema" : "timeout";
        await ledger.fail(lease, { errorClass, message: `100% wrong at ${rowIndex}`, usage });
      }
    }
    const { views } = ledger;
    const ids = async (...query: Parameters<typeof views.page>) => {
      const { total, items } = await views.page(...query);
      return [total, ...items.map(({ rowIndex }) => rowIndex)];
    };
    assert.deepEqual(await ids({}, 0, 3), [120, 0, 1, 2]);
    assert.deepEqual(await ids({}, 117, 10), [120, 117, 118, 119]);
    assert.deepEqual(await ids({}, 500, 10), [120]);
    assert.deepEqual(await ids({ statuses: ["completed"] }, 18, 5), [20, 54, 57]);
    assert.deepEqual(await ids({ statuses: ["running", "failed"] }, 0, 4), [40, 1, 2, 4, 5]);
    assert.deepEqual(await ids({ errorClasses: ["schema"] }, 1, 2), [10, 10, 16]);
    assert.deepEqual(await ids({ text: "CAT_120" }, 0, 9), [1, 119]);
    assert.deepEqual(await ids({ text: "blue_3" }, 0, 2), [5, 3, 30]);
    assert.deepEqual(await ids({ text: "100% wrong at 5" }, 0, 9), [3, 52, 55, 58]);
    assert.deepEqual(await ids({ text: "1__% wrong" }, 0, 9), [0]);
    const settings = { maxAttempts: 3, rowTimeoutMs: 1000, rowLimit: 10 };
    await ledger.setOptions({ settings, outputPath: "out.csv" });
    assert.deepEqual(await ids({ statuses: ["completed"] }, 0, 9), [4, 0, 3, 6, 9]);
  });

  contract("the store counts failures, waits and the rows of each second", async (harness) => {
    await using ledger = await started(harness, 6);
    const { views } = ledger;
    assert.deepEqual(await views.failures(), []);
    assert.deepEqual(await views.finishedPerInterval(0, 1000), []);
    const [a, b, c, d, e] = await leaseSome(ledger, 5);
    assert.ok(a && b && c && d && e);
    const failure = { message: "no", usage } as const;
    await harness.pass(1_234);
    await ledger.fail(a, { ...failure, errorClass: "timeout" });
    await ledger.fail(b, { ...failure, errorClass: "schema" });
    await ledger.fail(c, { ...failure, errorClass: "schema" });
    await ledger.complete(d, { result: "{}", usage, stop: false });
    await ledger.retry(e, { ...failure, errorClass: "rate_limit" }, 60_000);
    assert.deepEqual(
      (await views.failures()).map((group) => [group.errorClass, group.rows, group.usage.inputTokens]),
      [
        ["schema", 2, 20],
        ["timeout", 1, 10],
      ],
    );
    const endedAtMs = (await ledger.item(d.item.itemId))?.completedAtMs ?? 0;
    assert.deepEqual(await views.waits(endedAtMs), { backingOff: 1, refusedForRate: 1 });
    assert.deepEqual(await views.waits(endedAtMs + 120_000), { backingOff: 0, refusedForRate: 1 });
    const spans = await views.finishedPerInterval(0, 1000);
    assert.deepEqual(
      [spans.reduce((sum, span) => sum + span.completed, 0), spans.reduce((sum, span) => sum + span.failed, 0)],
      [1, 3],
    );
    assert.ok(spans.every(({ atMs }) => atMs % 1000 === 0 && atMs <= endedAtMs));
    assert.equal((await views.finishedPerInterval(0, 3_600_000)).length, 1);
    assert.deepEqual(await views.finishedPerInterval(endedAtMs + 1, 1000), []);
  });
}
