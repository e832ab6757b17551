import type { ItemRecord, JobCounts, JobRecord } from "../job.ts";
import type { JobEnd, RowRetry } from "./job-listener.ts";
import { type JobProgress, progressFields } from "./job-progress.ts";
import { fullSummaryFields } from "./job-summary.ts";
import { resultLine } from "./results-log.ts";

/** An event of a job as a JSON object, equal in `fanout --json` and `exec --json`. */
export type JobEvent = Readonly<Record<string, unknown>> & { readonly type: string };

export function startedEvent(job: JobRecord, counts: JobCounts, resumed: boolean): JobEvent {
  return {
    type: "job.started",
    job_id: job.id,
    name: job.name,
    resumed,
    total_items: counts.total,
    pending_items: counts.pending,
    completed_items: counts.completed,
    failed_items: counts.failed,
  };
}

export function progressEvent(progress: JobProgress): JobEvent {
  return { type: "job.progress", ...progressFields(progress) };
}

/** Returns the event of a finished row as JSON. */
export function rowEventLine(jobId: string, item: ItemRecord): string {
  const type = item.status === "completed" ? "row.completed" : "row.failed";
  const before = JSON.stringify({ type, job_id: jobId });
  return `${before.slice(0, -1)},${resultLine(item).slice(1)}`;
}

export function retryingEvent(jobId: string, retry: RowRetry): JobEvent {
  return {
    type: "row.retrying",
    job_id: jobId,
    item_id: retry.item.itemId,
    attempt_count: retry.item.attempts,
    error_class: retry.errorClass,
    last_error: retry.message,
  };
}

export function endedEvent({ summary }: JobEnd): JobEvent {
  return { type: "job.completed", ...fullSummaryFields(summary) };
}
