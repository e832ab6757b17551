import assert from "node:assert/strict";
import { mkdtemp, rm, writeFile } from "node:fs/promises";
import { tmpdir } from "node:os";
import path from "node:path";
import { after, before, test } from "node:test";
import { completed, type MockRequest, report, startMockResponses } from "../../support/models/mock-responses.ts";
import { postgresMissing, startPostgres, type TestPostgres } from "../../support/servers/postgres.ts";
import { type CliRun, runCli, startCli } from "../../support/servers/run-cli.ts";
import { until } from "../../support/system/until.ts";
import { catTable } from "../fanout-harness.ts";

const missing = await postgresMissing();
const skip = missing ?? false;
let postgres: TestPostgres;
before(async () => {
  if (!missing) postgres = await startPostgres();
});
after(() => postgres?.close());

/** A report that costs a hundred tokens; every third one a hundred and fifty. */
function priced(request: MockRequest) {
  const answer = report(request);
  assert.equal(answer.type, "sse");
  const input = request.index % 3 === 2 ? 150 : 100;
  return { ...answer, delayMs: 20, events: [...answer.events.slice(0, -1), completed({ input, output: 0 })] };
}
const DEAREST = 150;
/** A dollar for a thousand tokens. */
const PRICES = JSON.stringify({ m1: { input: 1_000, cachedInput: 1_000, output: 1_000 } });

for (const { flag, limit, tokens } of [
  { flag: "--budget", limit: "2000", tokens: 2_000 },
  { flag: "--budget-usd", limit: "2", tokens: 2_000 },
]) {
  test(`a fleet of four processes exceeds ${flag} by at most one row`, { skip }, async () => {
    const directory = await mkdtemp(path.join(tmpdir(), "procwire-fleet-budget-"));
    const mock = await startMockResponses(priced);
    const database = ["--database-url", await postgres.createDatabase()];
    const options = { cwd: directory, env: { OPENAI_BASE_URL: mock.url } };
    const workers: CliRun[] = [];
    try {
      await writeFile(path.join(directory, "cats.csv"), catTable(200));
      await writeFile(path.join(directory, "prices.json"), PRICES);
      assert.equal((await runCli(["fanout", "migrate", ...database], options)).code, 0);
      for (let index = 0; index < 3; index++) {
        workers.push(startCli(["fanout", "worker", ...database, "--concurrency", "16"], options));
      }
      await until(
        "the workers look for jobs",
        () => workers.every(({ stderr }) => stderr.includes("worker ready")),
        Promise.race(workers.map(({ ended }) => ended)),
      );
      const args = ["fanout", "cats.csv", "--instruction", "{name}", "--model", "m1", "--concurrency", "1"];
      const first = await runCli([...args, ...database, flag, limit, "--prices", "prices.json", "--json"], options);
      assert.match(first.stdout, /the budget of [^ ]+( tokens)? is used up/, first.stderr);
      const used = () => mock.requests.reduce((sum, { index }) => sum + (index % 3 === 2 ? DEAREST : 100), 0);
      assert.ok(used() <= tokens + DEAREST, `${used()} of ${tokens}`);
      // Less than the cost of two of the dearest rows is left: the budget is also used up.
      assert.ok(used() > tokens - 2 * DEAREST, `${used()} of ${tokens}`);
    } finally {
      for (const worker of workers) worker.child.kill("SIGKILL");
      await Promise.all(workers.map(({ ended }) => ended));
      await mock.close();
      await rm(directory, { recursive: true, force: true, maxRetries: 10 });
    }
  });
}
