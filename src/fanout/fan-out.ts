import { mkdir } from "node:fs/promises";
import path from "node:path";
import type { RunTools } from "../agent/headless-run.ts";
import { type CallModel, createModelCaller, type RetryPolicy } from "../agent/model-call.ts";
import type { ResponsesApi } from "../agent/responses-api.ts";
import { addUsage } from "../agent/usage.ts";
import { type Clock, systemClock } from "../async/clock.ts";
import { checkOutput, type ExportOptions, exportCsv, exportErrors } from "./export.ts";
import { jobKey, type TableInput } from "./input.ts";
import { checkIdColumn, ItemIds } from "./items.ts";
import {
  finalStatus,
  type ItemRecord,
  type JobCounts,
  type JobRecord,
  type JobSettings,
  type JobStatus,
  type JobTask,
} from "./job.ts";
import { Limiter } from "./limiter.ts";
import type { Progress } from "./progress.ts";
import { ProgressTicker } from "./progress-ticker.ts";
import { compileResultCheck } from "./result-schema.ts";
import { ResultsLog } from "./results-log.ts";
import { createRowAgent } from "./row-agent.ts";
import { type FailFast, INTERRUPTED, type RowEvent, type RunnerEnd, runJob } from "./runner.ts";
import type { JobLedger, JobStore } from "./store/job-store.ts";
import { type JobSummary, summarize } from "./summary.ts";
import { openTable } from "./table.ts";
import { checkColumns, parseTemplate, type Template } from "./template.ts";

/** Told what happens to a job. */
export interface JobListener {
  started?(job: JobRecord, counts: JobCounts, resumed: boolean): void;
  progress?(progress: Progress): void;
  /** A row has finished, here or on another machine; each is told once. */
  row?(item: ItemRecord): void;
  retrying?(event: Extract<RowEvent, { type: "retrying" }>): void;
  ended?(end: FanoutEnd): void;
}

/** What any run of rows needs, whichever job they belong to. */
export interface RowRunning {
  callModel: CallModel;
  limiter: Limiter;
  concurrency: number;
  /** The tools an agent has besides the report; null: none. */
  openTools?: ((job: JobRecord, rowIndex: number) => Promise<RunTools | null>) | undefined;
  signal: AbortSignal;
  clock?: Clock;
}

export interface FanoutOptions extends RowRunning {
  store: JobStore;
  /** Where each job has its folder. */
  jobsHome: string;
  input: TableInput;
  task: JobTask;
  settings: JobSettings;
  /** Where the table goes; a function where the name holds the job's id. */
  outputPath: string | ((jobId: string) => string);
  export?: ExportOptions;
  /** Start over although the job is known. */
  fresh?: boolean;
  budgetTokens?: number | undefined;
  failFast?: FailFast | undefined;
  listener?: JobListener;
  newId?: () => string;
}

export interface FanoutEnd {
  summary: JobSummary;
  end: RunnerEnd;
  errorsPath: string | null;
}

/**
 * Patient, because a lost row costs more than a minute: about 13 s of transport trouble a call, and rate limits for as
 * long as anybody still gets answers.
 */
const FANOUT_RETRY_POLICY: RetryPolicy = {
  transportRetries: 6,
  rateLimitRetries: 30,
  baseDelayMs: 200,
  maxDelayMs: 30_000,
  maxRetryAfterMs: 15 * 60_000,
};

/** The one limiter of all rows, and the way through it to the model. */
export function createRowCaller(
  api: ResponsesApi,
  limits: { width: number; requestsPerMinute?: number | undefined; tokensPerMinute?: number | undefined },
  overrides: { clock?: Clock; random?: () => number; retry?: RetryPolicy } = {},
): { limiter: Limiter; callModel: CallModel } {
  const limiter = new Limiter({ ...limits, ...(overrides.clock ? { clock: overrides.clock } : {}) });
  const callModel = createModelCaller({ api, gate: limiter, retry: FANOUT_RETRY_POLICY, ...overrides });
  return { limiter, callModel };
}

/** Finds or makes the job, works on its rows, writes its files. The same call again goes on where this one ended. */
export async function runFanout(options: FanoutOptions): Promise<FanoutEnd> {
  const template = parseTemplate(options.task.instruction);
  const check = await compileResultCheck(options.task.schema);
  const { job: found, resumed } = await findOrCreate(options, template);
  const opened = await options.store.open(found.id);
  if (!opened) throw new Error(`job ${found.id} has vanished`);
  await using ledger = opened;
  if (!(await ledger.beginRun())) {
    throw new Error(
      `job ${found.id.slice(0, 8)} is being run by another process; \`procwire jobs watch ${found.id.slice(0, 8)}\` follows it`,
    );
  }
  await ledger.setOptions({ settings: options.settings, outputPath: outputPathOf(options, found.id) });
  await ledger.setStatus("running", RESUMABLE);
  const job = await ledger.job();
  const end = await workOn(options, ledger, job, { template, check }, resumed);
  options.listener?.ended?.(end);
  return end;
}

/** Every state can be gone on from, also the ones that are final: there may be rows that were asked for again. */
const RESUMABLE: readonly JobStatus[] = [
  "pending",
  "running",
  "completed",
  "completed_with_errors",
  "failed",
  "cancelled",
  "paused",
];

async function findOrCreate(
  options: FanoutOptions,
  template: Template,
): Promise<{ job: JobRecord; resumed: boolean }> {
  const { store, input, task, clock = systemClock, newId = () => crypto.randomUUID() } = options;
  const key = jobKey(input, task);
  const known = options.fresh ? null : await store.find(key);
  const id = known?.id ?? newId();
  await checkOutput(outputPathOf(options, id));
  if (known) return { job: known, resumed: true };
  const table = openTable(input.path, input.format, input.name);
  const ids = new ItemIds(task.idColumn);
  const rows = async function* () {
    for await (const row of table.rows()) {
      options.signal.throwIfAborted();
      yield ids.item(row);
    }
    // Only now are all columns known.
    checkIdColumn(task.idColumn, table.headers);
    checkColumns(template, table.headers);
  };
  const job = await store.create(
    {
      id,
      key,
      task,
      settings: options.settings,
      inputPath: input.name,
      outputPath: outputPathOf(options, id),
      createdAtMs: clock.now(),
    },
    rows(),
    () => table.headers,
  );
  return { job, resumed: false };
}

function outputPathOf({ outputPath }: FanoutOptions, jobId: string): string {
  return typeof outputPath === "string" ? outputPath : outputPath(jobId);
}

async function workOn(
  options: FanoutOptions,
  ledger: JobLedger,
  job: JobRecord,
  made: { template: Template; check: Awaited<ReturnType<typeof compileResultCheck>> },
  resumed: boolean,
): Promise<FanoutEnd> {
  const { listener = {}, clock = systemClock } = options;
  const folder = path.join(options.jobsHome, job.id);
  await mkdir(folder, { recursive: true });
  const log = await ResultsLog.open(path.join(folder, "results.jsonl"), ledger);
  const tell = (item: ItemRecord) => {
    if (log.append(item)) listener.row?.(item);
  };
  listener.started?.(job, await ledger.counts(), resumed);
  const ticker = new ProgressTicker({
    ledger,
    limiter: options.limiter,
    clock,
    onProgress: (progress) => listener.progress?.(progress),
    onSettled: tell,
  });
  ticker.start();
  let end: RunnerEnd;
  try {
    end = await runJob({
      job,
      ledger,
      rowAgent: createRowAgent({
        job,
        ledger,
        ...made,
        callModel: options.callModel,
        openTools: options.openTools,
        clock,
      }),
      limiter: options.limiter,
      concurrency: options.concurrency,
      budgetTokens: options.budgetTokens,
      failFast: options.failFast,
      clock,
      signal: options.signal,
      onRow: (event) => {
        if (event.type === "retrying") listener.retrying?.(event);
        else tell(settledItem(event, clock.now()));
      },
    });
  } catch (error) {
    await ledger.setStatus("paused", ["running"], error instanceof Error ? error.message : String(error));
    throw error;
  } finally {
    await ticker.stop();
    log.close();
  }
  await setFinalStatus(ledger, job, end);
  const errorsPath = await writeFiles(options, ledger, job, folder);
  return { summary: await summarize(ledger), end, errorsPath };
}

async function setFinalStatus(ledger: JobLedger, job: JobRecord, end: RunnerEnd): Promise<void> {
  if (end.type === "stopped") {
    await ledger.setStatus(end.status, ["running"], end.reason);
    return;
  }
  const counts = await ledger.counts();
  if (counts.total < job.totalRows) {
    const left = job.totalRows - counts.total;
    await ledger.setStatus("paused", ["running"], `the sample is done; ${left} rows are left`);
  } else {
    await ledger.setStatus(finalStatus(counts), ["running"]);
  }
}

/** Writes what is there, whatever the end was. The ledger keeps everything when the disk does not. */
async function writeFiles(
  options: FanoutOptions,
  ledger: JobLedger,
  job: JobRecord,
  folder: string,
): Promise<string | null> {
  const errorsPath = path.join(folder, "errors.csv");
  try {
    await exportCsv(ledger, job, job.outputPath, options.export);
    return (await exportErrors(ledger, job, errorsPath)) > 0 ? errorsPath : null;
  } catch (error) {
    const message = error instanceof Error ? error.message : String(error);
    await ledger.setStatus("failed", RESUMABLE, `auto-export failed: ${message}`);
    throw new Error(
      `failed to export output csv ${job.id}: ${message}; nothing is lost: \`procwire jobs export ${job.id.slice(0, 8)}\` writes it again`,
      { cause: error },
    );
  }
}

function settledItem(event: Exclude<RowEvent, { type: "retrying" }>, nowMs: number): ItemRecord {
  const { item } = event.claim;
  return event.type === "failed"
    ? {
        ...item,
        status: "failed",
        errorClass: event.errorClass,
        error: event.message,
        usage: addUsage(item.usage, event.usage),
        completedAtMs: nowMs,
      }
    : {
        ...item,
        status: "completed",
        result: event.outcome.result,
        errorClass: null,
        error: null,
        usage: addUsage(item.usage, event.outcome.usage),
        reportedAtMs: nowMs,
        completedAtMs: nowMs,
      };
}

/** 0 only when every row that was asked for is completed; 130 when the user broke it off. */
export function exitCodeOf({ summary, end }: FanoutEnd): number {
  if (end.type === "stopped" && end.reason === INTERRUPTED) return 130;
  if (end.type === "stopped") return 1;
  return summary.counts.completed === summary.counts.total ? 0 : 1;
}
