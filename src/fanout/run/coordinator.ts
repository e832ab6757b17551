import path from "node:path";
import { CHARS_PER_TOKEN } from "../../agent/token-usage.ts";
import { systemClock } from "../../async/clock.ts";
import { errorMessage } from "../../base/error-message.ts";
import { JOB_STATUSES } from "../../protocol/console/console-job-schemas.ts";
import type { BatchGroupLimits } from "../batch/batch-run.ts";
import type { BudgetLimits, SharedBudget } from "../cost/job-budget.ts";
import { PACKAGE_PRICES, type PriceTable } from "../cost/price-table.ts";
import type { TableRows } from "../input/table-rows.ts";
import { finalStatus, type ItemRecord, type JobRecord, otherStop, type RunStopReason } from "../job.ts";
import type { JobSettings } from "../job-settings.ts";
import type { JobLedger, JobStore } from "../ledger/job-ledger.ts";
import type { ExportOptions } from "../output/export-results.ts";
import { JobFiles } from "../output/job-files.ts";
import type { JobEnd, JobListener } from "../output/job-listener.ts";
import { summarize } from "../output/job-summary.ts";
import { ProgressTicker } from "../output/progress-ticker.ts";
import { RateStatusFile } from "../output/rate-status-file.ts";
import { ResultsLog } from "../output/results-log.ts";
import { recordOutputPath } from "../output/stored-output-path.ts";
import type { CompiledTask } from "../row/compiled-task.ts";
import { sharedPromptChars } from "../row/row-prompt.ts";
import { withBackgroundTasks } from "./background-tasks.ts";
import { openBatches } from "./open-batches.ts";
import { reuseAnswers } from "./reuse-answers.ts";
import { type RowResources, rowAgentFor } from "./row-resources.ts";
import { type FailFast, scheduleRows } from "./scheduler.ts";
import { TableIngestion } from "./table-ingestion.ts";

export interface CoordinatorOptions extends RowResources {
  store: JobStore;
  /** Directory that contains one directory per job. */
  jobsHome: string;
  export?: ExportOptions;
  budget?: BudgetLimits | undefined;
  /** Prices of models. Default: the packaged ones. */
  prices?: PriceTable | undefined;
  failFast?: FailFast | undefined;
  /** Size limits of batch groups. Default: below the limits of providers. */
  batchLimits?: BatchGroupLimits | undefined;
  listener?: JobListener;
}

/** A stored job, and how to run it. */
export interface CoordinatedJob {
  jobId: string;
  task: CompiledTask;
  settings: JobSettings;
  outputPath: string;
  resumed: boolean;
  /** Source of the rows that the ledger does not have yet. */
  rows?: TableRows | null | undefined;
}

/** Runs a stored job and writes its files, however the run ends. */
export async function coordinateJob(options: CoordinatorOptions, coordinatedJob: CoordinatedJob): Promise<JobEnd> {
  const { jobId, settings, outputPath } = coordinatedJob;
  await using ledger = await options.store.open(jobId);
  if (!ledger) throw new Error(`there is no job ${jobId}`);
  const directory = path.join(options.jobsHome, jobId);
  await using files = await JobFiles.open(outputPath, directory, options.export);
  if (!(await ledger.acquireRun({ outputPath }))) {
    const id = jobId.slice(0, 8);
    throw new Error(`job ${id} is being run by another process; \`procwire jobs watch ${id}\` follows it`);
  }
  const found = await ledger.job();
  const budget = ledger.shared ? fleetBudget(options, found.task.model) : undefined;
  await ledger.setOptions({ settings: { ...settings, budget }, outputPath });
  if (ledger.shared) await recordOutputPath(files.directory, outputPath);
  if (settings.reuse !== false) {
    const reused = await reuseAnswers(options.store, ledger, coordinatedJob.task.check, options.signal);
    if (reused > 0) options.listener?.reused?.(reused);
  }
  // Also from final statuses, because a retry may have made rows pending again. But a cancellation since the start of this
  // run applies.
  const isCancelledBefore = coordinatedJob.resumed && found.status === "cancelled";
  const from = isCancelledBefore ? JOB_STATUSES : JOB_STATUSES.filter((status) => status !== "cancelled");
  await ledger.setStatus("running", from);
  try {
    const end = await runRows(options, ledger, await ledger.job(), coordinatedJob, files);
    options.listener?.ended?.(end);
    return end;
  } catch (error) {
    // The ledger itself may have failed. Then the first error is the one to report.
    const stop = otherStop(errorMessage(error));
    await ledger.setStatus("paused", ["running"], stop).catch(() => undefined);
    throw error;
  }
}

/** Returns the budget with the price it needs, or undefined if none is set. */
function fleetBudget(options: CoordinatorOptions, model: string): SharedBudget | undefined {
  const { budget, prices = PACKAGE_PRICES } = options;
  if (budget?.tokens === undefined && budget?.usd === undefined) return undefined;
  return { ...budget, price: prices.priceOf(model) ?? undefined };
}

async function runRows(
  options: CoordinatorOptions,
  ledger: JobLedger,
  job: JobRecord,
  coordinatedJob: CoordinatedJob,
  files: JobFiles,
): Promise<JobEnd> {
  const { listener = {}, clock = systemClock, prices = PACKAGE_PRICES } = options;
  const price = prices.priceOf(job.task.model);
  const { directory } = files;
  const log = await ResultsLog.open(directory, ledger, price);
  const reportRow = (item: ItemRecord) => {
    if (log.append(item)) listener.row?.(item);
  };
  listener.started?.(job, await ledger.counts(), coordinatedJob.resumed);
  const { task, rows } = coordinatedJob;
  const batch = await openBatches(options, { ledger, job, task, directory, price, onFinished: reportRow });
  const ingestion = rows ? new TableIngestion({ ...options, ledger, job, task, rows }) : null;
  const rateStatus = new RateStatusFile(directory, clock);
  const ticker = new ProgressTicker({
    ledger,
    batches: () => batch?.submittedRows ?? null,
    isReading: () => ingestion?.isOpen ?? false,
    limiter: options.limiter,
    health: options.health,
    price,
    clock,
    onProgress: (progress) => {
      rateStatus.update(progress);
      listener.progress?.(progress);
    },
    onFinished: reportRow,
  });
  ticker.start();
  let end: RunStopReason;
  try {
    end = await withBackgroundTasks([batch, ingestion], options.signal, (signal) =>
      scheduleRows({
        ...options,
        job,
        ledger,
        rowAgent: rowAgentFor(options, ledger, job, task),
        price,
        warmFirst: isWorthWarming(job, task),
        clock,
        signal,
        isReading: ingestion ? () => ingestion.isOpen : undefined,
        keepsRunOpen: batch ? () => batch.submittedRows !== null : undefined,
        onFinished: reportRow,
        onRetry: (retry) => listener.retrying?.(retry),
      }),
    );
  } finally {
    await ticker.stop().catch(() => undefined);
    await rateStatus.close();
    await log.close();
  }
  // A stop is recorded first, because other processes follow it. A job is completed only after its files are written.
  if (end.type === "stopped") await setFinalStatus(ledger, end);
  const errorsPath = await writeFiles(ledger, files, log);
  if (end.type === "finished") await setFinalStatus(ledger, end);
  return { summary: await summarize(ledger, prices), end, errorsPath };
}

/** Minimum prompt prefix that servers cache, in tokens. */
const MIN_CACHED_TOKENS = 1_024;

function isWorthWarming(job: JobRecord, { template }: CompiledTask): boolean {
  return sharedPromptChars(job.task.schema, template) / CHARS_PER_TOKEN >= MIN_CACHED_TOKENS;
}

/** Sets the status of the job at the end of a run, unless another process has set it. */
export async function setFinalStatus(ledger: JobLedger, end: RunStopReason): Promise<void> {
  if (end.type === "idle") return;
  if (end.type === "stopped") {
    await ledger.setStatus(end.status, ["running"], end);
    return;
  }
  const job = await ledger.job();
  const counts = await ledger.counts();
  const open = counts.pending + counts.running;
  const unsampled = job.totalRows - counts.total;
  const pause = (reason: string) => ledger.setStatus("paused", ["running"], otherStop(reason));
  if (job.isReading) await pause("the table was not read completely; run the command that started the job again");
  else if (open > 0) await pause(`the requested rows are finished; ${open} other rows are left`);
  else if (unsampled > 0) await pause(`the sample is finished; ${unsampled} rows are left`);
  else await ledger.setStatus(finalStatus(counts), ["running"]);
}

async function writeFiles(ledger: JobLedger, files: JobFiles, log: ResultsLog): Promise<string | null> {
  // Read again, because new columns may have occurred during the run.
  const job = await ledger.job();
  try {
    await log.catchUp();
    return await files.write(ledger, job);
  } catch (error) {
    const message = errorMessage(error);
    await ledger.setStatus("failed", JOB_STATUSES, otherStop(`auto-export failed: ${message}`));
    throw new Error(
      `failed to export output csv ${job.id}: ${message}; nothing is lost: \`procwire jobs export ${job.id.slice(0, 8)}\` writes it again`,
      { cause: error },
    );
  }
}
