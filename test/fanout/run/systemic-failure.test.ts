import assert from "node:assert/strict";
import { writeFile } from "node:fs/promises";
import path from "node:path";
import { suite, test } from "node:test";
import { type MockAnswer, report, startMockResponses } from "../../support/models/mock-responses.ts";
import { postgresMissing, startPostgres } from "../../support/servers/postgres.ts";
import { startCli } from "../../support/servers/run-cli.ts";
import { until } from "../../support/system/until.ts";
import { catTable, FanoutHarness } from "../fanout-harness.ts";

const ROWS = 300;
const missing = await postgresMissing();

const REFUSALS: [string, MockAnswer][] = [
  ["404 for the path", { type: "status", status: 404, body: "not found" }],
  [
    "404 for the model",
    { type: "status", status: 404, body: { error: { code: "model_not_found", message: "no such model" } } },
  ],
  ["400", { type: "status", status: 400, body: { error: { message: "unknown parameter: include" } } }],
  ["405", { type: "status", status: 405, body: "no" }],
  ["422", { type: "status", status: 422, body: "no" }],
  ["a redirect", { type: "status", status: 308, headers: { location: "http://127.0.0.1:9/" } }],
];

suite("a systemic failure", { concurrency: 3 }, () => {
  for (const [what, refusal] of REFUSALS) {
    test(`${what} as the response to every request pauses the job with the cause and costs no row an attempt`, async () => {
      let isBroken = true;
      await using harness = await FanoutHarness.open((request) => (isBroken ? refusal : report(request)));
      const table = catTable(ROWS);
      const { end, summary } = await harness.run({ table, concurrency: 8 });
      assert.equal(end.type === "stopped" && end.status, "paused");
      assert.match(summary.job.stop?.reason ?? "", /^the API refuses every request: the API answered \d{3}/);
      assert.deepEqual([summary.counts.failed, summary.counts.pending], [0, ROWS]);
      assert.deepEqual(harness.finishedRows, []);
      assert.ok(harness.mock.requests.length <= 24, `${harness.mock.requests.length} requests`);
      isBroken = false;
      const again = await harness.run({ table, concurrency: 8 });
      assert.equal(again.summary.counts.completed, ROWS);
      assert.ok((await harness.output()).every((row) => row.attempt_count === "1"));
    });
  }

  test("rows that are rejected individually still fail, even if they are the first ones", async () => {
    await using harness = await FanoutHarness.open((request) =>
      ["row-1", "row-2"].includes(request.item?.itemId ?? "")
        ? { type: "status", status: 400, body: "too odd" }
        : report(request),
    );
    const { summary } = await harness.run({ table: catTable(20), concurrency: 1 });
    assert.deepEqual([summary.counts.completed, summary.counts.failed], [18, 2]);
    assert.equal(harness.finishedRows.length, 20);
  });

  test("any number of rejections between answers is not a systemic failure", async () => {
    await using harness = await FanoutHarness.open((request) =>
      request.index % 2 === 0 ? { type: "status", status: 404, body: "no such cat" } : report(request),
    );
    const { summary } = await harness.run({ table: catTable(60), concurrency: 1 });
    assert.deepEqual([summary.counts.completed, summary.counts.failed], [30, 30]);
    assert.equal(harness.finishedRows.length, 60);
  });

  const wrongKey = { error: { code: "invalid_api_key", message: "wrong key" } };
  const noQuota = { error: { code: "insufficient_quota", message: "no money left" } };
  const bad: readonly { what: string; answer: MockAnswer; says: RegExp }[] = [
    {
      what: "key is refused",
      answer: { type: "status", status: 401, body: wrongKey },
      says: /this worker cannot continue: .*wrong key/,
    },
    {
      what: "quota is used up",
      answer: { type: "status", status: 429, body: noQuota },
      says: /this worker cannot continue: .*no money left/,
    },
    {
      what: "API cannot be reached",
      answer: { type: "reset" },
      says: /this worker cannot continue: the API/,
    },
  ];
  test("workers with a bad key, quota or API exit with a reason; the others finish the job", {
    skip: missing ?? false,
  }, async () => {
    await using harness = await FanoutHarness.open((request) => report(request));
    const gate = Promise.withResolvers<void>();
    const slow = await startMockResponses(async (request) => {
      await gate.promise;
      return report(request);
    });
    const mocks = await Promise.all(bad.map(({ answer }) => startMockResponses(() => answer)));
    const postgres = await startPostgres();
    const database = ["--database-url", await postgres.createDatabase(), "--concurrency", "2"];
    await writeFile(path.join(harness.directory, "cats.csv"), catTable(10));
    const start = (args: string[], url: string) =>
      startCli(["fanout", ...args, ...database], { cwd: harness.directory, env: { OPENAI_BASE_URL: url } });
    const coordinator = start(["cats.csv", "--instruction", "{name}", "--output", "out.csv"], slow.url);
    try {
      await until("the coordinator's rows", () => slow.inFlight === 2, coordinator.ended);
      for (const [index, { what, says }] of bad.entries()) {
        const worker = start(["worker", "--outage-timeout", "1"], mocks[index]?.url ?? "");
        const left = await worker.ended;
        assert.equal(left.code, 1, `${what}: ${left.stderr}`);
        assert.match(left.stderr, says, what);
      }
      gate.resolve();
      const end = await coordinator.ended;
      assert.equal(end.code, 0, end.stderr);
      const rows = await harness.output();
      assert.deepEqual(
        rows.map(({ status, attempt_count: attempts }) => [status, attempts]),
        Array(10).fill(["completed", "1"]),
      );
    } finally {
      coordinator.child.kill("SIGKILL");
      await coordinator.ended;
      await Promise.all([slow, ...mocks].map((mock) => mock.close()));
      await postgres.close();
    }
  });
});
