import assert from "node:assert/strict";
import { mkdir, mkdtemp, readdir, readFile, realpath, rm, writeFile } from "node:fs/promises";
import { tmpdir } from "node:os";
import path from "node:path";
import { suite, test } from "node:test";
import pg from "pg";
import { report, startMockResponses } from "../support/models/mock-responses.ts";
import { postgresMissing, startPostgres } from "../support/servers/postgres.ts";
import { runCli } from "../support/servers/run-cli.ts";
import { skipUnless } from "../support/system/skip-unless.ts";
import { catTable } from "./fanout-harness.ts";

const missing = await postgresMissing();
const SECRET = "not to be overwritten\n";

suite("the output path of a job in a shared database", {
  skip: skipUnless(missing === null, missing ?? ""),
}, () => {
  test("is written to only if this host chose it or the user names it", async () => {
    const root = await realpath(await mkdtemp(path.join(tmpdir(), "procwire-shared-output-")));
    const directory = path.join(root, "work");
    const outside = path.join(root, "outside");
    const victim = path.join(outside, "victim");
    for (const created of [directory, outside]) await mkdir(created);
    await writeFile(victim, SECRET);
    await writeFile(path.join(directory, "cats.csv"), catTable(2));
    const mock = await startMockResponses((request) => report(request));
    const postgres = await startPostgres();
    const url = await postgres.createDatabase();
    const run = (...args: string[]) =>
      runCli([...args, "--database-url", url], { cwd: directory, env: { OPENAI_BASE_URL: mock.url } });
    /** Changes the ledger as another principal of the database can. */
    const setStoredPath = async (file: string) => {
      const client = new pg.Client({ connectionString: url });
      await client.connect();
      const { rowCount } = await client.query("UPDATE procwire.agent_jobs SET output_path = $1", [file]);
      await client.end();
      assert.equal(rowCount, 1);
    };
    try {
      const made = await run("fanout", "cats.csv", "--instruction", "{name}", "--output", "out.csv");
      assert.equal(made.code, 0, made.stderr);
      const { job_id: id } = JSON.parse((await run("jobs", "list", "--json")).stdout.trim());

      for (const stored of [victim, path.join(outside, "new.csv"), "../outside/new.csv"]) {
        await setStoredPath(stored);
        for (const verb of ["export", "resume", "retry"]) {
          const { code, stderr } = await run("jobs", verb, id);
          assert.equal(code, 1, `${verb} ${stored}: ${stderr}`);
          assert.ok(stderr.includes(`\`${stored}\``), stderr);
          assert.match(stderr, /; name a file with --output\n$/);
        }
        assert.equal(await readFile(victim, "utf8"), SECRET);
        assert.deepEqual(await readdir(outside), ["victim"]);
      }

      const exported = await run("jobs", "export", id, "--output", "named.csv");
      assert.equal(exported.code, 0, exported.stderr);
      assert.match(await readFile(path.join(directory, "named.csv"), "utf8"), /completed/);
      const resumed = await run("jobs", "resume", id, "--output", "resumed.csv");
      assert.equal(resumed.code, 0, resumed.stderr);
      assert.match(await readFile(path.join(directory, "resumed.csv"), "utf8"), /completed/);
      // The resumed run recorded its output path, in the ledger and on this host.
      await rm(path.join(directory, "resumed.csv"));
      const again = await run("jobs", "export", id);
      assert.equal(again.code, 0, again.stderr);
      assert.match(await readFile(path.join(directory, "resumed.csv"), "utf8"), /completed/);
    } finally {
      await mock.close();
      await postgres.close();
      await rm(root, { recursive: true, force: true });
    }
  });
});
