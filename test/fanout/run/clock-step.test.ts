import assert from "node:assert/strict";
import { mkdtemp, rm, writeFile } from "node:fs/promises";
import { tmpdir } from "node:os";
import path from "node:path";
import { test } from "node:test";
import { report, startMockResponses } from "../../support/models/mock-responses.ts";
import { startCli } from "../../support/servers/run-cli.ts";
import { until } from "../../support/system/until.ts";
import { catTable } from "../fanout-harness.ts";

const ROWS = 12;
/** On a signal, the program sees the system's clock go back by an hour. */
const STEP_BACK = `
  const real = Date.now;
  let stepMs = 0;
  process.on("SIGUSR2", () => { stepMs = -3_600_000; });
  Date.now = () => real() + stepMs;
`;

test("a clock that is set back by an hour delays no row of a job with --rpm", async () => {
  const directory = await mkdtemp(path.join(tmpdir(), "procwire-step-"));
  const mock = await startMockResponses((request) => report(request));
  const preload = path.join(directory, "step-back.mjs");
  await writeFile(preload, STEP_BACK);
  await writeFile(path.join(directory, "cats.csv"), catTable(ROWS));
  const run = startCli(["fanout", "cats.csv", "--instruction", "{name}", "--output", "out.csv", "--rpm", "600"], {
    cwd: directory,
    env: { OPENAI_BASE_URL: mock.url, NODE_OPTIONS: `--import ${preload}` },
  });
  try {
    await until("the first rows", () => mock.requests.length >= 3, run.ended);
    run.child.kill("SIGUSR2");
    await until("all rows", () => mock.requests.length === ROWS, run.ended);
    const { code, stderr } = await run.ended;
    assert.equal(code, 0, stderr);
  } finally {
    run.child.kill("SIGKILL");
    await mock.close();
    await rm(directory, { recursive: true, force: true, maxRetries: 10 });
  }
});
