import assert from "node:assert/strict";
import { mkdtemp, readdir, readFile, rm, writeFile } from "node:fs/promises";
import { tmpdir } from "node:os";
import path from "node:path";
import { test } from "node:test";
import { parse } from "csv-parse/sync";
import { report, startMockResponses } from "../support/models/mock-responses.ts";
import { runCli } from "../support/servers/run-cli.ts";
import { catTable } from "./fanout-harness.ts";

test("--costs adds the cost of every row to the output, and results.jsonl always contains it", async () => {
  const directory = await mkdtemp(path.join(tmpdir(), "procwire-costs-"));
  const mock = await startMockResponses((request) => report(request));
  try {
    await writeFile(path.join(directory, "cats.csv"), catTable(2));
    const args = ["fanout", "cats.csv", "--instruction", "{name}", "--output", "out.csv", "--model", "gpt-5"];
    const options = { cwd: directory, env: { OPENAI_BASE_URL: mock.url } };
    const end = await runCli([...args, "--costs"], options);
    assert.equal(end.code, 0, end.stderr);
    const rows: Record<string, string>[] = parse(await readFile(path.join(directory, "out.csv"), "utf8"), {
      columns: true,
    });
    // One token in at $1.25 a million, one out at $10.
    assert.deepEqual(
      rows.map((row) => [row.input_tokens, row.cached_input_tokens, row.output_tokens, row.cost_usd]),
      [
        ["1", "0", "1", "0.00001125"],
        ["1", "0", "1", "0.00001125"],
      ],
    );
    const jobs = path.join(directory, ".procwire", "jobs");
    const job = (await readdir(jobs)).find((name) => name !== "by-key") ?? "";
    const lines = (await readFile(path.join(jobs, job, "results.jsonl"), "utf8")).trimEnd().split("\n");
    assert.deepEqual(
      lines.map((line) => JSON.parse(line).cost_usd),
      [0.00001125, 0.00001125],
    );
  } finally {
    await mock.close();
    await rm(directory, { recursive: true, force: true, maxRetries: 10 });
  }
});

test("--sample N --random selects the same rows for the same seed, and other rows for another seed", async () => {
  const directory = await mkdtemp(path.join(tmpdir(), "procwire-sample-"));
  const mock = await startMockResponses((request) => report(request));
  try {
    await writeFile(path.join(directory, "cats.csv"), catTable(200));
    const picked = async (...more: string[]) => {
      const args = ["fanout", "cats.csv", "--instruction", "{name}", "--output", "out.csv", "--sample", "5"];
      const end = await runCli([...args, "--fresh", ...more], {
        cwd: directory,
        env: { OPENAI_BASE_URL: mock.url },
      });
      assert.equal(end.code, 0, end.stderr);
      const text = await readFile(path.join(directory, "out.csv"), "utf8");
      const rows: Record<string, string>[] = parse(text, { columns: true });
      return rows.map((row) => row.name);
    };
    const first = await picked("--random");
    assert.deepEqual(await picked("--random"), first);
    assert.notDeepEqual(await picked("--random", "--seed", "another"), first);
    const wrong = await runCli(["fanout", "cats.csv", "--instruction", "x", "--random"], { cwd: directory });
    assert.match(wrong.stderr, /--random requires --sample N/);
  } finally {
    await mock.close();
    await rm(directory, { recursive: true, force: true, maxRetries: 10 });
  }
});
