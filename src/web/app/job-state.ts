import type { JobListing, RowListing } from "../../protocol/console/console-job-schemas.ts";
import type { BadgeText, BadgeTone } from "./state-badge.ts";

const JOB_TONES: Readonly<Record<JobListing["status"], BadgeTone>> = {
  pending: "neutral",
  running: "running",
  completed: "success",
  completed_with_errors: "failure",
  failed: "failure",
  cancelled: "neutral",
  paused: "paused",
};

/** Returns the badge of a job. A running job without a process is interrupted. */
export function describeJob({ status, error, isBeingRun }: JobListing): BadgeText {
  if (status === "running" && isBeingRun === false)
    return { tone: "waiting", label: "interrupted", detail: "no process works on the job" };
  return { tone: JOB_TONES[status], label: status.replaceAll("_", " "), detail: error ?? undefined };
}

const ROW_TONES: Readonly<Record<RowListing["status"], BadgeTone>> = {
  ...{ pending: "neutral", running: "running", completed: "success", failed: "failure" },
};

/** Names of error classes in plain words. */
export const FAILURE_NAMES: Readonly<Record<NonNullable<RowListing["errorClass"]>, string>> = {
  rate_limit: "rate limit",
  timeout: "timed out",
  schema: "invalid result",
  no_report: "no result",
  refused: "refused",
  tool: "tool failed",
  spawn: "not started",
  transport: "no response",
};

/** Returns the badge of a row. */
export function describeRow({ status, errorClass }: RowListing): BadgeText {
  const label = errorClass === null ? status : FAILURE_NAMES[errorClass];
  return { tone: ROW_TONES[status], label };
}
