import assert from "node:assert/strict";
import { test } from "node:test";
import { randomSample } from "../../../src/fanout/input/random-sample.ts";
import { report } from "../../support/models/mock-responses.ts";
import { catTable, FanoutHarness } from "../fanout-harness.ts";

async function pick(rows: number, size: number, seed: string): Promise<string[]> {
  const items = async function* () {
    for (let index = 0; index < rows; index++) {
      yield { itemId: `${index}`, rowIndex: index, sourceId: null, row: {} };
    }
  };
  const ids: string[] = [];
  for await (const item of randomSample(items(), size, seed)) {
    assert.equal(item.rowIndex, ids.length);
    ids.push(item.itemId);
  }
  return ids;
}

test("a random sample is uniform, and the same seed selects the same rows", async () => {
  const times = new Array<number>(20).fill(0);
  for (let seed = 0; seed < 2_000; seed++) {
    const ids = await pick(20, 5, (seed * 2_654_435_761).toString(16).padStart(8, "0").slice(-8));
    assert.equal(new Set(ids).size, 5);
    for (const id of ids) times[Number(id)] = (times[Number(id)] ?? 0) + 1;
  }
  // 500 are expected each; six standard deviations are about 116.
  for (const count of times) assert.ok(Math.abs(count - 500) < 120, times.join(" "));
  assert.deepEqual(await pick(1_000, 10, "deadbeef"), await pick(1_000, 10, "deadbeef"));
  assert.deepEqual(await pick(3, 10, "00"), ["0", "1", "2"]);
});

test("a random sample is a separate job that resumes like any other, with the ids of the whole table", async () => {
  await using harness = await FanoutHarness.open((request) => report(request));
  const run = { table: catTable(50), parseOptions: { randomSample: 5 } };
  const { summary } = await harness.run(run);
  assert.equal(summary.job.status, "completed");
  assert.equal(summary.counts.total, 5);
  const rows = await harness.output();
  for (const row of rows) assert.equal(row.item_id?.replace("row-", "cat_"), row.name);
  assert.notDeepEqual(
    rows.map((row) => row.name),
    ["cat_1", "cat_2", "cat_3", "cat_4", "cat_5"],
  );
  await harness.run(run);
  assert.equal(harness.mock.requests.length, 5);
});
