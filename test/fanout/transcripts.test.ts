import assert from "node:assert/strict";
import { test } from "node:test";
import { SqliteStore } from "../../src/fanout/ledger/sqlite/sqlite-store.ts";
import { answer, functionCall, message, report, says } from "../support/models/mock-responses.ts";
import { runCli } from "../support/servers/run-cli.ts";
import { catTable, FanoutHarness } from "./fanout-harness.ts";

test("the transcript of each attempt is stored, and `jobs show --item` shows it", async () => {
  await using harness = await FanoutHarness.open((request) => {
    // The agent gets one reminder to report; then the attempt ends.
    if (request.index <= 1) return says("I would rather not");
    if (request.index === 2) {
      const { jobId, itemId } = request.item ?? assert.fail("no item");
      const wrong = { job_id: jobId, item_id: itemId, result: { n: "one" } };
      return answer(message("here it is"), functionCall("c", "report_agent_job_result", wrong));
    }
    if (request.index === 3) return { type: "status", status: 500 };
    return report(request, { n: 1 });
  });
  const schema = { type: "object", properties: { n: { type: "number" } } };
  const end = await harness.run({ table: catTable(1), concurrency: 1, task: { schema } });
  assert.equal(end.summary.job.status, "completed");

  await using ledger = await new SqliteStore(harness.jobsHome).open(end.summary.job.id);
  assert.ok(ledger);
  const attempts = await ledger.attempts("row-1");
  assert.deepEqual(
    attempts.map(({ outcome, transcript }) => [outcome, transcript.map((entry) => entry.type)]),
    [
      ["retried", ["said", "said"]],
      ["reported", ["said", "called", "returned", "asked_again", "called"]],
    ],
  );
  assert.deepEqual(attempts[0]?.usage.inputTokens, 2);
  assert.deepEqual(attempts[1]?.usage.inputTokens, 2);

  const args = ["jobs", "show", end.summary.job.id, "--item", "row-1"];
  const options = { cwd: harness.directory, env: { PROCWIRE_HOME: harness.directory } };
  const [shown, json] = await Promise.all([runCli(args, options), runCli([...args, "--json"], options)]);
  assert.equal(shown.code, 0, shown.stderr);
  assert.match(shown.stdout, /--- prompt\nYou are processing one item[\s\S]*Write about cat_1\./);
  assert.match(shown.stdout, /--- attempt 1, ended \S+Z: retried \(no_report: .*\n.*I would rather not\n/);
  assert.match(shown.stdout, /called report_agent_job_result: .*"one"/);
  assert.match(shown.stdout, /report_agent_job_result refused: result does not fit the expected schema/);
  assert.match(shown.stdout, /retried: /);
  const details = JSON.parse(json.stdout);
  assert.match(details.prompt.message, /Item ID: row-1/);
  assert.deepEqual(
    details.attemptRecords.map((attempt: { outcome: string }) => attempt.outcome),
    ["retried", "reported"],
  );
});
