import assert from "node:assert/strict";
import { mkdir, readdir, readFile, utimes, writeFile } from "node:fs/promises";
import path from "node:path";
import { DatabaseSync } from "node:sqlite";
import { test } from "node:test";
import { report, says } from "../support/models/mock-responses.ts";
import { runCli } from "../support/servers/run-cli.ts";
import { until } from "../support/system/until.ts";
import { catTable, FanoutHarness } from "./fanout-harness.ts";

test("a corrupt job does not hide other jobs, is reported, and can be removed", async () => {
  await using harness = await FanoutHarness.open((request) => report(request));
  const jobs = (...args: string[]) =>
    runCli(["jobs", ...args], { cwd: harness.directory, env: { PROCWIRE_HOME: harness.directory } });
  const good = await harness.run();
  const bad = await harness.run({ task: { instruction: "Draw {name}." } });
  const id = bad.summary.job.id;
  await writeFile(path.join(harness.jobsHome, id, "ledger.sqlite"), "this is no database".repeat(300));

  const list = await jobs("list");
  assert.equal(list.code, 0, list.stderr);
  assert.match(list.stdout, new RegExp(`^${good.summary.job.id.slice(0, 8)} `, "m"));
  const short = id.slice(0, 8);
  assert.match(
    list.stderr,
    new RegExp(`^cannot read job ${short}: .*; delete it with \`procwire jobs rm ${short}\`\n$`),
  );
  // A job with another table looks for answers in all jobs, and skips the corrupt one.
  const next = await harness.run({ table: catTable(4) });
  assert.equal(next.summary.job.status, "completed");
  assert.equal(harness.asked.length, 7);

  const removed = await jobs("rm", short);
  assert.equal(removed.code, 0, removed.stderr);
  assert.equal((await jobs("list")).stderr, "");
  assert.equal((await harness.run({ task: { instruction: "Draw {name}." } })).summary.job.status, "completed");
});

test("`jobs prune` removes jobs that ended long ago and files of dead processes", async () => {
  let isWilling = true;
  await using harness = await FanoutHarness.open((request) => (isWilling ? report(request) : { type: "hang" }));
  const jobs = (...args: string[]) =>
    runCli(["jobs", ...args], { cwd: harness.directory, env: { PROCWIRE_HOME: harness.directory } });
  await harness.run();
  isWilling = false;
  const controller = new AbortController();
  const paused = harness.run({ task: { instruction: "Draw {name}." }, signal: controller.signal });
  await until("six rows are executed", () => harness.asked.length >= 6);
  controller.abort(new Error("SIGINT"));
  const { id } = (await paused).summary.job;
  const partial = path.join(harness.jobsHome, "dead.partial");
  await mkdir(partial);
  await writeFile(path.join(partial, "ledger.sqlite"), "half a table");
  const longAgo = new Date(Date.now() - 3_600_000);
  await utimes(partial, longAgo, longAgo);
  await mkdir(path.join(harness.jobsHome, "young.partial"));
  await writeFile(path.join(harness.jobsHome, "stdin-999999999.partial"), "name");
  await writeFile(path.join(harness.jobsHome, `stdin-${process.pid}.partial`), "name");

  const early = await jobs("prune", "--older-than", "1");
  assert.match(early.stderr, /^0 jobs deleted, 2 stale files removed\n$/);
  const late = await jobs("prune", "--older-than", "0");
  assert.match(late.stderr, /^1 jobs deleted, 0 stale files removed\n$/);
  assert.deepEqual(
    (await readdir(harness.jobsHome)).filter((name) => name !== "by-key").sort(),
    [id, `stdin-${process.pid}.partial`, "young.partial"].sort(),
  );
});

test("`jobs prune` removes nothing outside the jobs directory, whatever id a ledger holds", async () => {
  await using harness = await FanoutHarness.open((request) => report(request));
  const { summary } = await harness.run();
  const victim = path.join(harness.directory, "victim");
  await mkdir(victim);
  const id = path.relative(harness.jobsHome, victim);
  const database = new DatabaseSync(path.join(harness.jobsHome, summary.job.id, "ledger.sqlite"));
  database.exec("PRAGMA foreign_keys = OFF");
  assert.equal(database.prepare("UPDATE agent_jobs SET id = ?").run(id).changes, 1);
  database.close();
  const { stderr } = await runCli(["jobs", "prune", "--older-than", "0"], {
    cwd: harness.directory,
    env: { PROCWIRE_HOME: harness.directory },
  });
  assert.ok((await readdir(harness.directory)).includes("victim"), stderr);
});

test("`jobs report` writes one self-contained page, and no cell becomes markup in it", async () => {
  await using harness = await FanoutHarness.open((request) =>
    request.item?.itemId === "row-2" ? says("no") : report(request, { answer: "</td><script>alert(2)</script>" }),
  );
  const { summary } = await harness.run({
    table: 'name\n<img src=x onerror=alert(1)>\nTom\n"it\'s ""quoted"""\n',
    task: { model: "gpt-5" },
    settings: { maxAttempts: 1 },
  });
  const options = { cwd: harness.directory, env: { PROCWIRE_HOME: harness.directory } };
  const written = await runCli(["jobs", "report", summary.job.id, "--output", "r.html"], options);
  assert.equal(written.code, 0, written.stderr);
  assert.match(written.stderr, /^a page with 3 rows written to .*r\.html\n$/);
  const page = await readFile(path.join(harness.directory, "r.html"), "utf8");
  assert.equal(page.match(/<script>/g)?.length, 1);
  assert.doesNotMatch(page, /<img|https?:|src="|href=/);
  assert.match(page, /<td>\{&quot;name&quot;:&quot;&lt;img src=x onerror=alert\(1\)&gt;&quot;\}<\/td>/);
  assert.match(page, /<tr><td>no_report<\/td><td>1<\/td><td>\$0\.\d+<\/td><\/tr>/);
  const rows = [...page.matchAll(/<tr data-status="(\w+)" data-class="(\w*)"><td>([\w-]+)/g)].map((row) =>
    row.slice(1),
  );
  assert.deepEqual(rows, [
    ["failed", "no_report", "row-2"],
    ["completed", "", "row-1"],
    ["completed", "", "row-3"],
  ]);
  assert.deepEqual(
    (await readdir(harness.directory)).filter((name) => name.endsWith(".tmp")),
    [],
  );
});
