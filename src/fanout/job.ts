/**
 * A *job* is one table with one instruction. An *item* is one row of it. An *attempt* is one try at an item; the token of
 * an attempt is what makes its report count. A *row agent* is the agent that makes an attempt; a *worker* is a process, on
 * any machine, that runs row agents for jobs that another process, their *coordinator*, has started.
 */

import type { RequestOptions } from "../agent/api/model-api.ts";
import type { JsonObject } from "../agent/api/response-events.ts";
import type { TokenUsage } from "../agent/token-usage.ts";
import type { FleetBudget } from "./cost/job-budget.ts";

export type JobStatus =
  | "pending"
  | "running"
  /** Every row completed. */
  | "completed"
  /** Every row is finished, some have failed. */
  | "completed_with_errors"
  /** Given up: too many rows failed, or the job itself could not continue. */
  | "failed"
  /** Stopped on request; rows that had not begun stay pending. */
  | "cancelled"
  /** Stopped by an interrupt, a quota or a budget; the same command resumes it. */
  | "paused";

export type ItemStatus = "pending" | "running" | "completed" | "failed";

/** Why a row failed. */
export type ErrorClass =
  /** The API kept refusing this row with a rate limit. */
  | "rate_limit"
  /** The attempt took longer than a row may. */
  | "timeout"
  /** The result does not fit the schema, also after the repair turn. */
  | "schema"
  /** The agent ended without an accepted report. */
  | "no_report"
  /** The model or the API refused to work on this row. */
  | "refused"
  /** A tool failed, and the agent ended without a report. */
  | "tool"
  /** The row agent could not be started, or the process that ran it died. */
  | "spawn"
  /** The API could not be reached for this row while it answered others. */
  | "transport";

/** A row as it stands in the table: column to value, in the order of the columns. */
export type Row = Readonly<Record<string, unknown>>;

/** Everything that determines the answers. Two runs with equal tasks and tables are the same job. */
export interface JobTask {
  instruction: string;
  schema: JsonObject | null;
  model: string;
  reasoningEffort: string | null;
  /** Which tools an agent has besides the report. */
  tools: "none" | "exec";
  idColumn: string | null;
  /** Request options that the user set. */
  request?: Pick<RequestOptions, "temperature" | "maxOutputTokens" | "extraBody"> | undefined;
  /** Columns whose cells name images or files to look at. */
  imageColumns?: readonly string[] | undefined;
  /** How many agents are asked about a row; the answer that most of them give stands. */
  votes?: number | undefined;
}

/** How a job is run; the settings of the latest command apply. */
export interface JobSettings {
  maxAttempts: number;
  rowTimeoutMs: number;
  /** Only rows before this one are worked on; null: all. */
  rowLimit: number | null;
  /** Reuse the answers of other jobs; default: yes. */
  reuse?: boolean;
  /** Submit rows to the provider as batches; rows without an answer are asked by single calls. Default: no. */
  batch?: boolean | undefined;
  /** Only these items are worked on; absent: all. */
  onlyItems?: readonly string[] | undefined;
  /** Asked in place of the task's model. */
  model?: string | undefined;
  /** Asked about a row that the model refuses, or has not answered in all its attempts. */
  fallbackModel?: string | undefined;
  serviceTier?: string | undefined;
  /** Enforced by the ledger where several processes work on the job. */
  budget?: FleetBudget | undefined;
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
  /** Rows of the table, regardless of the row limit; while the table is being read, those read so far. */
  totalRows: number;
  /** The table has not been read to its end. */
  isReading: boolean;
  status: JobStatus;
  error: string | null;
  startedAtMs: number | null;
  completedAtMs: number | null;
  updatedAtMs: number;
}

export interface NewItem {
  itemId: string;
  /** From 0, without holes. */
  rowIndex: number;
  sourceId: string | null;
  row: Row;
  /** Name of the question that this row asks, the same in every job; undefined: its answer cannot be reused. */
  question?: string | undefined;
}

/** The id of a row that no column gives another. */
export function numberedId(rowIndex: number): string {
  return `row-${rowIndex + 1}`;
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

/** One thing that happened in an attempt, after the prompt. */
export type TranscriptEntry =
  | { type: "said"; text: string }
  | { type: "thought"; text: string }
  | { type: "refused"; text: string }
  | { type: "called"; tool: string; arguments: string }
  | { type: "returned"; tool: string; text: string; ok: boolean }
  /** The API gave no answer, and was asked again. */
  | { type: "asked_again"; reason: string };

/** How an attempt ended: `retried` and `released` are followed by another attempt, `reused` made no model call. */
export type AttemptOutcome = "reported" | "failed" | "retried" | "released" | "reused";

/** The record of one attempt, kept with the row. */
export interface AttemptRecord {
  outcome: AttemptOutcome;
  errorClass: ErrorClass | null;
  message: string | null;
  usage: TokenUsage;
  startedAtMs: number | null;
  endedAtMs: number;
  transcript: readonly TranscriptEntry[];
}

/** An answer that another job has paid for. */
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
  usage: TokenUsage;
}

export const DEFAULT_CONCURRENCY = 16;
/** The highest concurrency that a model may request; a person may request more. */
export const MAX_TOOL_CONCURRENCY = 64;
export const DEFAULT_ROW_TIMEOUT_SECONDS = 1800;
export const DEFAULT_MAX_ATTEMPTS = 3;

/** Short name of a job for people, sufficient to find the job again. */
export function jobName(id: string): string {
  return `agent-job-${id.slice(0, 8)}`;
}

/** No row of the job is worked on, and none waits for the job to be resumed. */
export function hasEnded(status: JobStatus): boolean {
  return status !== "pending" && status !== "running" && status !== "paused";
}

/** Stop reasons that the code distinguishes, as the ledger stores them. */
export const CANCELLED_BY_ROW_AGENT = "cancelled by worker request";
export const CANCELLED_BY_USER = "cancelled by the user";
export const INTERRUPTED = "interrupted";

/** How the work on a job's rows ended. */
export type ScheduleEnd =
  /** Every row is finished. */
  | { type: "finished" }
  /** Nothing to do here now, although other processes still work on rows; only workers end this way. */
  | { type: "idle" }
  | { type: "stopped"; status: "paused" | "failed" | "cancelled"; reason: string };

/** The final status of a job whose rows are all finished. */
export function finalStatus(counts: JobCounts): "completed" | "completed_with_errors" {
  return counts.failed === 0 ? "completed" : "completed_with_errors";
}

/** The caller's input, template or schema cannot be used. */
export class InputError extends Error {
  override readonly name = "InputError";
}
