/**
 * A *job* is one run of an instruction over a table. An *item* is one row of the table. An *attempt* is one execution
 * of an item; only a report with the lease token of the current attempt counts. A *row agent* makes an attempt. A
 * *worker* is a process, on any host, that runs row agents for a job. The *coordinator* is the process that owns the
 * run of a job.
 */

import type { RequestOptions } from "../agent/api/model-api.ts";
import type { JsonObject } from "../agent/api/response-events.ts";
import type { TokenUsage } from "../agent/token-usage.ts";
import type { JobSettings } from "./job-settings.ts";

export type JobStatus =
  | "pending"
  | "running"
  /** Every row completed. */
  | "completed"
  /** Every row is finished; some failed. */
  | "completed_with_errors"
  /** Stopped because too many rows failed, or because the job itself could not continue. */
  | "failed"
  /** Stopped on request. Rows that had not begun stay pending. */
  | "cancelled"
  /** Stopped by an interrupt, a quota or a budget. The same command resumes the job. */
  | "paused";

export type ItemStatus = "pending" | "running" | "completed" | "failed";

/** Why a row failed. */
export type ErrorClass =
  /** The API rejected all attempts with a rate limit. */
  | "rate_limit"
  /** The attempt exceeded the row timeout. */
  | "timeout"
  /** The result did not match the schema, even after the repair turn. */
  | "schema"
  /** The agent ended without an accepted report. */
  | "no_report"
  /** The model or the API refused the row. */
  | "refused"
  /** A tool failed and the agent ended without a report. */
  | "tool"
  /** The row agent could not be started, or its process died. */
  | "spawn"
  /** The API did not answer calls for this row while it answered others. */
  | "transport";

/** A row of the table: column names to values, in column order. */
export type Row = Readonly<Record<string, unknown>>;

/** Everything that determines the answers. Two runs with equal tasks and tables belong to the same job. */
export interface JobTask {
  instruction: string;
  schema: JsonObject | null;
  model: string;
  reasoningEffort: string | null;
  /** Tools of a row agent in addition to the report tool. */
  tools: "none" | "exec";
  idColumn: string | null;
  /** Request options that the user set. */
  request?: Pick<RequestOptions, "temperature" | "maxOutputTokens" | "extraBody"> | undefined;
  /** Columns with paths or URLs of images and files to attach. */
  imageColumns?: readonly string[] | undefined;
  /** Number of agents that answer a row; the most frequent answer wins. */
  votes?: number | undefined;
}

export interface NewJob {
  id: string;
  key: string;
  task: JobTask;
  settings: JobSettings;
  inputPath: string;
  outputPath: string;
  createdAtMs: number;
}

export interface JobRecord extends NewJob {
  name: string;
  headers: readonly string[];
  /** Number of rows in the table, regardless of the row limit. Grows while the table is being read. */
  totalRows: number;
  /** Whether the table has not been read completely. */
  isReading: boolean;
  status: JobStatus;
  /** Why the job stopped; null while it runs and after all rows finished. */
  stop: JobStop | null;
  startedAtMs: number | null;
  completedAtMs: number | null;
  updatedAtMs: number;
}

/** Length of the hash of a question: sufficient to avoid collisions, and small compared to a row. */
export const QUESTION_BYTES = 16;

export interface NewItem {
  itemId: string;
  /** Index in the table: consecutive, from 0. */
  rowIndex: number;
  sourceId: string | null;
  row: Row;
  /** Hash of the prompt of this row, equal in all jobs. If undefined, other jobs cannot reuse the answer. */
  question?: string | undefined;
}

/** Returns the number of a row as users count: from 1, without the header. */
export function rowNumber(rowIndex: number): number {
  return rowIndex + 1;
}

/** Returns the default id of a row. */
export function rowIdFromIndex(rowIndex: number): string {
  return `row-${rowNumber(rowIndex)}`;
}

export interface ItemRecord extends NewItem {
  status: ItemStatus;
  attempts: number;
  /** The reported object, as JSON text. */
  result: string | null;
  errorClass: ErrorClass | null;
  error: string | null;
  usage: TokenUsage;
  startedAtMs: number | null;
  reportedAtMs: number | null;
  completedAtMs: number | null;
}

/** One entry of an attempt's transcript, which begins after the prompt. */
export type TranscriptEntry =
  | { type: "said"; text: string }
  | { type: "thought"; text: string }
  | { type: "refused"; text: string }
  | { type: "called"; tool: string; arguments: string }
  | { type: "returned"; tool: string; text: string; ok: boolean }
  /** A model call failed and was retried. */
  | { type: "asked_again"; reason: string };

/** How an attempt ended. Another attempt follows `retried` and `released`; `reused` made no model call. */
export type AttemptOutcome = "reported" | "failed" | "retried" | "released" | "reused";

export interface AttemptRecord {
  outcome: AttemptOutcome;
  errorClass: ErrorClass | null;
  message: string | null;
  usage: TokenUsage;
  startedAtMs: number | null;
  endedAtMs: number;
  transcript: readonly TranscriptEntry[];
}

/** The answer of another job. */
export interface StoredAnswer {
  question: string;
  /** The reported object, as JSON text. */
  result: string;
  jobId: string;
  itemId: string;
}

export interface JobCounts {
  total: number;
  pending: number;
  running: number;
  completed: number;
  failed: number;
  /** Number of finished rows with any usage. A reused answer has none. */
  finishedWithUsage: number;
  usage: TokenUsage;
}

export const DEFAULT_CONCURRENCY = 16;
/** Maximum concurrency that a model may request; a user may set more. */
export const MAX_TOOL_CONCURRENCY = 64;

/**
 * Returns a job id that a ledger holds. Throws unless the id is a plain name: procwire creates and removes directories
 * of this name, and a shared database must not choose their paths.
 */
export function checkJobId(id: string): string {
  if (!/^\w[\w-]*$/.test(id)) throw new Error(`read job \`${id}\`: the ledger holds an invalid job id`);
  return id;
}

/** Returns a short job name. Commands accept it in place of the id. */
export function jobName(id: string): string {
  return `agent-job-${id.slice(0, 8)}`;
}

/** Reports whether the job has a final status: no row is running, and none waits for a resume. */
export function hasEnded(status: JobStatus): boolean {
  return status !== "pending" && status !== "running" && status !== "paused";
}

/** Causes of a stop that the code distinguishes. The ledger stores them, so they must not change. */
export const STOP_CAUSES = ["cancelled_by_user", "cancelled_by_row_agent", "interrupted", "other"] as const;

/** Why a job stopped. Only users read `reason`; the code distinguishes causes. */
export interface JobStop {
  cause: (typeof STOP_CAUSES)[number];
  reason: string;
}

// prose-ok: all -- Codex text
export const CANCELLED_BY_ROW_AGENT: JobStop = {
  cause: "cancelled_by_row_agent",
  reason: "cancelled by worker request",
};
export const CANCELLED_BY_USER: JobStop = { cause: "cancelled_by_user", reason: "cancelled by the user" };
export const INTERRUPTED: JobStop = { cause: "interrupted", reason: "interrupted" };

/** Returns a stop whose cause the code does not distinguish, such as a used-up budget or an outage. */
export function otherStop(reason: string): JobStop {
  return { cause: "other", reason };
}

/** How the work on a job's rows ended. */
export type RunStopReason =
  /** Every row is finished. */
  | { type: "finished" }
  /** This process has no work, but others still execute rows. Only workers end this way. */
  | { type: "idle" }
  | ({ type: "stopped"; status: "paused" | "failed" | "cancelled" } & JobStop);

/** Returns the final status of a job whose rows are all finished. */
export function finalStatus(counts: JobCounts): "completed" | "completed_with_errors" {
  return counts.failed === 0 ? "completed" : "completed_with_errors";
}

/** The input, instruction or schema is invalid. */
export class InputError extends Error {
  override readonly name = "InputError";
  /** Remedy for a user of the CLI: the flag that reads the input. Not part of the message, which models also see. */
  readonly hint: string | undefined;

  constructor(message: string, { hint, ...options }: ErrorOptions & { hint?: string | undefined } = {}) {
    super(message, options);
    this.hint = hint;
  }
}
