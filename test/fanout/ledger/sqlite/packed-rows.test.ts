import assert from "node:assert/strict";
import { mkdtemp, rm } from "node:fs/promises";
import { tmpdir } from "node:os";
import path from "node:path";
import { test } from "node:test";
import { NO_USAGE } from "../../../../src/agent/token-usage.ts";
import type { ItemRecord, NewItem, NewJob } from "../../../../src/fanout/job.ts";
import type { ItemLease, JobLedger } from "../../../../src/fanout/ledger/job-ledger.ts";
import { PackedRows } from "../../../../src/fanout/ledger/sqlite/packed-rows.ts";
import { SqliteDatabase } from "../../../../src/fanout/ledger/sqlite/sqlite-database.ts";
import { SqliteStore } from "../../../../src/fanout/ledger/sqlite/sqlite-store.ts";
import { ManualClock } from "../../../support/manual-clock.ts";
import { repetitions } from "../../../support/system/repetitions.ts";
import { seededRandom } from "../../run/rate-simulation.ts";
import { PLAIN_TASK } from "../store-contract.ts";

const SEEDS = repetitions(60);
const STEPS = 60;

const JOB: NewJob = {
  id: "11111111-2222-4333-8444-555555555555",
  key: "k",
  task: PLAIN_TASK,
  settings: { maxAttempts: 3, rowTimeoutMs: 1, rowLimit: null },
  inputPath: "a",
  outputPath: "b",
  createdAtMs: 1,
};

/** A ledger with packed rows, and a reference ledger whose rows are unpacked from the beginning. */
interface Pair {
  blocks: JobLedger;
  records: JobLedger;
  /** Gives every row of the second a record. */
  takeApart(): void;
  clock: ManualClock;
}

async function withPair(rows: readonly NewItem[], body: (pair: Pair) => Promise<void>): Promise<void> {
  const home = await mkdtemp(path.join(tmpdir(), "procwire-blocks-"));
  try {
    const clock = new ManualClock();
    const open = async (name: string) => {
      let tokens = 0;
      const store = new SqliteStore(path.join(home, name), { clock, newToken: () => `token-${tokens++}` });
      await store.create(JOB, all(rows), () => ({ headers: ["name"], isReading: true }));
      const ledger = await store.open(JOB.id);
      assert.ok(ledger);
      return ledger;
    };
    await using blocks = await open("blocks");
    await using records = await open("records");
    const db = new SqliteDatabase(path.join(home, "records", JOB.id, "ledger.sqlite"));
    const takeApart = () => {
      const packedRows = new PackedRows(db);
      for (const block of [...packedRows.all()]) db.transaction(() => packedRows.unpack(block));
    };
    takeApart();
    for (const ledger of [blocks, records]) {
      await ledger.acquireRun();
      await ledger.setStatus("running", ["pending"]);
    }
    try {
      await body({ blocks, records, takeApart, clock });
    } finally {
      db.close();
    }
  } finally {
    await rm(home, { recursive: true, force: true, maxRetries: 10 });
  }
}

async function* all(rows: readonly NewItem[]): AsyncGenerator<NewItem> {
  yield* rows;
}

/** Rows whose columns change now and then, at which a block ends. */
function randomRows(random: () => number, from: number, count: number): NewItem[] {
  let column = "name";
  return Array.from({ length: count }, (_, index) => {
    const rowIndex = from + index;
    if (random() < 0.2) column = random() < 0.5 ? "name" : "other";
    const cell = `Cat ${rowIndex}`;
    const kind = random();
    const id = kind < 0.6 ? null : kind < 0.8 ? cell : `own-${rowIndex}`;
    const sourceId = kind < 0.6 ? null : kind < 0.9 ? id : cell;
    return {
      rowIndex,
      itemId: id ?? `row-${rowIndex + 1}`,
      sourceId,
      row: random() < 0.1 ? { [column]: rowIndex } : { first: "x", [column]: cell },
      question: random() < 0.8 ? rowIndex.toString(16).padStart(32, "a") : undefined,
    };
  });
}

async function picture(ledger: JobLedger): Promise<unknown> {
  const items: ItemRecord[] = [];
  for await (const item of ledger.items()) items.push(item);
  const pending: string[] = [];
  for await (const item of ledger.items({ statuses: ["pending"] })) pending.push(item.itemId);
  const pages = [
    await ledger.views.page({}, 5, 7),
    await ledger.views.page({ text: "cat 1" }, 2, 4),
    await ledger.views.page({ statuses: ["pending", "failed"] }, 3, 9),
    await ledger.views.page({ statuses: ["completed"] }, 0, 9),
    await ledger.views.page({ errorClasses: ["schema"] }, 0, 9),
  ];
  return {
    items,
    pending,
    pages,
    counts: await ledger.counts(),
    isDone: await ledger.isDone(),
    due: await ledger.nextDueAtMs(),
    unasked: [await ledger.unattempted(-1, 1_000), await ledger.unattempted(4, 6)],
    found: await ledger.item("own-3"),
    numbered: await ledger.item("row-6"),
    job: (await ledger.job()).totalRows,
  };
}

test("packed rows behave like unpacked rows after any sequence of operations", async () => {
  for (let seed = 0; seed < SEEDS; seed++) {
    const random = seededRandom(seed);
    const rows = randomRows(random, 0, 1 + Math.floor(random() * 40));
    await withPair(rows, async ({ blocks, records, takeApart, clock }) => {
      const both = async <T>(what: (ledger: JobLedger) => Promise<T>): Promise<T> => {
        const [first, second] = [await what(blocks), await what(records)];
        assert.deepEqual(first, second, `seed ${seed}`);
        return first;
      };
      let total = rows.length;
      let held: ItemLease[] = [];
      for (let step = 0; step < STEPS; step++) {
        const kind = random();
        const [lease] = held;
        if (kind < 0.3) {
          const count = 1 + Math.floor(random() * 5);
          held = [...held, ...(await both((ledger) => ledger.lease(count)))];
        } else if (kind < 0.5 && lease) {
          held = held.slice(1);
          await both((ledger) => ledger.complete(lease, { result: "{}", usage: NO_USAGE, stop: false }));
        } else if (kind < 0.6 && lease) {
          held = held.slice(1);
          const failure = { errorClass: "schema", message: "no", usage: NO_USAGE } as const;
          const delayMs = random() < 0.5 ? 0 : 5_000;
          if (random() < 0.5) await both((ledger) => ledger.fail(lease, failure));
          else await both((ledger) => ledger.retry(lease, failure, delayMs));
        } else if (kind < 0.7) {
          const added = randomRows(random, total, 1 + Math.floor(random() * 20));
          const answered = added.filter(() => random() < 0.2);
          const answer = { question: "", result: "{}", jobId: "other", itemId: "row-1" };
          await both((ledger) =>
            ledger.appendRows(
              added,
              answered.map(({ rowIndex }) => ({ rowIndex, answer })),
            ),
          );
          total += added.length;
          takeApart();
        } else if (kind < 0.75) {
          const unasked = await both((ledger) => ledger.unattempted(-1, 50));
          const found = unasked.filter(() => random() < 0.1);
          const answer = { question: "", result: "{}", jobId: "other", itemId: "row-1" };
          await both((ledger) => ledger.completeWithReused(found.map(({ rowIndex }) => ({ rowIndex, answer }))));
        } else if (kind < 0.85) {
          const rowLimit = random() < 0.5 ? null : Math.floor(random() * total);
          const onlyItems = random() < 0.7 ? undefined : [`row-${1 + Math.floor(random() * total)}`];
          const settings = { ...JOB.settings, rowLimit, onlyItems, batch: random() < 0.1 };
          await both((ledger) => ledger.setOptions({ settings, outputPath: "out.csv" }));
        } else if (kind < 0.9) {
          const fresh = await both((ledger) => ledger.batches.newRows(-1, 1 + Math.floor(step / 8)));
          await both((ledger) =>
            ledger.batches.assign(
              `part-${step}`,
              fresh.map(({ rowIndex }) => rowIndex),
            ),
          );
        } else await clock.advance(3_000);
        await both(picture);
      }
    });
  }
});

test("rows that another process unpacks meanwhile are read once each", async () => {
  const rows = randomRows(seededRandom(1), 0, 200);
  await withPair(rows, async ({ blocks }) => {
    const seen: number[] = [];
    for await (const { rowIndex } of blocks.items()) {
      seen.push(rowIndex);
      if (rowIndex % 7 === 0) await blocks.lease(11);
    }
    assert.deepEqual(
      seen,
      rows.map(({ rowIndex }) => rowIndex),
    );
  });
});

test("rows that are appended twice stay unchanged", async () => {
  const rows = randomRows(seededRandom(2), 0, 30);
  await withPair(rows, async ({ blocks }) => {
    await blocks.lease(3);
    const before = await picture(blocks);
    await blocks.appendRows(rows, []);
    await blocks.appendRows(rows.slice(10), []);
    assert.deepEqual(await picture(blocks), before);
  });
});
