import assert from "node:assert/strict";
import { mkdtemp, readFile, rm, writeFile } from "node:fs/promises";
import { tmpdir } from "node:os";
import path from "node:path";
import { describe, test } from "node:test";
import { parse } from "csv-parse/sync";
import {
  itemOf,
  type MessageBatchStep,
  type MockMessageBatches,
  type MockMessageBatchesOptions,
  startMockMessageBatches,
} from "../../support/models/mock-message-batches.ts";
import { runCli, startCli } from "../../support/servers/run-cli.ts";
import { until } from "../../support/system/until.ts";
import { catTable } from "../fanout-harness.ts";

const ROWS = 6;
const FANOUT = ["fanout", "cats.csv", "--instruction", "{name}", "--output", "out.csv"];
const ARGS = [...FANOUT, "--batch", "--api", "anthropic", "--model", "claude-sonnet-4-5"];

interface Setup {
  mock: MockMessageBatches;
  options: { cwd: string; env: Record<string, string> };
  rows(): Promise<Record<string, string>[]>;
  /** Number of requests for each row, by batches and single calls together. */
  countCalls(): Record<string, number>;
}

async function withBatches(given: MockMessageBatchesOptions, body: (setup: Setup) => Promise<void>): Promise<void> {
  const directory = await mkdtemp(path.join(tmpdir(), "procwire-message-batches-"));
  const mock = await startMockMessageBatches(given);
  try {
    await writeFile(path.join(directory, "cats.csv"), catTable(ROWS));
    const env = { ANTHROPIC_BASE_URL: mock.url, ANTHROPIC_API_KEY: "k" };
    await body({
      mock,
      options: { cwd: directory, env },
      rows: async () => parse(await readFile(path.join(directory, "out.csv"), "utf8"), { columns: true }),
      countCalls: () => {
        const lines = mock.batches.flatMap((batch) => batch.lines.map(({ params }) => itemOf(params).itemId));
        const ids = [...lines, ...mock.single.map(({ itemId }) => itemId)];
        return Object.fromEntries([...Map.groupBy(ids, (id) => id)].map(([id, all]) => [id, all.length]));
      },
    });
  } finally {
    await mock.close();
    await rm(directory, { recursive: true, force: true, maxRetries: 10 });
  }
}

const everyRowOnce = Object.fromEntries(Array.from({ length: ROWS }, (_, index) => [`row-${index + 1}`, 1]));

describe("a job with Anthropic message batches", { concurrency: 2 }, () => {
  test("answers one row by a single call and all others by one batch at half the cost", async () => {
    await withBatches({}, async ({ mock, options, rows, countCalls }) => {
      const end = await runCli([...ARGS, "--json"], options);
      assert.equal(end.code, 0, end.stderr);
      assert.deepEqual(
        (await rows()).map((row) => [row.status, row.attempt_count]),
        Array(ROWS).fill(["completed", "1"]),
      );
      assert.deepEqual(countCalls(), everyRowOnce);
      assert.equal(mock.batches.length, 1);
      const summary = JSON.parse(end.stdout.trimEnd().split("\n").at(-1) ?? "");
      // Ten tokens in and five out a row, at $3 and $15 a million; five of six rows at half of it.
      assert.ok(Math.abs(summary.cost_usd - ((1 + 5 / 2) * (10 * 3 + 5 * 15)) / 1e6) < 1e-12, `${summary.cost_usd}`);
    });
  });

  test("continues with a single call from an answer without a report", async () => {
    const result = (itemId: string) => (itemId === "row-3" ? null : { itemId });
    await withBatches({ result }, async ({ mock, options, rows }) => {
      const end = await runCli(ARGS, options);
      assert.equal(end.code, 0, end.stderr);
      assert.equal((await rows())[2]?.status, "completed");
      const { body } = mock.single.find(({ itemId }) => itemId === "row-3") ?? {};
      const turns = body?.messages as { role: string }[];
      assert.deepEqual(
        turns.map(({ role }) => role),
        ["user", "assistant", "user"],
      );
    });
  });

  const moments: readonly (readonly [MessageBatchStep, "arrived" | "done"])[] = [
    ["create", "arrived"],
    ["create", "done"],
    ["get", "done"],
    ["results", "done"],
  ];
  for (const [step, when] of moments) {
    test(`submits nothing twice and has every row once after kill -9 at "${step}" (${when})`, async () => {
      const reached = Promise.withResolvers<void>();
      let isArmed = true;
      const onStep = (at: MessageBatchStep, moment: "arrived" | "done") => {
        if (!isArmed || at !== step || moment !== when) return;
        isArmed = false;
        reached.resolve();
        return new Promise<void>(() => undefined);
      };
      await withBatches({ onStep }, async ({ mock, options, rows, countCalls }) => {
        const killed = startCli(ARGS, options);
        await Promise.race([reached.promise, killed.ended]);
        killed.child.kill("SIGKILL");
        assert.equal((await killed.ended).signal, "SIGKILL", killed.stderr);
        const end = await runCli(ARGS, options);
        assert.equal(end.code, 0, end.stderr);
        assert.equal(mock.batches.length, 1);
        assert.deepEqual(countCalls(), everyRowOnce);
        assert.ok((await rows()).every(({ status }) => status === "completed"));
      });
    });
  }

  /** Runs `body` after a kill between the creation of a batch and its record. Another client has a batch of equal size. */
  const afterKill = async (given: MockMessageBatchesOptions, body: (setup: Setup) => Promise<void>) => {
    const reached = Promise.withResolvers<void>();
    let started: MockMessageBatches | null = null;
    let isArmed = true;
    const onStep = (at: MessageBatchStep, moment: "arrived" | "done") => {
      if (!isArmed || at !== "create") return;
      if (moment === "arrived") {
        const lines = Array.from({ length: ROWS - 1 }, (_, row) => ({ custom_id: `other_row-${row}`, params: {} }));
        started?.batches.push({ id: "msgbatch_other", lines, pollCount: 0, createdAt: new Date().toISOString() });
        return;
      }
      isArmed = false;
      reached.resolve();
      return new Promise<void>(() => undefined);
    };
    await withBatches({ ...given, onStep }, async (setup) => {
      started = setup.mock;
      const killed = startCli(ARGS, setup.options);
      await Promise.race([reached.promise, killed.ended]);
      killed.child.kill("SIGKILL");
      assert.equal((await killed.ended).signal, "SIGKILL", killed.stderr);
      await body(setup);
    });
  };

  /** Cancels the running job after the first poll of one of its batches. Returns the ids of the cancelled batches. */
  const cancelRun = async ({ mock, options }: Setup) => {
    const run = startCli([...ARGS, "--json"], options);
    await until("a batch is polled", () => mock.batches.some(({ pollCount }) => pollCount > 0), run.ended);
    const { job_id: jobId } = JSON.parse(run.stdout.split("\n")[0] ?? "");
    assert.equal((await runCli(["jobs", "cancel", jobId], options)).code, 0);
    await run.ended;
    return { cancelled: mock.cancelled, stdout: run.stdout };
  };

  test("cancels its batch at the provider when the job is cancelled", async () => {
    await withBatches({ areEndless: true }, async (setup) => {
      assert.deepEqual((await cancelRun(setup)).cancelled, ["msgbatch_1"]);
    });
  });

  test("cancels no batch that may belong to another client when the job is cancelled after kill -9", async () => {
    await afterKill({ areEndless: true }, async (setup) => {
      const { cancelled, stdout } = await cancelRun(setup);
      assert.deepEqual(cancelled, []);
      assert.match(stdout, /batch msgbatch_other is not cancelled: it may belong to another client/);
    });
  });

  test("pays no row twice if it first takes another client's batch of equal size for its own after kill -9", async () => {
    await afterKill({}, async ({ mock, options, rows, countCalls }) => {
      const end = await runCli(ARGS, options);
      assert.equal(end.code, 0, end.stderr);
      assert.equal(mock.batches.length, 2);
      const { "?": _other, ...own } = countCalls();
      assert.deepEqual(own, everyRowOnce);
      assert.ok((await rows()).every(({ status }) => status === "completed"));
    });
  });

  /** Writes a table with an image per row; the images of the given rows are missing. */
  const writePhotos = (directory: string, missing: readonly number[]) => {
    const photo = (row: number) => (missing.includes(row) ? "missing.png" : '"data:image/png;base64,AAAA"');
    const lines = Array.from({ length: ROWS }, (_, index) => `cat_${index + 1},${photo(index + 1)}\n`);
    return writeFile(path.join(directory, "photos.csv"), `name,photo\n${lines.join("")}`);
  };
  const PHOTO_ARGS = ["fanout", "photos.csv", "--image-column", "photo", ...ARGS.slice(2), "--max-attempts", "1"];

  test("finds a batch without the rows of unreadable images after kill -9, and submits nothing twice", async () => {
    const reached = Promise.withResolvers<void>();
    let isArmed = true;
    const onStep = (at: MessageBatchStep, moment: "arrived" | "done") => {
      if (!isArmed || at !== "create" || moment !== "done") return;
      isArmed = false;
      reached.resolve();
      return new Promise<void>(() => undefined);
    };
    await withBatches({ onStep }, async ({ mock, options, rows, countCalls }) => {
      await writePhotos(options.cwd, [3]);
      const killed = startCli(PHOTO_ARGS, options);
      await Promise.race([reached.promise, killed.ended]);
      killed.child.kill("SIGKILL");
      assert.equal((await killed.ended).signal, "SIGKILL", killed.stderr);
      const end = await runCli(PHOTO_ARGS, options);
      assert.equal(mock.batches.length, 1, end.stderr);
      const { "row-3": _missing, ...readable } = everyRowOnce;
      assert.deepEqual(countCalls(), readable);
      assert.deepEqual(
        (await rows()).map(({ status }) => status),
        ["completed", "completed", "failed", "completed", "completed", "completed"],
      );
    });
  });

  test("submits no batch for rows whose images are all unreadable", async () => {
    await withBatches({}, async ({ mock, options, rows }) => {
      await writePhotos(options.cwd, [2, 3, 4, 5, 6]);
      const end = await runCli(PHOTO_ARGS, options);
      assert.equal(mock.batches.length, 0);
      assert.deepEqual(
        (await rows()).map(({ status }) => status),
        ["completed", ...Array(ROWS - 1).fill("failed")],
        end.stderr,
      );
    });
  });
});
