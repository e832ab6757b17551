import type { ItemRecord, JobCounts, JobRecord } from "../job.ts";
import type { JobEnd } from "../run/coordinator.ts";
import type { RowEvent } from "../run/scheduler.ts";
import { type Progress, progressFields } from "./progress.ts";
import { resultLine } from "./results-log.ts";
import { fullSummaryFields } from "./summary.ts";

/** What happens to a job as JSON objects, the same for `fanout --json` and `exec --json`. */
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

export function progressEvent(progress: Progress): JobEvent {
  return { type: "job.progress", ...progressFields(progress) };
}

export function rowEvent(jobId: string, item: ItemRecord): JobEvent {
  const type = item.status === "completed" ? "row.completed" : "row.failed";
  return { type, job_id: jobId, ...resultLine(item) };
}

export function retryingEvent(jobId: string, event: Extract<RowEvent, { type: "retrying" }>): JobEvent {
  return {
    type: "row.retrying",
    job_id: jobId,
    item_id: event.claim.item.itemId,
    attempt_count: event.claim.item.attempts,
    error_class: event.errorClass,
    last_error: event.message,
  };
}

export function endedEvent({ summary }: JobEnd): JobEvent {
  return { type: "job.completed", ...fullSummaryFields(summary) };
}
