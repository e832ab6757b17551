/** Processes and jobs in every state, for the walks through the console and for its screenshots. */
import assert from "node:assert/strict";
import { writeFileSync } from "node:fs";
import { join } from "node:path";
import type { TokenUsage } from "../../src/agent/token-usage.ts";
import { type Clock, systemClock } from "../../src/async/clock.ts";
import { NodeExecServerClient } from "../../src/client/node/node-client.ts";
import type { StartParams } from "../../src/exec/exec-process.ts";
import type { TranscriptEntry } from "../../src/fanout/job.ts";
import type { JobLedger } from "../../src/fanout/ledger/job-ledger.ts";
import { SqliteStore } from "../../src/fanout/ledger/sqlite/sqlite-store.ts";

/** Client that owns the sample processes, with their handles by name. Its end ends the processes. */
export interface SampleProcesses extends AsyncDisposable {
  handles: ReadonlyMap<string, string>;
}

/** Starts one process per state that the list of processes shows. `directory` gets their programs. */
export async function startSampleProcesses(url: string, directory: string): Promise<SampleProcesses> {
  for (const [name, script] of Object.entries(PROGRAMS))
    writeFileSync(join(directory, name), `#!/bin/bash\n${script}\n`, { mode: 0o755 });
  const client = await NodeExecServerClient.connectWebSocket({ url });
  const handles = new Map<string, string>();
  const env = { PATH: `${directory}:/usr/bin:/bin`, TERM: "xterm-256color" };
  const start = async (command: string, more: Partial<StartParams> = {}) => {
    const argv = command.split(" ");
    const process = await client.start({ processId: command, argv, cwd: "/", env, tty: false, ...more });
    assert.ok(typeof process.handle === "string");
    handles.set(command, process.handle);
    return process;
  };
  const labels = { app: "shop" };
  await start("npm run dev", { name: "dev-server", labels, tty: true, size: { rows: 30, cols: 100 } });
  await start("pytest --watch tests/", { name: "tests" });
  await start("deploy staging", { name: "deploy", labels, tty: true });
  await start("migrate --all", { tty: true });
  await start("ffmpeg -i talk.mov talk.mp4");
  await (await start("make all")).wait();
  await (await start("eslint src/")).wait();
  await (await start("worker --queue mail")).wait();
  await (await start("import-orders", { timeoutMs: 200 })).wait();
  await (await start("export-orders", { limits: { outputBytes: 50_000 } })).wait();
  return {
    handles,
    [Symbol.asyncDispose]: async () => {
      // A closed session would keep its processes until its TTL elapses.
      await Promise.allSettled([...handles.values()].map((handle) => client.kill(handle)));
      await client.close();
    },
  };
}

const PROGRAMS: Readonly<Record<string, string>> = {
  npm: String.raw`
printf '\e[1;32m  VITE\e[0m \e[32mv7.1.2\e[0m  ready in \e[1m412\e[0m ms\n\n'
printf '  \e[32m➜\e[0m  \e[1mLocal\e[0m:   \e[36mhttp://localhost:5173/\e[0m\n'
printf '  \e[32m➜\e[0m  \e[1mNetwork\e[0m: use \e[1m--host\e[0m to expose\n\n'
n=0
while :; do
  n=$((n + 1))
  printf '\e[2m10:%02d:%02d\e[0m \e[36m[vite]\e[0m \e[32mhmr update\e[0m /src/pages/checkout.tsx \e[33m(x%s)\e[0m\n' $((n / 60 % 60)) $((n % 60)) $n
  sleep 2
done`,
  pytest: "while :; do printf 'tests/test_orders.py %s passed\\n' $((++n)); sleep 0.$((RANDOM % 5 + 1)); done",
  deploy: "read -rsp 'Password: ' word; exec cat",
  migrate: "read -rn1 -p 'Apply 3 migrations? [y/N] ' key; exec cat",
  ffmpeg: "while :; do :; done",
  make: "echo built in 4.2 s",
  eslint: "echo 3 problems; exit 3",
  worker: "kill -KILL $$",
  "import-orders": "exec sleep 100",
  "export-orders": "head -c 100000 /dev/zero; sleep 100",
};

const USAGE: TokenUsage = { inputTokens: 812, cachedInputTokens: 400, outputTokens: 64, reasoningOutputTokens: 0 };

const TRANSCRIPT: TranscriptEntry[] = [
  { type: "thought", text: "The ticket mentions a refund, so the category is billing. I check the order first." },
  { type: "called", tool: "exec_command", arguments: JSON.stringify({ cmd: "orders show 4711 --json" }) },
  {
    type: "returned",
    tool: "exec_command",
    text: '{"order": 4711, "status": "delivered", "total": "49.90 EUR"}\n',
    ok: true,
  },
  { type: "said", text: "The order was delivered. The customer asks for their money back." },
  { type: "called", tool: "report", arguments: JSON.stringify({ category: "billing", urgent: false }) },
];

/** The ids of the sample jobs. The running job advances until it is disposed. */
export interface SampleJobs extends AsyncDisposable {
  completed: string;
  running: string;
  pending: string;
}

/** Time between two finished rows of the running job. */
const ROW_INTERVAL_MS = 700;
/** How long ago the sample jobs began. */
const JOB_AGE_MS = 6 * 60_000;

/** A clock that is behind the time of day, so that the rows of a job seem to have taken their time. */
class SampleClock implements Clock {
  monotonic = systemClock.monotonic;
  after = systemClock.after;
  #behindMs = JOB_AGE_MS;

  now(): number {
    return systemClock.now() - this.#behindMs;
  }

  advance(ms: number): void {
    this.#behindMs = Math.max(0, this.#behindMs - ms);
  }
}

/** Creates a completed job, a running job with failures, and a pending job. */
export async function createSampleJobs(home: string): Promise<SampleJobs> {
  const early = new SampleClock();
  const completed = await createJob(home, "Classify the support ticket: {subject}", "tickets.csv", 240);
  await using done = await openRun(home, completed, early);
  await finishRows(done, early, Number.POSITIVE_INFINITY, () => false);
  await done.setStatus("completed", ["running"]);
  const running = await createJob(
    home,
    "Translate the product description into German and French: {subject}",
    "products.csv",
    600,
  );
  const clock = new SampleClock();
  const ledger = await openRun(home, running, clock);
  await finishRows(ledger, clock, 430, (row) => row % 9 === 4);
  await ledger.lease(8);
  const pending = await createJob(home, "Summarize {subject} in one sentence", "papers.csv", 90);
  const ended = new AbortController();
  const work = (async () => {
    while (!ended.signal.aborted) {
      await finishRows(ledger, clock, 1, (row) => row % 9 === 4);
      await new Promise((resolve) => setTimeout(resolve, ROW_INTERVAL_MS));
    }
  })();
  return {
    ...{ completed, running, pending },
    [Symbol.asyncDispose]: async () => {
      ended.abort();
      await work;
      await ledger[Symbol.asyncDispose]();
    },
  };
}

async function createJob(home: string, instruction: string, inputPath: string, rows: number): Promise<string> {
  const id = crypto.randomUUID();
  const task = {
    instruction,
    schema: null,
    model: "gpt-5",
    reasoningEffort: null,
    tools: "none" as const,
    idColumn: null,
  };
  await new SqliteStore(home).create(
    {
      ...{
        id,
        key: id,
        task,
        inputPath,
        outputPath: inputPath.replace(".csv", "-results.csv"),
        createdAtMs: Date.now() - JOB_AGE_MS,
      },
      settings: { maxAttempts: 3, rowTimeoutMs: 60_000, rowLimit: null },
    },
    (async function* () {
      for (let rowIndex = 0; rowIndex < rows; rowIndex++) {
        const row = { subject: SUBJECTS[rowIndex % SUBJECTS.length], customer: `customer ${1000 + rowIndex}` };
        yield { itemId: `row-${rowIndex + 1}`, rowIndex, sourceId: null, row };
      }
    })(),
    () => ({ headers: ["subject", "customer"], isReading: false }),
  );
  return id;
}

const SUBJECTS = [
  "Parcel arrived damaged",
  "Where is my invoice?",
  "Cannot sign in since the update",
  "Please cancel my subscription",
  "Refund for order 4711",
];

async function openRun(home: string, jobId: string, clock: Clock): Promise<JobLedger> {
  const ledger = await new SqliteStore(home, { clock }).open(jobId);
  assert.ok(ledger && (await ledger.acquireRun()));
  await ledger.setStatus("running", ["pending"]);
  return ledger;
}

/** Finishes rows in table order. */
async function finishRows(
  ledger: JobLedger,
  clock: SampleClock,
  count: number,
  shouldFail: (row: number) => boolean,
): Promise<void> {
  const transcript = JSON.stringify(TRANSCRIPT);
  for (let finished = 0; finished < count; ) {
    const leases = await ledger.lease(Math.min(8, count - finished));
    if (leases.length === 0) return;
    for (const lease of leases) {
      const { rowIndex } = lease.item;
      clock.advance(400 + ((rowIndex * 37) % 11) * 73);
      const errorClass = rowIndex % 2 === 0 ? ("timeout" as const) : ("schema" as const);
      if (shouldFail(rowIndex)) {
        const message =
          errorClass === "timeout" ? "the row took longer than 60 s" : "`category` must be one of 5 values";
        await ledger.fail(lease, { errorClass, message, usage: USAGE, transcript });
      } else {
        const result = JSON.stringify({
          category: rowIndex % 2 === 0 ? "billing" : "account",
          urgent: rowIndex % 7 === 0,
        });
        await ledger.complete(lease, { result, usage: USAGE, stop: false, transcript });
      }
      finished++;
    }
  }
}
