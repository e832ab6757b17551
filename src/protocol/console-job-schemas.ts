import { array, boolean, f64, type Infer, nullable, object, oneOf, optional, string, u64 } from "./schema.ts";

/** What a server tells its console about fan-out jobs, as JSON over HTTP. */

export const JOB_STATUSES = [
  "pending",
  "running",
  "completed",
  "completed_with_errors",
  "failed",
  "cancelled",
  "paused",
] as const;
const jobStatus = oneOf(...JOB_STATUSES);
export const rowStatus = oneOf("pending", "running", "completed", "failed");
/** Why a row failed. */
export const ERROR_CLASSES = [
  "rate_limit",
  "timeout",
  "schema",
  "no_report",
  "refused",
  "tool",
  "spawn",
  "transport",
] as const;
export const errorClass = oneOf(...ERROR_CLASSES);

const usage = object("JobUsage", {
  inputTokens: u64,
  cachedInputTokens: u64,
  outputTokens: u64,
  /** Null where the model's price is not known. */
  costUsd: nullable(f64),
});

const jobListing = object("JobListing", {
  jobId: string,
  status: jobStatus,
  /** Why it stopped, where it did. */
  error: nullable(string),
  model: string,
  inputPath: string,
  createdAtMs: u64,
  /** Rows of the table; those that are not counted below are beyond the row limit. */
  totalRows: u64,
  pending: u64,
  running: u64,
  completed: u64,
  failed: u64,
  usage,
});
export type JobListing = Infer<typeof jobListing>;

export const jobList = object("JobList", {
  jobs: array(jobListing),
  /** The jobs that cannot be read, and why. */
  unreadable: array(string),
});
export type JobList = Infer<typeof jobList>;

const settledSpan = object("SettledSpan", { atMs: u64, completed: u64, failed: u64 });

const failureGroup = object("FailureGroup", { errorClass, rows: u64, usage });

/** How the API treats the process that runs the job, as that last reported. */
const pace = object("Pace", {
  /** Concurrent calls it allows now, and how many it would without refusals. */
  width: u64,
  maxWidth: u64,
  /** How much longer it sends no calls to the API. */
  heldMs: u64,
  /** For how long the API has answered no call. */
  apiAwaySeconds: nullable(u64),
});

export const jobDetails = object("JobDetails", {
  job: jobListing,
  instruction: string,
  outputPath: string,
  /** The table has not been read to its end. */
  isReading: boolean,
  /** Whether a process works on it; null where the store cannot tell. */
  isBeingRun: nullable(boolean),
  /** Rows finished a second, over the last half minute. */
  ratePerSecond: f64,
  etaSeconds: nullable(u64),
  /** How long the spans of `settled` are. */
  spanMs: u64,
  settled: array(settledSpan),
  failures: array(failureGroup),
  /** Rows that wait for their next attempt (backoff). */
  backingOff: u64,
  /** Attempts that ended because the API refused the rate. */
  refusedForRate: u64,
  pace: nullable(pace),
  /** Why failed rows cannot be asked again now; null: they can. */
  retryRefused: nullable(string),
});
export type JobDetails = Infer<typeof jobDetails>;

const rowListing = object("RowListing", {
  itemId: string,
  rowIndex: u64,
  status: rowStatus,
  attempts: u64,
  errorClass: nullable(errorClass),
  /** The beginning of the row's cells, as JSON. */
  cells: string,
  /** The beginning of its result or of its error. */
  outcome: string,
  tookMs: nullable(u64),
  usage,
});
export type RowListing = Infer<typeof rowListing>;

export const rowPage = object("RowPage", { total: u64, offset: u64, rows: array(rowListing) });
export type RowPage = Infer<typeof rowPage>;

const transcriptEntry = object("TranscriptEntry", {
  type: oneOf("said", "thought", "refused", "called", "returned", "asked_again"),
  text: string,
  tool: optional(string),
  /** Whether a tool did what it was called for. */
  ok: optional(boolean),
});

const attempt = object("Attempt", {
  outcome: oneOf("reported", "failed", "retried", "released", "reused"),
  errorClass: nullable(errorClass),
  message: nullable(string),
  startedAtMs: nullable(u64),
  endedAtMs: u64,
  usage,
  transcript: array(transcriptEntry),
});

export const rowDetails = object("RowDetails", {
  row: rowListing,
  /** Whole, as JSON. */
  cells: string,
  result: nullable(string),
  error: nullable(string),
  /** What its agent would be told now. */
  instructions: string,
  prompt: string,
  attempts: array(attempt),
  /** What the ids of its agent's processes begin with. */
  processPrefix: string,
});
export type RowDetails = Infer<typeof rowDetails>;

/** Which failed rows are to be asked again: all of them, those of a class, or those that are named. */
export const retryRequest = object("RetryRequest", {
  errorClasses: optional(array(errorClass)),
  itemIds: optional(array(string)),
});
export const retryAnswer = object("RetryAnswer", {
  /** Rows that are pending again. */
  rows: u64,
  /** The command that runs them, if no process works on the job yet. */
  command: nullable(string),
});
export type RetryAnswer = Infer<typeof retryAnswer>;

/** Rows of one page at most. */
export const MAX_PAGE_ROWS = 500;

export interface RowsQuery {
  offset: number;
  limit: number;
  statuses?: Infer<typeof rowStatus>[] | undefined;
  errorClasses?: Infer<typeof errorClass>[] | undefined;
  text?: string | undefined;
}

/** What can be asked about jobs. */
export type JobsQuestion =
  | { type: "list" }
  | { type: "job"; jobId: string }
  | { type: "rows"; jobId: string; query: RowsQuery }
  | { type: "row"; jobId: string; itemId: string }
  | { type: "retry"; jobId: string; request: Infer<typeof retryRequest> };

export type JobsAnswer =
  /** As JSON text, which the caller passes on. */
  { type: "told"; json: string } | { type: "missing"; reason: string } | { type: "refused"; reason: string };
