import assert from "node:assert/strict";
import { test } from "node:test";
import { inputTexts, report } from "../../support/models/mock-responses.ts";
import { catTable, FanoutHarness } from "../fanout-harness.ts";

const LONG = "Keep to the rules of the house. ".repeat(200);

test("one row sends a long common prefix first, and the others follow when it is cached", async () => {
  let isKnown = false;
  await using harness = await FanoutHarness.open(async (request) => {
    if (request.index > 0) {
      assert.ok(isKnown, "a second row was executed before the first was answered");
      return report(request);
    }
    // Without warming, all slots would have sent their requests before.
    await new Promise((wake) => setTimeout(wake, 100));
    isKnown = true;
    return report(request);
  });
  const run = { table: catTable(8), concurrency: 8, task: { instruction: `${LONG}About {name}.` } };
  assert.equal((await harness.run(run)).summary.job.status, "completed");
  assert.equal(harness.asked.length, 8);
  const texts = harness.mock.requests.map((request) => inputTexts(request.body)[0] ?? "");
  const [first = ""] = texts;
  const common = [...first].findIndex((char, at) => texts.some((text) => text[at] !== char));
  assert.ok(common > LONG.length, `${common} characters are common to all rows`);
});

test("all slots start at once if the common prefix is short", async () => {
  const all = Promise.withResolvers<void>();
  await using harness = await FanoutHarness.open(async (request) => {
    if (harness.mock.requests.length === 4) all.resolve();
    await all.promise;
    return report(request);
  });
  const { summary } = await harness.run({ table: catTable(4), concurrency: 4 });
  assert.equal(summary.job.status, "completed");
});
