import { addUsage, NO_USAGE, type TokenUsage, usageFields } from "../../agent/token-usage.ts";
import { costInUsd, type Price, type PriceTable } from "../cost/price-table.ts";
import type { ErrorClass, ItemRecord, JobCounts, JobRecord } from "../job.ts";
import type { BatchGroup } from "../ledger/batch-ledger.ts";
import type { JobLedger } from "../ledger/job-ledger.ts";

/** The outcome of a job. */
export interface JobSummary {
  job: JobRecord;
  counts: JobCounts;
  /** First failures in table order. */
  failures: ItemRecord[];
  /** Number of failed rows per class, the most frequent class first. */
  failuresByClass: [ErrorClass, number][];
  /** Usage of the failed rows per class. */
  usageByClass: [ErrorClass, TokenUsage][];
  /** Batch groups of the job. */
  batches: BatchGroup[];
  /** Price of the model; null if unknown. */
  price: Price | null;
}

/** Enough to find the cause; errors.csv contains all failures. */
const SHOWN_FAILURES = 5;

export async function summarize(ledger: JobLedger, prices: PriceTable): Promise<JobSummary> {
  const failures: ItemRecord[] = [];
  const byClass = new Map<ErrorClass, number>();
  const usageByClass = new Map<ErrorClass, TokenUsage>();
  for await (const item of ledger.items({ statuses: ["failed"] })) {
    if (failures.length < SHOWN_FAILURES) failures.push(item);
    const { errorClass } = item;
    if (errorClass === null) continue;
    byClass.set(errorClass, (byClass.get(errorClass) ?? 0) + 1);
    usageByClass.set(errorClass, addUsage(usageByClass.get(errorClass) ?? NO_USAGE, item.usage));
  }
  const job = await ledger.job();
  return {
    job,
    counts: await ledger.counts(),
    failures,
    failuresByClass: [...byClass].sort((a, b) => b[1] - a[1]),
    usageByClass: [...usageByClass],
    batches: await ledger.batches.groups(),
    price: prices.priceOf(job.task.model),
  };
}

/** Returns the eight fields of the tool result. */
export function summaryFields(summary: JobSummary): Record<string, unknown> {
  const { job, counts, failures } = summary;
  return {
    job_id: job.id,
    status: job.status,
    output_csv_path: job.outputPath,
    total_items: counts.total,
    completed_items: counts.completed,
    failed_items: counts.failed,
    job_error: job.stop?.reason ?? null,
    failed_item_errors:
      failures.length === 0
        ? null
        : failures.map((item) => ({
            item_id: item.itemId,
            source_id: item.sourceId,
            last_error: item.error ?? "",
          })),
  };
}

/** Returns the fields of `summaryFields` and more, for programs. */
export function fullSummaryFields(summary: JobSummary): Record<string, unknown> {
  const { price } = summary;
  return {
    ...summaryFields(summary),
    pending_items: summary.counts.pending + summary.counts.running,
    is_reading: summary.job.isReading,
    unsampled_items: summary.job.totalRows - summary.counts.total,
    failures_by_class: Object.fromEntries(summary.failuresByClass),
    usage: usageFields(summary.counts.usage),
    batches: summary.batches.map((group) => ({
      part: group.id,
      batch_id: group.batchId,
      state: group.state,
      rows: group.rows,
      answered: group.answered,
      error: group.error,
    })),
    cost_usd: price && costInUsd(price, summary.counts.usage),
    cost_usd_by_class:
      price &&
      Object.fromEntries(summary.usageByClass.map(([errorClass, usage]) => [errorClass, costInUsd(price, usage)])),
  };
}
