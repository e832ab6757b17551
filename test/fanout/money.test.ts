import assert from "node:assert/strict";
import { readdir, readFile, writeFile } from "node:fs/promises";
import path from "node:path";
import { test } from "node:test";
import { NO_USAGE } from "../../src/agent/token-usage.ts";
import { costInUsd, formatUsdExact, PACKAGE_PRICES, PRICES_AS_OF } from "../../src/fanout/cost/price-table.ts";
import { completed, type MockAnswer, type MockRequest, report, says } from "../support/models/mock-responses.ts";
import { runCli } from "../support/servers/run-cli.ts";
import { catTable, FanoutHarness } from "./fanout-harness.ts";

const ROOT = path.join(import.meta.dirname, "../..");

type Used = { input?: number; output?: number; cached?: number };

/** The same answer with the given usage. */
function priced(answer: MockAnswer, used: Used): MockAnswer {
  assert.equal(answer.type, "sse");
  return { ...answer, events: [...answer.events.slice(0, -1), completed(used)] };
}

const dear = (request: MockRequest) => priced(report(request), { input: 80, output: 20 });

test("a budget is reserved before a row starts, for any concurrency", async () => {
  await using harness = await FanoutHarness.open(dear);
  const end = await harness.run({ table: catTable(40), concurrency: 16, budget: { tokens: 750 } });
  assert.equal(end.summary.job.status, "paused");
  assert.equal(end.summary.job.stop?.reason, "the budget of 750 tokens is used up (700 used)");
  assert.equal(harness.asked.length, 7);
  const more = await harness.run({ table: catTable(40), concurrency: 16, budget: { tokens: 1_250 } });
  assert.equal(more.summary.job.status, "paused");
  assert.equal(harness.asked.length, 12);
});

test("rows of growing cost exceed the budget by no more than one row", async () => {
  await using harness = await FanoutHarness.open((request) =>
    priced(report(request), { input: 50 + 10 * request.index, output: 0 }),
  );
  const budget = { tokens: 1_000 };
  const end = await harness.run({ table: catTable(60), concurrency: 8, budget });
  const { inputTokens } = end.summary.counts.usage;
  const dearest = 50 + 10 * harness.asked.length;
  assert.equal(end.summary.job.status, "paused");
  assert.ok(inputTokens <= 1_000 + dearest, `${inputTokens} of 1000`);
});

test("a budget in dollars pauses a job, and the cost of job, row and failure class is shown", async () => {
  await using harness = await FanoutHarness.open((request) =>
    request.item?.itemId === "row-1"
      ? // The agent gets one reminder to report, so the row costs this twice.
        priced(says("no"), { input: 500, output: 50 })
      : priced(report(request), { input: 1_000, output: 100, cached: 500 }),
  );
  const options = {
    cwd: harness.directory,
    env: { OPENAI_BASE_URL: harness.mock.url, PROCWIRE_HOME: harness.directory },
  };
  await writeFile(path.join(harness.directory, "a.csv"), catTable(10));
  // A dollar a thousand in, half of it cached, and ten out: 1.00 + 1.00, and 0.55 + 1.00 with the cache.
  const prices = { m1: { input: 1_000, cachedInput: 100, output: 10_000 } };
  await writeFile(path.join(harness.directory, "prices.json"), JSON.stringify(prices));
  const fanout = ["fanout", "a.csv", "--instruction", "{name}", "--max-attempts", "1", "--model", "m1"];
  const unknown = await runCli([...fanout, "--budget-usd", "5"], options);
  assert.equal(unknown.code, 2);
  assert.match(unknown.stderr, /--budget-usd: unknown price of m1; give --prices FILE/);

  const priceFlag = ["--prices", "prices.json"];
  const run = await runCli([...fanout, ...priceFlag, "--budget-usd", "5.6", "--concurrency", "8"], options);
  assert.equal(run.code, 1);
  assert.match(run.stderr, /paused: 2 of 10 rows completed, 1 failed .*; 3300 tokens \(1000 cached\), \$5\.10, /);
  assert.match(run.stderr, /reason: the budget of \$5\.60 is used up \(\$5\.10 used\)/);

  const list = await runCli(["jobs", "list", "--json", ...priceFlag], options);
  const { job_id: id, cost_usd: cost } = JSON.parse(list.stdout);
  assert.ok(Math.abs(cost - 5.1) < 1e-9);
  const [show, item, dry] = await Promise.all([
    runCli(["jobs", "show", id, ...priceFlag], options),
    runCli(["jobs", "show", id, "--item", "row-2", ...priceFlag], options),
    runCli([...fanout, ...priceFlag, "--dry-run"], options),
  ]);
  assert.match(show.stdout, /cost {6}\$5\.10\n/);
  assert.match(show.stdout, /failures {2}1 no_report \(\$2\.00\)/);
  assert.match(item.stdout, /cost {6}\$1\.55\n/);
  assert.match(
    dry.stdout,
    /10 rows, estimated from 2 finished rows: about 10.0k input tokens with m1, 1000 output tokens, \$15\.50\. No call was made\./,
  );
  assert.equal(harness.asked.length, 4);
});

test("a price is found by model name, also with a provider before the name and a date after it", () => {
  const price = PACKAGE_PRICES.priceOf("gpt-5");
  assert.ok(price);
  assert.equal(PACKAGE_PRICES.priceOf("openai/gpt-5-2025-08-07"), price);
  assert.equal(PACKAGE_PRICES.priceOf("claude-haiku-4-5-20251001"), PACKAGE_PRICES.priceOf("claude-haiku-4-5"));
  assert.equal(PACKAGE_PRICES.priceOf("gpt-5-something"), null);
  const usage = { ...NO_USAGE, inputTokens: 1_000_000, cachedInputTokens: 400_000, outputTokens: 100_000 };
  assert.equal(costInUsd({ input: 2, cachedInput: 1, output: 10 }, usage), 0.6 * 2 + 0.4 + 1);
  assert.deepEqual([0, 12.345, 0.0123, 0.00000123].map(formatUsdExact), ["$0.00", "$12.35", "$0.012", "$0.0000012"]);
  for (const bad of ["[]", "nonsense", '{"m": 1}', '{"m": {"input": -1, "output": 1}}']) {
    assert.throws(
      () => PACKAGE_PRICES.with(bad, "p.json"),
      /^InputError: the prices p\.json (are not JSON|cannot be used)/,
    );
  }
});

/** Model names as in documents: `gpt-5-mini`, `claude-sonnet-4-5`, `o3`. */
const MODEL_NAME = /\b(?:gpt-\d[\w.-]*\w|gpt-\d|claude-[a-z]+-\d[\w.-]*\w|o\d(?:-mini|-pro)?(?=`))/g;

test("every model that a document, a help text or an example names has a price", async () => {
  const files = [
    "README.md",
    ...(await readdir(path.join(ROOT, "docs"))).map((name) => `docs/${name}`),
    ...(await readdir(path.join(ROOT, "examples"))).map((name) => `examples/${name}`),
    ...(await readdir(path.join(ROOT, "src/cli"), { recursive: true })).map((name) => `src/cli/${name}`),
  ].filter((name) => /\.(md|ts|mjs)$/.test(name));
  const named = new Map<string, string>();
  for (const file of files) {
    const text = await readFile(path.join(ROOT, file), "utf8");
    for (const [model] of text.matchAll(MODEL_NAME)) named.set(model, file);
  }
  assert.ok(named.has("gpt-5"), "the texts name models at all");
  const unknown = [...named].filter(([model]) => PACKAGE_PRICES.priceOf(model) === null);
  assert.deepEqual(unknown, []);
  assert.match(PRICES_AS_OF, /20\d\d/);
});
