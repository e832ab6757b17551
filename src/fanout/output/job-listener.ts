import type { ErrorClass, ItemRecord, JobCounts, JobRecord, RunStopReason } from "../job.ts";
import type { JobProgress } from "./job-progress.ts";
import type { JobSummary } from "./job-summary.ts";

/** Receives the events of a job. */
export interface JobListener {
  started?(job: JobRecord, counts: JobCounts, resumed: boolean): void;
  /** Called with a property of the input that is probably a mistake and affects the results. */
  warning?(message: string): void;
  /** Called before `started` with the number of rows that reused answers. */
  reused?(rows: number): void;
  progress?(progress: JobProgress): void;
  /** Called once per row that finished, on any host. */
  row?(item: ItemRecord): void;
  retrying?(retry: RowRetry): void;
  ended?(end: JobEnd): void;
}

/** A failed attempt after which the row is retried. */
export interface RowRetry {
  /** The row at the failed attempt. */
  item: ItemRecord;
  errorClass: ErrorClass;
  message: string;
  delayMs: number;
}

export interface JobEnd {
  summary: JobSummary;
  end: RunStopReason;
  errorsPath: string | null;
}

/** Returns 0 if every selected row completed, 130 if the user interrupted the run, otherwise 1. */
export function exitCodeOf({ summary, end }: JobEnd): number {
  if (end.type === "stopped" && end.cause === "interrupted") return 130;
  if (end.type === "stopped") return 1;
  return summary.counts.failed === 0 ? 0 : 1;
}
