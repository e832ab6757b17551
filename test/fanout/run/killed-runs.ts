import assert from "node:assert/strict";
import { mkdtemp, readFile, rm, writeFile } from "node:fs/promises";
import { tmpdir } from "node:os";
import path from "node:path";
import { test } from "node:test";
import { setTimeout as wait } from "node:timers/promises";
import { parse } from "csv-parse/sync";
import { SqliteStore } from "../../../src/fanout/ledger/sqlite/sqlite-store.ts";
import { report, startMockResponses } from "../../support/models/mock-responses.ts";
import { runCli, startCli } from "../../support/servers/run-cli.ts";
import { repetitions } from "../../support/system/repetitions.ts";
import { catTable } from "../fanout-harness.ts";

const KILLS = repetitions(60);
/** Requests that a run may make before it is killed, even if this process notices them late. */
const MAX_REQUESTS_PER_RUN = 33;
/** More than all killed runs together can finish. */
const ROWS = KILLS * MAX_REQUESTS_PER_RUN + 1;

export function killAtRandomPoints(): void {
  test("a job killed with -9 at random points repeats no finished row and has every row once", async (t) => {
    const seed = Math.floor(Math.random() * 2 ** 31);
    t.diagnostic(`seed ${seed}`);
    const random = randomFrom(seed);
    const directory = await mkdtemp(path.join(tmpdir(), "procwire-kill-"));
    /** Rows that the ledger had as completed after some kill. */
    const finished = new Set<string>();
    const askedAgain: string[] = [];
    let maxRequests = 0;
    let killed = Promise.withResolvers<void>();
    const mock = await startMockResponses(async (request) => {
      const item = request.item?.itemId ?? "?";
      if (finished.has(item)) askedAgain.push(item);
      if (request.index >= maxRequests) await killed.promise;
      await wait(random() * 10);
      return report(request);
    });
    const args = ["fanout", "cats.csv", "--instruction", "{name}", "--output", "out.csv", "--concurrency", "4"];
    const options = { cwd: directory, env: { OPENAI_BASE_URL: mock.url } };
    const store = new SqliteStore(path.join(directory, ".procwire", "jobs"));
    try {
      await writeFile(path.join(directory, "cats.csv"), catTable(ROWS));
      for (let kill = 0; kill < KILLS; kill++) {
        maxRequests = mock.requests.length + MAX_REQUESTS_PER_RUN;
        const run = startCli(args, options);
        const until = mock.requests.length + Math.floor(random() * 25);
        while (mock.requests.length < until && run.child.exitCode === null) await wait(1);
        await wait(random() * 8);
        run.child.kill("SIGKILL");
        const { signal } = await run.ended;
        killed.resolve();
        killed = Promise.withResolvers<void>();
        assert.equal(signal, "SIGKILL", `run ${kill} had ended by itself`);
        for (const itemId of await completedItems(store)) finished.add(itemId);
        assert.deepEqual(askedAgain, [], `after kill ${kill}`);
      }
      assert.ok(finished.size > 0 && finished.size < ROWS, `${finished.size} rows were finished by then`);
      maxRequests = Number.POSITIVE_INFINITY;
      const last = await runCli(args, options);
      assert.equal(last.code, 0, last.stderr);
      assert.deepEqual(askedAgain, []);
      const rows: Record<string, string>[] = parse(await readFile(path.join(directory, "out.csv"), "utf8"), {
        columns: true,
      });
      assert.deepEqual(
        rows.map((row) => [row.item_id, row.status, row.attempt_count]),
        Array.from({ length: ROWS }, (_, index) => [`row-${index + 1}`, "completed", "1"]),
      );
      const [job] = await store.list();
      const results = await readFile(path.join(directory, ".procwire", "jobs", job?.id ?? "", "results.jsonl"), "utf8");
      const ids = results
        .trimEnd()
        .split("\n")
        .map((line) => JSON.parse(line).item_id);
      assert.equal(new Set(ids).size, ROWS);
      assert.equal(ids.length, ROWS);
    } finally {
      await mock.close();
      await rm(directory, { recursive: true, force: true, maxRetries: 10 });
    }
  });
}

async function completedItems(store: SqliteStore): Promise<string[]> {
  const [job] = await store.list();
  if (!job) return [];
  await using ledger = await store.open(job.id);
  const ids: string[] = [];
  for await (const item of ledger?.items({ statuses: ["completed"] }) ?? []) ids.push(item.itemId);
  return ids;
}

/** The same numbers for the same seed, so that a failure can be reproduced. */
function randomFrom(seed: number): () => number {
  let state = seed;
  return () => {
    state = (Math.imul(state, 1_103_515_245) + 12_345) & 0x7fffffff;
    return state / 2 ** 31;
  };
}
