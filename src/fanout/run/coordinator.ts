import { mkdir } from "node:fs/promises";
import path from "node:path";
import type { RunTools } from "../../agent/headless-run.ts";
import { type CallModel, createModelCaller, type RetryPolicy } from "../../agent/model-call.ts";
import type { ResponsesApi } from "../../agent/responses-api.ts";
import { addUsage } from "../../agent/usage.ts";
import { type Clock, systemClock } from "../../async/clock.ts";
import { parseTemplate } from "../input/template.ts";
import {
  finalStatus,
  type ItemRecord,
  type JobCounts,
  type JobRecord,
  type JobSettings,
  type JobStatus,
} from "../job.ts";
import type { JobLedger, JobStore } from "../ledger/job-ledger.ts";
import { type ExportOptions, exportCsv, exportErrors } from "../output/export.ts";
import type { Progress } from "../output/progress.ts";
import { ProgressTicker } from "../output/progress-ticker.ts";
import { ResultsLog } from "../output/results-log.ts";
import { type JobSummary, summarize } from "../output/summary.ts";
import { compileResultCheck } from "../row/result-check.ts";
import { createRowAgent, type RowAgent } from "../row/row-agent.ts";
import { Limiter } from "./limiter.ts";
import { type FailFast, INTERRUPTED, type RowEvent, type ScheduleEnd, scheduleRows } from "./scheduler.ts";

/** Told what happens to a job. */
export interface JobListener {
  started?(job: JobRecord, counts: JobCounts, resumed: boolean): void;
  progress?(progress: Progress): void;
  /** A row has finished, here or on another machine; each is told once. */
  row?(item: ItemRecord): void;
  retrying?(event: Extract<RowEvent, { type: "retrying" }>): void;
  ended?(end: JobEnd): void;
}

/** What any run of rows needs, whichever job they belong to. */
export interface RowResources {
  callModel: CallModel;
  limiter: Limiter;
  concurrency: number;
  /** The tools an agent has besides the report; null: none. */
  openTools?: ((job: JobRecord, rowIndex: number) => Promise<RunTools | null>) | undefined;
  signal: AbortSignal;
  clock?: Clock;
}

export interface CoordinatorOptions extends RowResources {
  store: JobStore;
  /** Where each job has its folder. */
  jobsHome: string;
  export?: ExportOptions;
  budgetTokens?: number | undefined;
  failFast?: FailFast | undefined;
  listener?: JobListener;
}

export interface JobEnd {
  summary: JobSummary;
  end: ScheduleEnd;
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

/** The agent for the rows of one job. */
export async function rowAgentFor(
  running: RowResources,
  ledger: JobLedger,
  job: JobRecord,
): Promise<RowAgent> {
  return createRowAgent({
    job,
    ledger,
    template: parseTemplate(job.task.instruction),
    check: await compileResultCheck(job.task.schema),
    callModel: running.callModel,
    openTools: running.openTools,
    clock: running.clock ?? systemClock,
  });
}

/** Works on the rows of a job that is in the store, and writes its files, whatever the end is. */
export async function coordinateJob(
  options: CoordinatorOptions,
  jobId: string,
  changes: { settings: JobSettings; outputPath: string; resumed: boolean },
): Promise<JobEnd> {
  const opened = await options.store.open(jobId);
  if (!opened) throw new Error(`there is no job ${jobId}`);
  await using ledger = opened;
  if (!(await ledger.beginRun())) {
    const id = jobId.slice(0, 8);
    throw new Error(`job ${id} is being run by another process; \`procwire jobs watch ${id}\` follows it`);
  }
  await ledger.setOptions(changes);
  await ledger.setStatus("running", RESUMABLE);
  const end = await workOn(options, ledger, await ledger.job(), changes.resumed);
  options.listener?.ended?.(end);
  return end;
}

async function workOn(
  options: CoordinatorOptions,
  ledger: JobLedger,
  job: JobRecord,
  resumed: boolean,
): Promise<JobEnd> {
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
  let end: ScheduleEnd;
  try {
    end = await scheduleRows({
      job,
      ledger,
      rowAgent: await rowAgentFor(options, ledger, job),
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
    // What went wrong may well be the ledger itself; then the first error is the one to tell.
    const reason = error instanceof Error ? error.message : String(error);
    await ledger.setStatus("paused", ["running"], reason).catch(() => undefined);
    throw error;
  } finally {
    await ticker.stop().catch(() => undefined);
    log.close();
  }
  await setFinalStatus(ledger, job, end);
  const errorsPath = await writeFiles(options, ledger, job, folder);
  return { summary: await summarize(ledger), end, errorsPath };
}

/** The end of a run becomes the state of the job, unless somebody else has said how it ended. */
export async function setFinalStatus(ledger: JobLedger, job: JobRecord, end: ScheduleEnd): Promise<void> {
  if (end.type === "idle") return;
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
  options: CoordinatorOptions,
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
export function exitCodeOf({ summary, end }: JobEnd): number {
  if (end.type === "stopped" && end.reason === INTERRUPTED) return 130;
  if (end.type === "stopped") return 1;
  return summary.counts.completed === summary.counts.total ? 0 : 1;
}
