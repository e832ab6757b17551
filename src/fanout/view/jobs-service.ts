import { type TokenUsage, totalTokens } from "../../agent/token-usage.ts";
import { systemClock } from "../../async/clock.ts";
import { errorMessage } from "../../base/error-message.ts";
import { shellQuoteAll } from "../../base/text/printable-text.ts";
import type {
  JobDetails,
  JobList,
  JobListing,
  JobsQuery,
  JobsResult,
  ResultsPart,
  RetryResult,
  RowDetails,
  RowListing,
  RowPageResult,
  RowsQuery,
} from "../../protocol/console/console-job-schemas.ts";
import { costInUsd, type Price, type PriceTable } from "../cost/price-table.ts";
import { hasEnded, type ItemRecord, type JobCounts, type JobRecord, type TranscriptEntry } from "../job.ts";
import type { JobLedger, JobStore } from "../ledger/job-ledger.ts";
import { JOBS_VARIABLE } from "../ledger/jobs-directory.ts";
import { retryFailedItems } from "../ledger/retry-failed.ts";
import { cellText, formatResults } from "../output/export-results.ts";
import { rowProcessPrefix } from "../row/row-process-prefix.ts";
import { rowJson } from "../row/row-prompt.ts";
import { readItemDetails } from "./item-details.ts";
import { readRateStatus } from "./read-rate-status.ts";

export interface JobViewsOptions {
  store: JobStore;
  prices: PriceTable;
  /** Directory that contains one directory per job. */
  jobsHome: string;
  /** Path of the procwire command on this host. Default: the console shows the command instead of running it. */
  program?: string | undefined;
}

/** Points of the progress curve of a job, limited by the page width. */
const CURVE_SPANS = 200;
const MIN_SPAN_MS = 1_000;

/** Answers the console's queries about jobs from the current ledger. */
export class JobsQueryService {
  readonly #options: JobViewsOptions;
  /** Cached counts of ended jobs, valid until the job changes. */
  readonly #cachedCounts = new Map<string, { updatedAtMs: number; counts: JobCounts }>();

  constructor(options: JobViewsOptions) {
    this.#options = options;
  }

  /** Answers a query. Errors are results; the promise never rejects. */
  async handle(jobsQuery: JobsQuery): Promise<JobsResult> {
    try {
      if (jobsQuery.type === "list") return ok(await this.#list());
      await using ledger = await this.#options.store.open(jobsQuery.jobId);
      if (ledger?.jobId !== jobsQuery.jobId) return notFoundResult(`there is no job ${jobsQuery.jobId}`);
      switch (jobsQuery.type) {
        case "job":
          return ok(await this.#job(ledger));
        case "rows":
          return ok(await this.#rows(ledger, jobsQuery.query));
        case "row": {
          const row = await this.#row(ledger, jobsQuery.itemId);
          return row ? ok(row) : notFoundResult(`job ${shortId(ledger)} has no row ${jobsQuery.itemId}`);
        }
        case "results":
          return ok(await this.#results(ledger, jobsQuery));
        case "retry":
          return await this.#retry(ledger, jobsQuery.request);
      }
    } catch (error) {
      return { type: "refused", reason: errorMessage(error) };
    }
  }

  async #list(): Promise<JobList> {
    const { store } = this.#options;
    const unreadable = (await store.unreadable()).map(({ reason }) => reason);
    const jobs: JobListing[] = [];
    for (const job of await store.list()) {
      try {
        jobs.push(await this.#listed(job));
      } catch (error) {
        // Opening may succeed although a later read hits a damaged page.
        unreadable.push(`cannot read job ${job.id.slice(0, 8)}: ${errorMessage(error)}`);
      }
    }
    return { jobs, unreadable };
  }

  async #listed(job: JobRecord): Promise<JobListing> {
    const counts = await this.#countsOf(job);
    const instruction = job.task.instruction.slice(0, MAX_LISTED_CHARS);
    await using ledger = job.status === "running" ? await this.#options.store.open(job.id) : null;
    return { ...this.#listing(job, counts, await this.#runState(job, ledger)), instruction };
  }

  async #countsOf(job: JobRecord): Promise<JobCounts> {
    const known = this.#cachedCounts.get(job.id);
    if (known && hasEnded(job.status) && known.updatedAtMs === job.updatedAtMs) return known.counts;
    await using ledger = await this.#options.store.open(job.id);
    if (!ledger) throw new Error("it has just been removed");
    const counts = await ledger.counts();
    this.#cachedCounts.set(job.id, { updatedAtMs: job.updatedAtMs, counts });
    return counts;
  }

  async #runState(job: JobRecord, ledger: JobLedger | null): Promise<RunState> {
    if (!ledger || job.status !== "running") return { isBeingRun: false, currentRate: 0 };
    const isBeingRun = await ledger.isRunHeld();
    return { isBeingRun, currentRate: isBeingRun === false ? 0 : await readRate(ledger, systemClock.now()) };
  }

  #listing(job: JobRecord, counts: JobCounts, { isBeingRun, currentRate }: RunState): JobListing {
    const { pending, running, completed, failed } = counts;
    const isRunning = job.status === "running";
    const lastedMs = (job.completedAtMs ?? job.updatedAtMs) - (job.startedAtMs ?? job.createdAtMs);
    const averageRate = lastedMs > 0 ? ((completed + failed) * 1000) / lastedMs : 0;
    return {
      jobId: job.id,
      status: job.status,
      error: job.stop?.reason ?? null,
      instruction: job.task.instruction,
      model: job.settings.model ?? job.task.model,
      inputPath: job.inputPath,
      createdAtMs: job.createdAtMs,
      totalRows: job.totalRows,
      pending,
      running,
      completed,
      failed,
      usage: usageWithCost(counts.usage, this.#priceOf(job)),
      isBeingRun,
      ratePerSecond: isRunning ? currentRate : averageRate,
      etaSeconds: isRunning && currentRate > 0 && !job.isReading ? Math.round((pending + running) / currentRate) : null,
    };
  }

  async #job(ledger: JobLedger): Promise<JobDetails> {
    const job = await ledger.job();
    const counts = await ledger.counts();
    const nowMs = systemClock.now();
    const price = this.#priceOf(job);
    const isRunning = job.status === "running";
    const beganMs = job.startedAtMs ?? job.createdAtMs;
    const lastedMs = (hasEnded(job.status) ? (job.completedAtMs ?? nowMs) : nowMs) - beganMs;
    const spanMs = Math.max(MIN_SPAN_MS, Math.ceil(lastedMs / CURVE_SPANS / MIN_SPAN_MS) * MIN_SPAN_MS);
    const { backingOff, refusedForRate } = await ledger.views.waits(nowMs);
    const failures = await ledger.views.failures();
    return {
      job: this.#listing(job, counts, await this.#runState(job, ledger)),
      outputPath: job.outputPath,
      headers: [...job.headers],
      isReading: job.isReading,
      spanMs,
      settled: await ledger.views.finishedPerInterval(beganMs, spanMs),
      failures: failures.map((group) => ({ ...group, usage: usageWithCost(group.usage, price) })),
      backingOff,
      refusedForRate,
      pace: isRunning ? await readRateStatus(this.#options.jobsHome, job.id, nowMs) : null,
      retryRefused: retryRefused(ledger, job, counts),
    };
  }

  async #rows(ledger: JobLedger, query: RowsQuery): Promise<RowPageResult> {
    const { offset, limit, ...filter } = query;
    const job = await ledger.job();
    const price = this.#priceOf(job);
    const { total, items } = await ledger.views.page(filter, offset, limit);
    return { total, offset, rows: items.map((item) => rowListing(item, job, price)) };
  }

  async #results(
    ledger: JobLedger,
    { format, offset, limit }: Extract<JobsQuery, { type: "results" }>,
  ): Promise<ResultsPart> {
    const { total, items } = await ledger.views.page({}, offset, limit);
    return { total, rows: items.length, text: formatResults(await ledger.job(), items, format) };
  }

  async #row(ledger: JobLedger, itemId: string): Promise<RowDetails | null> {
    const details = await readItemDetails(ledger, itemId, this.#options.prices);
    if (!details) return null;
    const { item, attempts, prompt } = details;
    const job = await ledger.job();
    const price = this.#priceOf(job);
    return {
      row: rowListing(item, job, price),
      cells: rowJson(job.headers, item.row),
      result: item.result,
      error: item.error,
      instructions: prompt.instructions,
      prompt: prompt.message,
      attempts: attempts.map((attempt) => ({
        ...attempt,
        usage: usageWithCost(attempt.usage, price),
        transcript: attempt.transcript.map(transcriptLine),
      })),
      processPrefix: rowProcessPrefix(job.id, item.rowIndex),
    };
  }

  async #retry(ledger: JobLedger, request: Extract<JobsQuery, { type: "retry" }>["request"]): Promise<JobsResult> {
    const job = await ledger.job();
    const refused = retryRefused(ledger, job, await ledger.counts());
    if (refused !== null) return { type: "refused", reason: refused };
    const { errorClasses, itemIds } = request;
    const rows = await retryFailedItems(ledger, { errorClasses, itemIds });
    const flags = [
      ...(errorClasses ?? []).flatMap((name) => ["--class", name]),
      ...(itemIds ?? []).flatMap((id) => ["--item", id]),
    ];
    const args = ["jobs", "retry", shortId(ledger), ...flags];
    const isBeingRun = job.status === "running" && (await ledger.isRunHeld()) !== false;
    const isRunNeeded = rows > 0 && !isBeingRun;
    return ok({
      rows,
      command: isRunNeeded ? shellQuoteAll(["procwire", ...args]) : null,
      run: isRunNeeded ? this.#run(args) : null,
    } satisfies RetryResult);
  }

  /** Returns the process that runs the command; null if this installation has no command. */
  #run(args: readonly string[]): RetryResult["run"] {
    const { program, jobsHome } = this.#options;
    return program === undefined ? null : { argv: [program, ...args], env: { [JOBS_VARIABLE]: jobsHome } };
  }

  #priceOf(job: JobRecord): Price | null {
    return this.#options.prices.priceOf(job.settings.model ?? job.task.model);
  }
}

/** Whether a process works on a job, and its rate in rows per second. */
interface RunState {
  isBeingRun: boolean | null;
  currentRate: number;
}

/** Window of the rate: long enough to be steady, short enough to follow changes. */
const RATE_WINDOW_MS = 30_000;
/** Minimum window; a rate over less time would be unstable. */
const MIN_RATE_MS = 5_000;

async function readRate(ledger: JobLedger, nowMs: number): Promise<number> {
  const spans = await ledger.views.finishedPerInterval(nowMs - RATE_WINDOW_MS, MIN_SPAN_MS);
  const [first] = spans;
  if (!first) return 0;
  const rows = spans.reduce((sum, { completed, failed }) => sum + completed + failed, 0);
  const sinceMs = Math.max(first.atMs, nowMs - RATE_WINDOW_MS);
  return (rows * 1000) / Math.max(MIN_RATE_MS, nowMs - sinceMs);
}

/**
 * Returns why a retry is rejected, or null. The queue of a shared store is filled when a run begins; rows retried
 * during the run would not get into it.
 */
function retryRefused(ledger: JobLedger, job: JobRecord, counts: JobCounts): string | null {
  if (counts.failed === 0) return "no row has failed";
  return ledger.shared && job.status === "running"
    ? "the job is running; retry its failed rows after it has ended"
    : null;
}

/** Maximum length of cells, results and errors in the list of rows. */
const MAX_LISTED_CHARS = 300;

/** Columns of the table in the list of rows; more would not fit a page. */
const MAX_LISTED_CELLS = 12;

function rowListing(item: ItemRecord, { headers }: JobRecord, price: Price | null): RowListing {
  const { itemId, rowIndex, status, attempts, startedAtMs, completedAtMs } = item;
  return {
    itemId,
    rowIndex,
    status,
    attempts,
    errorClass: status === "failed" ? item.errorClass : null,
    cells: headers.slice(0, MAX_LISTED_CELLS).map((header) => cellText(item.row[header]).slice(0, MAX_LISTED_CHARS)),
    outcome: ((status === "failed" ? item.error : item.result) ?? "").slice(0, MAX_LISTED_CHARS),
    tookMs: startedAtMs !== null && completedAtMs !== null ? Math.max(0, completedAtMs - startedAtMs) : null,
    usage: usageWithCost(item.usage, price),
  };
}

function transcriptLine(entry: TranscriptEntry): RowDetails["attempts"][number]["transcript"][number] {
  switch (entry.type) {
    case "called":
      return { type: entry.type, tool: entry.tool, text: entry.arguments };
    case "asked_again":
      return { type: entry.type, text: entry.reason };
    case "said":
    case "thought":
    case "refused":
    case "returned":
      return entry;
  }
}

function usageWithCost(usage: TokenUsage, price: Price | null): JobListing["usage"] {
  const { inputTokens, cachedInputTokens, outputTokens } = usage;
  const costUsd = price && totalTokens(usage) > 0 ? costInUsd(price, usage) : price && 0;
  return { inputTokens, cachedInputTokens, outputTokens, costUsd };
}

function ok(value: object): JobsResult {
  return { type: "found", json: JSON.stringify(value) };
}

function notFoundResult(reason: string): JobsResult {
  return { type: "missing", reason };
}

function shortId(ledger: JobLedger): string {
  return ledger.jobId.slice(0, 8);
}
