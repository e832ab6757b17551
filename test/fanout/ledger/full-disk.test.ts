import assert from "node:assert/strict";
import { mkdir, mkdtemp, readdir, readFile, rm, writeFile } from "node:fs/promises";
import { tmpdir } from "node:os";
import path from "node:path";
import { suite, test } from "node:test";
import { parse } from "csv-parse/sync";
import { SmallDisk, whyNoSmallDisk } from "../../support/faults/small-disk.ts";
import { type MockResponses, report, startMockResponses } from "../../support/models/mock-responses.ts";
import { type CliRun, startCli } from "../../support/servers/run-cli.ts";
import { skipUnless } from "../../support/system/skip-unless.ts";
import { until } from "../../support/system/until.ts";
import { catTable } from "../fanout-harness.ts";

const ROWS = 20;
const SLOTS = 4;
const DISK_BYTES = 4 * 1024 * 1024;
const FANOUT = ["fanout", "cats.csv", "--instruction", "{name}", "--output", "out.csv"];
const LONG = "a".repeat(8_000);

const noSmallDisk = whyNoSmallDisk();

interface Setup {
  disk: SmallDisk;
  mock: MockResponses;
  /** Sends the delayed answers, and later ones at once. */
  answerAll(): void;
  start(...more: string[]): CliRun;
  rows(): Promise<Record<string, string>[]>;
}

/** A ledger on a separate disk, and a model that delays its answers. */
async function withSmallDisk(body: (setup: Setup) => Promise<void>): Promise<void> {
  const directory = await mkdtemp(path.join(tmpdir(), "procwire-full-"));
  const home = path.join(directory, "home");
  await mkdir(home);
  const gate = Promise.withResolvers<void>();
  const mock = await startMockResponses(async (request) => {
    await gate.promise;
    return report(request, { LONG });
  });
  await using disk = await SmallDisk.at(home, DISK_BYTES);
  const runs: CliRun[] = [];
  try {
    await writeFile(path.join(directory, "cats.csv"), catTable(ROWS));
    await body({
      disk,
      mock,
      answerAll: gate.resolve,
      start: (...more) => {
        const env = { OPENAI_BASE_URL: mock.url, PROCWIRE_HOME: home };
        const args = [...FANOUT, "--concurrency", `${SLOTS}`, ...more];
        const run = startCli(args, { cwd: directory, env, under: disk.under(directory) });
        runs.push(run);
        return run;
      },
      rows: async () => parse(await readFile(path.join(directory, "out.csv"), "utf8"), { columns: true }),
    });
  } finally {
    for (const run of runs) run.child.kill("SIGKILL");
    await Promise.all(runs.map((run) => run.ended));
    await mock.close();
    await rm(directory, { recursive: true, force: true, maxRetries: 10 });
  }
}

suite("a ledger on a full disk", {
  concurrency: 2,
  skip: skipUnless(noSmallDisk === null, noSmallDisk ?? ""),
}, () => {
  test("stores all reports once there is space, without another model call for a row", async () => {
    await withSmallDisk(async ({ disk, mock, answerAll, start, rows }) => {
      const run = start();
      await until("all slots are busy", () => mock.inFlight === SLOTS, run.ended);
      disk.fill();
      answerAll();
      await until("the full disk is reported", () => /^ledger: .*full; waiting until/m.test(run.stderr), run.ended);
      assert.equal(mock.requests.length, SLOTS, "no model call is made meanwhile");
      disk.makeRoom();
      const { code, stderr } = await run.ended;
      assert.equal(code, 0, stderr);
      assert.match(stderr, /^ledger: the ledger can be written again after \d+ s$/m);
      assert.deepEqual(
        (await rows()).map((row) => [row.status, row.attempt_count]),
        Array(ROWS).fill(["completed", "1"]),
      );
      assert.equal(mock.requests.length, ROWS, "no row is executed twice");
      const [job = ""] = await jobDirectories(disk);
      const log = await readFile(path.join(disk.directory, "jobs", job, "results.jsonl"), "utf8");
      assert.equal(log.trimEnd().split("\n").length, ROWS);
    });
  });

  test("ends the run with one line if the disk stays full, and the same command resumes it", async () => {
    await withSmallDisk(async ({ disk, mock, answerAll, start, rows }) => {
      const run = start("--outage-timeout", "1");
      await until("all slots are busy", () => mock.inFlight === SLOTS, run.ended);
      disk.fill();
      answerAll();
      const { code, stderr } = await run.ended;
      assert.equal(code, 1);
      assert.match(stderr, /^procwire fanout: the ledger could not be written for \d+ s: .*full/m);
      assert.doesNotMatch(stderr, /\n\s+at |Error:/);
      assert.equal(mock.requests.length, SLOTS);
      assert.match(stderr, /^ledger: outcomes are spooled to .*\.procwire-reports-/m);
      disk.makeRoom();
      await goesOn(mock, start, rows);
    });
  });

  test("loses no report if the run is killed meanwhile: the next run applies them without a model call", async () => {
    await withSmallDisk(async ({ disk, mock, answerAll, start, rows }) => {
      const run = start();
      await until("all slots are busy", () => mock.inFlight === SLOTS, run.ended);
      disk.fill();
      answerAll();
      await until("all reports are spooled", async () => (await spooledReports(disk)).length === SLOTS, run.ended);
      run.child.kill("SIGKILL");
      await run.ended;
      disk.makeRoom();
      await goesOn(mock, start, rows);
      assert.deepEqual(await spooledReports(disk), []);
    });
  });
});

/** The same command applies the spooled outcomes and executes the other rows. */
async function goesOn(mock: MockResponses, start: Setup["start"], rows: Setup["rows"]): Promise<void> {
  const again = await start().ended;
  assert.equal(again.code, 0, again.stderr);
  assert.deepEqual(
    (await rows()).map((row) => [row.status, row.attempt_count]),
    Array(ROWS).fill(["completed", "1"]),
  );
  assert.equal(mock.requests.length, ROWS, "no row is executed twice");
}

/** Returns the lines of the files next to the output. */
async function spooledReports(disk: SmallDisk): Promise<string[]> {
  const directory = path.dirname(disk.directory);
  const names = (await readdir(directory)).filter((name) => name.startsWith(".procwire-reports-"));
  const texts = await Promise.all(names.map((name) => readFile(path.join(directory, name), "utf8")));
  return texts.flatMap((text) => text.split("\n").filter((line) => line !== ""));
}

async function jobDirectories(disk: SmallDisk): Promise<string[]> {
  const names = await readdir(path.join(disk.directory, "jobs"));
  return names.filter((name) => name !== "by-key");
}
