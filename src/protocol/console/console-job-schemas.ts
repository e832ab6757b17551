import { array, boolean, enumOf, f64, type Infer, map, nullable, object, optional, string, u64 } from "../schema.ts";

/** Schemas of the console's HTTP API for fan-out jobs. */

export const JOB_STATUSES = [
  "pending",
  "running",
  "completed",
  "completed_with_errors",
  "failed",
  "cancelled",
  "paused",
] as const;
const jobStatus = enumOf(...JOB_STATUSES);
export const rowStatus = enumOf("pending", "running", "completed", "failed");
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
export const errorClass = enumOf(...ERROR_CLASSES);

const usage = object("JobUsage", () => ({
  inputTokens: u64,
  cachedInputTokens: u64,
  outputTokens: u64,
  /** Null if the model's price is unknown. */
  costUsd: nullable(f64),
}));

const jobListing = object("JobListing", () => ({
  jobId: string,
  status: jobStatus,
  /** Why the job stopped; null unless it failed. */
  error: nullable(string),
  /** Instruction of the task. The list contains only its start. */
  instruction: string,
  model: string,
  inputPath: string,
  createdAtMs: u64,
  /** Rows of the table. Rows beyond the row limit are not part of the counts below. */
  totalRows: u64,
  pending: u64,
  running: u64,
  completed: u64,
  failed: u64,
  usage,
  /** Whether a process runs the job; null if the store does not record it. */
  isBeingRun: nullable(boolean),
  /** Finished rows per second: over the last 30 seconds of a running job, on average for others. */
  ratePerSecond: f64,
  /** Remaining time of a running job; null if it is unknown. */
  etaSeconds: nullable(u64),
}));
export interface JobListing extends Infer<typeof jobListing> {}

export const jobList = object("JobList", () => ({
  jobs: array(jobListing),
  /** Error messages of jobs that cannot be read. */
  unreadable: array(string),
}));
export interface JobList extends Infer<typeof jobList> {}

const settledSpan = object("SettledSpan", () => ({ atMs: u64, completed: u64, failed: u64 }));

const failureGroup = object("FailureGroup", () => ({ errorClass, rows: u64, usage }));

/** Rate limiting of the process that runs the job, as last reported by that process. */
const pace = object("Pace", () => ({
  /** Current and configured maximum of concurrent calls. */
  width: u64,
  maxWidth: u64,
  /** Remaining time without calls to the API. */
  heldMs: u64,
  /** Duration of the current API outage; null without an outage. */
  apiAwaySeconds: nullable(u64),
}));

export const jobDetails = object("JobDetails", () => ({
  job: jobListing,
  outputPath: string,
  /** Columns of the table. */
  headers: array(string),
  /** Whether the table is still being ingested. */
  isReading: boolean,
  /** Length of each entry of `settled`. */
  spanMs: u64,
  settled: array(settledSpan),
  failures: array(failureGroup),
  /** Rows in backoff before their next attempt. */
  backingOff: u64,
  /** Attempts that ended with a rate limit error. */
  refusedForRate: u64,
  pace: nullable(pace),
  /** Why failed rows cannot be retried now; null if they can. */
  retryRefused: nullable(string),
}));
export interface JobDetails extends Infer<typeof jobDetails> {}

const rowListing = object("RowListing", () => ({
  itemId: string,
  rowIndex: u64,
  status: rowStatus,
  attempts: u64,
  errorClass: nullable(errorClass),
  /** Start of the first cells, in the order of `JobDetails.headers`. */
  cells: array(string),
  /** Start of the result or of the error. */
  outcome: string,
  tookMs: nullable(u64),
  usage,
}));
export interface RowListing extends Infer<typeof rowListing> {}

export const rowPage = object("RowPage", () => ({ total: u64, offset: u64, rows: array(rowListing) }));
export interface RowPageResult extends Infer<typeof rowPage> {}

const transcriptEntry = object("TranscriptEntry", () => ({
  type: enumOf("said", "thought", "refused", "called", "returned", "asked_again"),
  text: string,
  tool: optional(string),
  /** Whether the tool call succeeded. */
  ok: optional(boolean),
}));

const attempt = object("Attempt", () => ({
  outcome: enumOf("reported", "failed", "retried", "released", "reused"),
  errorClass: nullable(errorClass),
  message: nullable(string),
  startedAtMs: nullable(u64),
  endedAtMs: u64,
  usage,
  transcript: array(transcriptEntry),
}));

export const rowDetails = object("RowDetails", () => ({
  row: rowListing,
  /** All cells as JSON. */
  cells: string,
  result: nullable(string),
  error: nullable(string),
  /** Instructions that the row agent would receive now. */
  instructions: string,
  prompt: string,
  attempts: array(attempt),
  /** Common prefix of the process ids of the row agent. */
  processPrefix: string,
}));
export interface RowDetails extends Infer<typeof rowDetails> {}

/** Failed rows to retry: all, or only those of the given error classes or ids. */
export const retryRequest = object("RetryRequest", () => ({
  errorClasses: optional(array(errorClass)),
  itemIds: optional(array(string)),
}));
export const retryResult = object("RetryAnswer", () => ({
  /** Number of rows that are pending again. */
  rows: u64,
  /** Command that runs the rows; null if a process already runs the job. */
  command: nullable(string),
  /** The same command as a process on the host of the jobs; null if no installed command reaches these jobs. */
  run: nullable(object("RetryRun", () => ({ argv: array(string), env: map(string) }))),
}));
export interface RetryResult extends Infer<typeof retryResult> {}

/** Format of downloaded results. */
export const resultsFormat = enumOf("csv", "jsonl");
export type ResultsFormat = Infer<typeof resultsFormat>;

/** A part of the results of a job. The parts in order are the file that `procwire jobs export` writes. */
export const resultsPart = object("ResultsPart", () => ({ total: u64, rows: u64, text: string }));
export interface ResultsPart extends Infer<typeof resultsPart> {}

/** Maximum rows of one page. */
export const MAX_PAGE_ROWS = 500;

export interface RowsQuery {
  offset: number;
  limit: number;
  statuses?: Infer<typeof rowStatus>[] | undefined;
  errorClasses?: Infer<typeof errorClass>[] | undefined;
  text?: string | undefined;
}

export type JobsQuery =
  | { type: "list" }
  | { type: "job"; jobId: string }
  | { type: "rows"; jobId: string; query: RowsQuery }
  | { type: "row"; jobId: string; itemId: string }
  | { type: "results"; jobId: string; format: ResultsFormat; offset: number; limit: number }
  | { type: "retry"; jobId: string; request: Infer<typeof retryRequest> };

export type JobsResult =
  /** The response body, already encoded as JSON. */
  { type: "found"; json: string } | { type: "missing"; reason: string } | { type: "refused"; reason: string };
