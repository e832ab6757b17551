import {
  type ErrorClass,
  INTERRUPTED,
  type ItemRecord,
  type JobCounts,
  type JobRecord,
  type ScheduleEnd,
} from "../job.ts";
import type { Progress } from "./job-progress.ts";
import type { JobSummary } from "./job-summary.ts";

/** Receives the events of a job. */
export interface JobListener {
  started?(job: JobRecord, counts: JobCounts, resumed: boolean): void;
  /** A property of the input that affects the results and is probably a mistake. */
  warning?(message: string): void;
  /** This many rows reused answers of other jobs; called before `started`. */
  reused?(rows: number): void;
  progress?(progress: Progress): void;
  /** A row has finished, here or on another machine; called once per row. */
  row?(item: ItemRecord): void;
  retrying?(retry: RowRetry): void;
  ended?(end: JobEnd): void;
}

/** An attempt at a row has failed, and another one follows. */
export interface RowRetry {
  /** The row as the failed attempt had it. */
  item: ItemRecord;
  errorClass: ErrorClass;
  message: string;
  delayMs: number;
}

export interface JobEnd {
  summary: JobSummary;
  end: ScheduleEnd;
  errorsPath: string | null;
}

/** 0 only when every selected row is completed and none has failed; 130 when the user interrupted the run. */
export function exitCodeOf({ summary, end }: JobEnd): number {
  if (end.type === "stopped" && end.reason === INTERRUPTED) return 130;
  if (end.type === "stopped") return 1;
  return summary.counts.failed === 0 ? 0 : 1;
}
