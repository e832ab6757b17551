import assert from "node:assert/strict";
import { link, mkdir, mkdtemp, readdir, readFile, rm, symlink, writeFile } from "node:fs/promises";
import { tmpdir } from "node:os";
import path from "node:path";
import { suite, test } from "node:test";
import { SmallDisk, whyNoSmallDisk } from "../../support/faults/small-disk.ts";
import { type MockHandler, report, startMockResponses } from "../../support/models/mock-responses.ts";
import { type CliEnd, runCli } from "../../support/servers/run-cli.ts";
import { skipUnless } from "../../support/system/skip-unless.ts";
import { catTable } from "../fanout-harness.ts";

interface Setup {
  directory: string;
  requests(): number;
  run(args: readonly string[], under?: readonly string[]): Promise<CliEnd>;
}

async function withTable(handler: MockHandler, body: (setup: Setup) => Promise<void>): Promise<void> {
  const directory = await mkdtemp(path.join(tmpdir(), "procwire-full-"));
  const mock = await startMockResponses(handler);
  const env = { OPENAI_BASE_URL: mock.url, PROCWIRE_HOME: path.join(directory, "home") };
  try {
    await writeFile(path.join(directory, "cats.csv"), catTable(ROWS));
    await body({
      directory,
      requests: () => mock.requests.length,
      run: (args, under = []) => runCli(args, { cwd: directory, env, under }),
    });
  } finally {
    await mock.close();
    await rm(directory, { recursive: true, force: true, maxRetries: 10 });
  }
}

const ROWS = 40;
const FANOUT = ["fanout", "cats.csv", "--instruction", "about {name}", "--output"];
const LONG = "a".repeat(4_000);
const DISK_BYTES = 64 * 1024;

const noSmallDisk = whyNoSmallDisk();
const skip = skipUnless(noSmallDisk === null, noSmallDisk ?? "");

suite("an output that cannot be written", { concurrency: 3 }, () => {
  test("is reported in one line if the disk is full, leaves no file, and loses no answer", {
    skip,
  }, async () => {
    await withTable(
      (request) => report(request, { LONG }),
      async ({ directory, requests, run }) => {
        const out = path.join(directory, "out");
        await mkdir(out);
        await using disk = await SmallDisk.at(out, DISK_BYTES);
        const full = await run([...FANOUT, "out/results.csv"], disk.under(directory));
        assert.equal(full.code, 1, full.stderr);
        assert.match(full.stderr, /failed to export output csv .*ENOSPC.*; nothing is lost: `procwire jobs export /);
        assert.doesNotMatch(full.stderr, /\n\s+at |Error:/);
        assert.deepEqual(await readdir(disk.directory), [], "no temporary file is left");

        const [job = ""] = (await run(["jobs", "list", "--json"])).stdout.split("\n");
        const { status, job_id: id, job_error: reason } = JSON.parse(job);
        assert.equal(status, "failed");
        assert.match(reason, /^auto-export failed: ENOSPC/);
        const exported = await run(["jobs", "export", id]);
        assert.equal(exported.code, 0, exported.stderr);
        assert.equal((await readFile(path.join(out, "results.csv"), "utf8")).split("\n").length, ROWS + 2);
        assert.equal(requests(), ROWS);
      },
    );
  });

  test("is rejected if it is the input by another name, also by `jobs export`", async () => {
    await withTable(
      (request) => report(request),
      async ({ directory, requests, run }) => {
        const input = path.join(directory, "cats.csv");
        await symlink(input, path.join(directory, "link.csv"));
        await link(input, path.join(directory, "hard.csv"));
        await symlink(directory, path.join(directory, "here"));
        for (const name of ["link.csv", "hard.csv", "here/cats.csv"]) {
          const { code, stderr } = await run([...FANOUT, name]);
          assert.equal(code, 1);
          assert.match(stderr, /the output \S+ is the input; it would be overwritten/);
        }
        assert.equal(requests(), 0);
        assert.equal((await run([...FANOUT, "out.csv"])).code, 0);
        const [job = ""] = (await run(["jobs", "list", "--json"])).stdout.split("\n");
        const exported = await run(["jobs", "export", JSON.parse(job).job_id, "--output", "link.csv"]);
        assert.match(exported.stderr, /is the input file, which would be overwritten/);
        assert.equal(await readFile(input, "utf8"), catTable(ROWS));
      },
    );
  });
});
