import { usageFields } from "../../agent/usage.ts";
import type { ErrorClass, ItemRecord, JobCounts, JobRecord } from "../job.ts";
import type { JobLedger } from "../ledger/job-ledger.ts";

/** What has become of a job. */
export interface JobSummary {
  job: JobRecord;
  counts: JobCounts;
  /** The first failures in the table's order. */
  failures: ItemRecord[];
  /** How many rows failed of each class, the commonest first. */
  failuresByClass: [ErrorClass, number][];
}

/** Enough to see what is wrong; all of them are in errors.csv. */
const SHOWN_FAILURES = 5;

export async function summarize(ledger: JobLedger): Promise<JobSummary> {
  const failures: ItemRecord[] = [];
  const byClass = new Map<ErrorClass, number>();
  for await (const item of ledger.items({ statuses: ["failed"] })) {
    if (failures.length < SHOWN_FAILURES) failures.push(item);
    if (item.errorClass) byClass.set(item.errorClass, (byClass.get(item.errorClass) ?? 0) + 1);
  }
  return {
    job: await ledger.job(),
    counts: await ledger.counts(),
    failures,
    failuresByClass: [...byClass].sort((a, b) => b[1] - a[1]),
  };
}

/** The eight fields a model gets back. */
export function summaryFields(summary: JobSummary): Record<string, unknown> {
  const { job, counts, failures } = summary;
  return {
    job_id: job.id,
    status: job.status,
    output_csv_path: job.outputPath,
    total_items: counts.total,
    completed_items: counts.completed,
    failed_items: counts.failed,
    job_error: job.error,
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

/** The same and what else a program may want to know. */
export function fullSummaryFields(summary: JobSummary): Record<string, unknown> {
  return {
    ...summaryFields(summary),
    pending_items: summary.counts.pending + summary.counts.running,
    failures_by_class: Object.fromEntries(summary.failuresByClass),
    usage: usageFields(summary.counts.usage),
  };
}
