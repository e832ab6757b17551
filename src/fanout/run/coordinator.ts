import { mkdir } from "node:fs/promises";
import path from "node:path";
import { systemClock } from "../../async/clock.ts";
import { messageOf } from "../../base/error-message.ts";
import { JOB_STATUSES } from "../../protocol/console-job-schemas.ts";
import type { PartLimits } from "../batch/batch-run.ts";
import type { BudgetLimits, FleetBudget } from "../cost/job-budget.ts";
import { PACKAGE_PRICES, type PriceTable } from "../cost/price-table.ts";
import type { TableRows } from "../input/table-rows.ts";
import { finalStatus, type ItemRecord, type JobRecord, type JobSettings, type ScheduleEnd } from "../job.ts";
import type { JobLedger, JobStore } from "../ledger/job-ledger.ts";
import type { ExportOptions } from "../output/export-results.ts";
import { writeJobFiles } from "../output/job-files.ts";
import type { JobEnd, JobListener } from "../output/job-listener.ts";
import { summarize } from "../output/job-summary.ts";
import { ProgressTicker } from "../output/progress-ticker.ts";
import { PaceFile } from "../output/rate-status-file.ts";
import { ResultsLog } from "../output/results-log.ts";
import type { CompiledTask } from "../row/compiled-task.ts";
import { sharedPromptChars } from "../row/row-prompt.ts";
import { withCompanions } from "./background-tasks.ts";
import { openBatches } from "./open-batches.ts";
import { reuseAnswers } from "./reuse-answers.ts";
import { type RowResources, rowAgentFor } from "./row-resources.ts";
import { type FailFast, scheduleRows } from "./scheduler.ts";
import { TableReading } from "./table-ingestion.ts";

export interface CoordinatorOptions extends RowResources {
  store: JobStore;
  /** The folder that holds a folder for each job. */
  jobsHome: string;
  export?: ExportOptions;
  budget?: BudgetLimits | undefined;
  /** Prices of models; default: those in the package. */
  prices?: PriceTable | undefined;
  failFast?: FailFast | undefined;
  /** Size limits of batch parts; default: below the limits of providers. */
  batchLimits?: PartLimits | undefined;
  listener?: JobListener;
}

/** A job in the store, and how to run it this time. */
export interface CoordinatedJob {
  jobId: string;
  task: CompiledTask;
  settings: JobSettings;
  outputPath: string;
  resumed: boolean;
  /** Source of the table's rows that the ledger does not have yet. */
  rows?: TableRows | null | undefined;
}

/** Works on the rows of a job in the store, and writes its files however the run ends. */
export async function coordinateJob(options: CoordinatorOptions, known: CoordinatedJob): Promise<JobEnd> {
  const { jobId, settings, outputPath } = known;
  const opened = await options.store.open(jobId);
  if (!opened) throw new Error(`there is no job ${jobId}`);
  await using ledger = opened;
  if (!(await ledger.beginRun())) {
    const id = jobId.slice(0, 8);
    throw new Error(`job ${id} is being run by another process; \`procwire jobs watch ${id}\` follows it`);
  }
  const budget = ledger.shared ? fleetBudget(options, (await ledger.job()).task.model) : undefined;
  await ledger.setOptions({ settings: { ...settings, budget }, outputPath });
  if (settings.reuse !== false) {
    const reused = await reuseAnswers(options.store, ledger, known.task.check, options.signal);
    if (reused > 0) options.listener?.reused?.(reused);
  }
  // Also from final states: a retry may have made rows pending again.
  await ledger.setStatus("running", JOB_STATUSES);
  const end = await workOn(options, ledger, await ledger.job(), known);
  options.listener?.ended?.(end);
  return end;
}

/** The budget with the price it needs; undefined: none was given. */
function fleetBudget(options: CoordinatorOptions, model: string): FleetBudget | undefined {
  const { budget, prices = PACKAGE_PRICES } = options;
  if (budget?.tokens === undefined && budget?.usd === undefined) return undefined;
  return { ...budget, price: prices.priceOf(model) ?? undefined };
}

async function workOn(
  options: CoordinatorOptions,
  ledger: JobLedger,
  job: JobRecord,
  known: CoordinatedJob,
): Promise<JobEnd> {
  const { listener = {}, clock = systemClock, prices = PACKAGE_PRICES } = options;
  const price = prices.priceOf(job.task.model);
  const folder = path.join(options.jobsHome, job.id);
  await mkdir(folder, { recursive: true });
  const log = await ResultsLog.open(path.join(folder, "results.jsonl"), ledger, price);
  const tell = (item: ItemRecord) => {
    if (log.append(item)) listener.row?.(item);
  };
  listener.started?.(job, await ledger.counts(), known.resumed);
  const batch = await openBatches(options, ledger, job, known.task, { folder, price, tell });
  const reading = known.rows ? new TableReading(options, ledger, job, known.task, known.rows) : null;
  const pace = new PaceFile(folder, clock);
  const ticker = new ProgressTicker({
    ledger,
    batches: () => batch?.out ?? null,
    isReading: () => reading?.isOpen ?? false,
    limiter: options.limiter,
    health: options.health,
    price,
    clock,
    onProgress: (progress) => {
      pace.tell(progress);
      listener.progress?.(progress);
    },
    onSettled: tell,
  });
  ticker.start();
  let end: ScheduleEnd;
  try {
    end = await withCompanions([batch, reading], options.signal, (signal) =>
      scheduleRows({
        job,
        ledger,
        rowAgent: rowAgentFor(options, ledger, job, known.task),
        limiter: options.limiter,
        concurrency: options.concurrency,
        budget: options.budget,
        price,
        warmFirst: isWorthWarming(job, known.task),
        failFast: options.failFast,
        clock,
        signal,
        isReading: reading ? () => reading.isOpen : undefined,
        holdsOpen: batch ? () => batch.out !== null : undefined,
        onSettled: tell,
        onRetry: (retry) => listener.retrying?.(retry),
      }),
    );
  } catch (error) {
    // The ledger itself may be what failed; then the first error is the one to report.
    const reason = messageOf(error);
    await ledger.setStatus("paused", ["running"], reason).catch(() => undefined);
    throw error;
  } finally {
    await ticker.stop().catch(() => undefined);
    await pace.close();
    log.close();
  }
  // A stop is recorded first, because other processes obey it. A job is finished only when its files are written.
  if (end.type === "stopped") await setFinalStatus(ledger, end);
  const errorsPath = await writeFiles(options, ledger, folder, log);
  if (end.type === "finished") await setFinalStatus(ledger, end);
  return { summary: await summarize(ledger, prices), end, errorsPath };
}

/** The shortest prompt prefix, in tokens, that servers cache. */
const LEAST_CACHED_TOKENS = 1_024;
const CHARS_PER_TOKEN = 4;

function isWorthWarming(job: JobRecord, { template }: CompiledTask): boolean {
  return sharedPromptChars(job.task.schema, template) / CHARS_PER_TOKEN >= LEAST_CACHED_TOKENS;
}

/** Sets the status of the job from the end of a run, unless another process has set it already. */
export async function setFinalStatus(ledger: JobLedger, end: ScheduleEnd): Promise<void> {
  if (end.type === "idle") return;
  if (end.type === "stopped") {
    await ledger.setStatus(end.status, ["running"], end.reason);
    return;
  }
  const job = await ledger.job();
  const counts = await ledger.counts();
  const open = counts.pending + counts.running;
  if (job.isReading) {
    await ledger.setStatus(
      "paused",
      ["running"],
      `the table was not read to its end; the command that began the job goes on with it`,
    );
  } else if (open > 0) {
    await ledger.setStatus(
      "paused",
      ["running"],
      `the rows that were asked for are done; ${open} others are left`,
    );
  } else if (counts.total < job.totalRows) {
    const left = job.totalRows - counts.total;
    await ledger.setStatus("paused", ["running"], `the sample is done; ${left} rows are left`);
  } else {
    await ledger.setStatus(finalStatus(counts), ["running"]);
  }
}

async function writeFiles(
  options: CoordinatorOptions,
  ledger: JobLedger,
  folder: string,
  log: ResultsLog,
): Promise<string | null> {
  // Read again: columns may have been found since the run began.
  const job = await ledger.job();
  try {
    await log.catchUp();
    return await writeJobFiles(ledger, job, folder, options.export);
  } catch (error) {
    const message = messageOf(error);
    await ledger.setStatus("failed", JOB_STATUSES, `auto-export failed: ${message}`);
    throw new Error(
      `failed to export output csv ${job.id}: ${message}; nothing is lost: \`procwire jobs export ${job.id.slice(0, 8)}\` writes it again`,
      { cause: error },
    );
  }
}
