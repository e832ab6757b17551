import { addUsage, type BatchedTokens, NO_USAGE, type TokenUsage } from "../../agent/token-usage.ts";
import { asArray } from "../../base/json-fields.ts";
import { parseLosslessJson } from "../../base/lossless-json.ts";
import { omitUndefined } from "../../base/omit-undefined.ts";
import { isObject } from "../../base/type-guards.ts";
import { ERROR_CLASSES, JOB_STATUSES } from "../../protocol/console/console-job-schemas.ts";
import type { UsageTotals } from "../cost/job-budget.ts";
import {
  type AttemptOutcome,
  type AttemptRecord,
  checkJobId,
  hasEnded,
  type ItemRecord,
  type ItemStatus,
  type JobCounts,
  type JobRecord,
  type JobStatus,
  type JobStop,
  type JobTask,
  jobName,
  type Row,
  STOP_CAUSES,
  type StoredAnswer,
  type TranscriptEntry,
} from "../job.ts";
import { decodeJobSettings } from "../job-settings.ts";
import type { BatchGroup, BatchGroupChange, BatchGroupState } from "./batch-ledger.ts";
import type { AttemptFailure, Report } from "./job-ledger.ts";
import type { FailureGroup, FinishedPerInterval } from "./ledger-views.ts";

/** A row of either database. Numbers may be numbers, bigints or text; times are epoch milliseconds. */
type DatabaseRow = Readonly<Record<string, unknown>>;

export function decodeJob(row: DatabaseRow): JobRecord {
  const id = checkJobId(text(row.id));
  return {
    id,
    key: text(row.key),
    name: jobName(id),
    status: requireOneOf(JOB_STATUSES, row.status),
    task: decodeTask(json(row.task_json)),
    settings: decodeJobSettings(json(row.settings_json)),
    headers: asArray(json(row.headers_json)).map(text),
    totalRows: count(row.total_rows),
    isReading: Boolean(row.is_reading),
    inputPath: text(row.input_path),
    outputPath: text(row.output_path),
    stop:
      row.stop_cause === null
        ? null
        : { cause: requireOneOf(STOP_CAUSES, row.stop_cause), reason: text(row.last_error) },
    createdAtMs: count(row.created_at),
    updatedAtMs: count(row.updated_at),
    startedAtMs: countOrNull(row.started_at),
    completedAtMs: countOrNull(row.completed_at),
  };
}

export function decodeItem(row: DatabaseRow): ItemRecord {
  return {
    itemId: text(row.item_id),
    rowIndex: count(row.row_index),
    sourceId: textOrNull(row.source_id),
    row: decodeRow(json(row.row_json)),
    status: requireOneOf(ITEM_STATUSES, row.status),
    attempts: count(row.attempt_count),
    result: textOrNull(row.result_json),
    errorClass: row.error_class === null ? null : requireOneOf(ERROR_CLASSES, row.error_class),
    error: textOrNull(row.last_error),
    usage: decodeUsage(row),
    startedAtMs: countOrNull(row.started_at),
    reportedAtMs: countOrNull(row.reported_at),
    completedAtMs: countOrNull(row.completed_at),
  };
}

export function decodeAttempt(row: DatabaseRow): AttemptRecord {
  return {
    outcome: requireOneOf(ATTEMPT_OUTCOMES, row.outcome),
    errorClass: row.error_class === null ? null : requireOneOf(ERROR_CLASSES, row.error_class),
    message: textOrNull(row.message),
    usage: decodeUsage(row),
    startedAtMs: countOrNull(row.started_at),
    endedAtMs: count(row.ended_at),
    transcript: asArray(json(row.transcript_json)).flatMap((entry) => decodeTranscriptEntry(entry) ?? []),
  };
}

export function decodeAnswer(row: DatabaseRow): StoredAnswer {
  return {
    question: text(row.question),
    result: text(row.result_json),
    jobId: text(row.job_id),
    itemId: text(row.item_id),
  };
}

/** Decodes rows that each contain a status, its numbers of items and their token sums. */
export function decodeCounts(rows: readonly DatabaseRow[]): JobCounts {
  const countOf = (status: ItemStatus, column = "n") =>
    Number(rows.filter((row) => row.status === status).reduce((sum, row) => sum + Number(row[column]), 0));
  const counts = {
    pending: countOf("pending"),
    running: countOf("running"),
    completed: countOf("completed"),
    failed: countOf("failed"),
  };
  return {
    ...counts,
    finishedWithUsage: countOf("completed", "with_usage") + countOf("failed", "with_usage"),
    total: counts.pending + counts.running + counts.completed + counts.failed,
    usage: rows.map(decodeUsage).reduce(addUsage, NO_USAGE),
  };
}

/** Decodes the totals of all attempts. Without attempts, all sums are null. */
export function decodeSpending(row: DatabaseRow = {}): UsageTotals {
  return {
    used: decodeUsage(row),
    ended: Number(row.ended ?? 0),
    maxRowTokens: Number(row.dearest_tokens ?? 0),
    maxRowUsd: Number(row.dearest_usd ?? 0),
  };
}

export function decodeBatchGroup(row: DatabaseRow): BatchGroup {
  return {
    id: text(row.id),
    state: requireOneOf(BATCH_GROUP_STATES, row.state),
    rows: count(row.row_count),
    answered: count(row.answered),
    fileId: textOrNull(row.file_id),
    batchId: textOrNull(row.batch_id),
    isAssumed: Boolean(row.is_assumed),
    tries: count(row.tries),
    cancelRequested: Boolean(row.cancel_requested),
    error: textOrNull(row.last_error),
    createdAtMs: count(row.created_at),
  };
}

export function decodeFailureGroup(row: DatabaseRow): FailureGroup {
  return {
    errorClass: requireOneOf(ERROR_CLASSES, row.error_class),
    rows: count(row.n),
    usage: decodeUsage(row),
  };
}

export function decodeFinishedInterval(row: DatabaseRow): FinishedPerInterval {
  return { atMs: count(row.at), completed: count(row.completed), failed: count(row.failed) };
}

/** Returns a LIKE pattern that matches the text anywhere, with special characters escaped. */
export function likePattern(text: string): string {
  return `%${text.replace(/[\\%_]/g, "\\$&")}%`;
}

const BATCH_GROUP_STATES: readonly BatchGroupState[] = ["assigned", "uploaded", "created", "done"];

/** Returns the statement parameters that add usage. */
export function usageValues(usage: TokenUsage): Record<UsageValue, number> {
  const { batched } = usage;
  return {
    inputTokens: usage.inputTokens,
    cachedInputTokens: usage.cachedInputTokens,
    outputTokens: usage.outputTokens,
    reasoningOutputTokens: usage.reasoningOutputTokens,
    batchInputTokens: batched?.inputTokens ?? 0,
    batchCachedInputTokens: batched?.cachedInputTokens ?? 0,
    batchOutputTokens: batched?.outputTokens ?? 0,
  };
}

/** Returns the statement parameters that change the status of a job. */
export function statusValues(to: JobStatus, stop: JobStop | null, now: number) {
  return {
    to,
    stopCause: stop?.cause ?? null,
    error: stop?.reason ?? null,
    now,
    endedAt: hasEnded(to) ? now : null,
    startedAt: to === "running" ? now : null,
  };
}

/**
 * Returns the statement parameters that change a batch group. Booleans are numbers, because SQLite has no boolean type.
 */
export function groupValues(groupId: string, change: BatchGroupChange) {
  return {
    groupId,
    state: change.state ?? null,
    answered: change.answered ?? null,
    hasFileId: change.fileId === undefined ? 0 : 1,
    fileId: change.fileId ?? null,
    hasBatchId: change.batchId === undefined ? 0 : 1,
    batchId: change.batchId ?? null,
    isAssumed: change.isAssumed === undefined ? null : Number(change.isAssumed),
    tries: change.tries ?? null,
    cancelRequested: change.cancelRequested === undefined ? null : Number(change.cancelRequested),
    error: change.error ?? null,
  };
}

/** Returns the message of an attempt that reused an answer. */
export function reusedAnswerText({ itemId, jobId }: StoredAnswer): string {
  return `answered by item ${itemId} of job ${jobId}`;
}

export type AttemptStart = Pick<ItemRecord, "rowIndex" | "startedAtMs">;

/** The end of an attempt, for any outcome. */
export type AttemptEnd = Pick<Report, "usage" | "transcript"> & Partial<AttemptFailure>;

type UsageValue = Exclude<keyof TokenUsage, "batched"> | `batch${Capitalize<keyof BatchedTokens>}`;

const ATTEMPT_OUTCOMES: readonly AttemptOutcome[] = ["reported", "failed", "retried", "released", "reused"];

const ITEM_STATUSES: readonly ItemStatus[] = ["pending", "running", "completed", "failed"];

function decodeTask(value: unknown): JobTask {
  const task = decodeRow(value);
  return {
    instruction: text(task.instruction),
    schema: isObject(task.schema) ? task.schema : null,
    model: text(task.model),
    reasoningEffort: textOrNull(task.reasoningEffort),
    tools: task.tools === "exec" ? "exec" : "none",
    idColumn: textOrNull(task.idColumn),
    ...omitUndefined({
      request: isObject(task.request) ? decodeRequest(task.request) : undefined,
      imageColumns: task.imageColumns === undefined ? undefined : asArray(task.imageColumns).map(text),
      votes: countOrNull(task.votes) ?? undefined,
    }),
  };
}

/** Decodes the usage columns of a row or of a sum, which is null without rows. */
function decodeUsage(row: DatabaseRow): TokenUsage {
  const tokensOf = (name: string) => Number(row[`${name}_tokens`] ?? 0);
  const batched = {
    inputTokens: tokensOf("batch_input"),
    cachedInputTokens: tokensOf("batch_cached_input"),
    outputTokens: tokensOf("batch_output"),
  };
  const usage: TokenUsage = {
    inputTokens: tokensOf("input"),
    cachedInputTokens: tokensOf("cached_input"),
    outputTokens: tokensOf("output"),
    reasoningOutputTokens: tokensOf("reasoning_output"),
  };
  if (batched.inputTokens + batched.outputTokens > 0) usage.batched = batched;
  return usage;
}

/** Decodes a transcript entry. Returns null for an unknown type, which a newer version wrote. */
function decodeTranscriptEntry(value: unknown): TranscriptEntry | null {
  const entry = decodeRow(value);
  switch (entry.type) {
    case "said":
    case "thought":
    case "refused":
      return { type: entry.type, text: text(entry.text) };
    case "called":
      return { type: "called", tool: text(entry.tool), arguments: text(entry.arguments) };
    case "returned":
      return { type: "returned", tool: text(entry.tool), text: text(entry.text), ok: entry.ok === true };
    case "asked_again":
      return { type: "asked_again", reason: text(entry.reason) };
    default:
      return null;
  }
}

function decodeRequest(request: Row): JobTask["request"] {
  return omitUndefined({
    temperature: countOrNull(request.temperature) ?? undefined,
    maxOutputTokens: countOrNull(request.maxOutputTokens) ?? undefined,
    extraBody: isObject(request.extraBody) ? request.extraBody : undefined,
  });
}

function decodeRow(value: unknown): Row {
  if (!isObject(value)) throw new Error("invalid ledger value: not an object");
  return value;
}

export function requireOneOf<T extends string>(choices: readonly T[], value: unknown): T {
  const choice = choices.find((candidate) => candidate === value);
  if (choice === undefined) throw new Error(`invalid ledger value: unknown ${JSON.stringify(value)}`);
  return choice;
}

/** Decodes a JSON column: Postgres returns values, SQLite returns text. */
function json(value: unknown): unknown {
  return typeof value === "string" ? parseLosslessJson(value) : value;
}

function text(value: unknown): string {
  if (typeof value !== "string") throw new Error("invalid ledger value: not a string");
  return value;
}

function textOrNull(value: unknown): string | null {
  return value === null || value === undefined ? null : text(value);
}

function count(value: unknown): number {
  const number = Number(value);
  if (!Number.isFinite(number)) throw new Error("invalid ledger value: not a number");
  return number;
}

function countOrNull(value: unknown): number | null {
  return value === null || value === undefined ? null : count(value);
}
