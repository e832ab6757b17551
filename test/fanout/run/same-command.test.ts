import assert from "node:assert/strict";
import { writeFile } from "node:fs/promises";
import path from "node:path";
import { suite, test } from "node:test";
import { report } from "../../support/models/mock-responses.ts";
import { postgresMissing, startPostgres } from "../../support/servers/postgres.ts";
import { runCli, startCli } from "../../support/servers/run-cli.ts";
import { catTable, FanoutHarness } from "../fanout-harness.ts";

const ROWS = 6;
const missing = await postgresMissing();
if (missing && process.env.CI) throw new Error(missing);

suite("the same command started several times at once", { concurrency: 2 }, () => {
  test("creates one job on one machine: one process runs it, the others report that and make no call", async () => {
    const gate = Promise.withResolvers<void>();
    await using harness = await FanoutHarness.open(async (request) => {
      await gate.promise;
      return report(request);
    });
    await writeFile(path.join(harness.directory, "cats.csv"), catTable(ROWS));
    const options = { cwd: harness.directory, env: { OPENAI_BASE_URL: harness.mock.url } };
    const args = ["fanout", "cats.csv", "--instruction", "{name}", "--output", "out.csv"];
    const runs = Array.from({ length: 4 }, () => startCli(args, options));
    // No request is answered before all processes but one have ended.
    let ended = 0;
    for (const run of runs) {
      void run.ended.then(() => {
        if (++ended === runs.length - 1) gate.resolve();
      });
    }
    const ends = await Promise.all(runs.map((run) => run.ended));
    assert.deepEqual(ends.map(({ code }) => code).sort(), [0, 1, 1, 1]);
    for (const { code, stderr } of ends) {
      if (code === 1) assert.match(stderr, /job [0-9a-f]{8} is being run by another process/);
    }
    assert.equal(harness.mock.requests.length, ROWS);
    const { stdout } = await runCli(["jobs", "list"], options);
    assert.equal(stdout.trimEnd().split("\n").length, 2, stdout);
  });

  test("creates one job in a database, and the processes share its rows", {
    skip: missing ?? false,
  }, async () => {
    await using harness = await FanoutHarness.open((request) => report(request));
    const postgres = await startPostgres();
    try {
      await writeFile(path.join(harness.directory, "cats.csv"), catTable(ROWS));
      const options = { cwd: harness.directory, env: { OPENAI_BASE_URL: harness.mock.url } };
      const database = ["--database-url", await postgres.createDatabase()];
      const args = ["fanout", "cats.csv", "--instruction", "{name}", "--output", "out.csv", ...database];
      const ends = await Promise.all([runCli(args, options), runCli(args, options)]);
      for (const { code, stderr } of ends) assert.equal(code, 0, stderr);
      assert.equal(harness.mock.requests.length, ROWS);
      const { stdout } = await runCli(["jobs", "list", ...database], options);
      assert.equal(stdout.trimEnd().split("\n").length, 2, stdout);
    } finally {
      await postgres.close();
    }
  });
});
