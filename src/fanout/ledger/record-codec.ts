import type { BatchedTokens, TokenUsage } from "../../agent/token-usage.ts";
import { parseLosslessJson } from "../../base/lossless-json.ts";
import { isObject } from "../../base/type-guards.ts";
import { ERROR_CLASSES, JOB_STATUSES } from "../../protocol/console-job-schemas.ts";
import type { UsageTotals } from "../cost/job-budget.ts";
import {
  type AttemptOutcome,
  type AttemptRecord,
  checkJobId,
  type ItemRecord,
  type ItemStatus,
  type JobCounts,
  type JobRecord,
  type JobTask,
  jobName,
  type Row,
  type StoredAnswer,
  type TranscriptEntry,
} from "../job.ts";
import { decodeJobSettings } from "../job-settings.ts";
import type { BatchGroup, BatchGroupState } from "./batch-ledger.ts";
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
    headers: list(json(row.headers_json)).map(text),
    totalRows: count(row.total_rows),
    isReading: Boolean(row.is_reading),
    inputPath: text(row.input_path),
    outputPath: text(row.output_path),
    error: textOrNull(row.last_error),
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
    transcript: list(json(row.transcript_json)).flatMap((entry) => decodeTranscriptEntry(entry) ?? []),
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

/** Decodes rows that each contain a status, its number of items and their token sums. */
export function decodeCounts(rows: readonly DatabaseRow[]): JobCounts {
  const sum = (column: string, of = rows) => of.reduce((total, row) => total + Number(row[column] ?? 0), 0);
  const of = (status: ItemStatus) =>
    sum(
      "n",
      rows.filter((row) => row.status === status),
    );
  return {
    total: sum("n"),
    pending: of("pending"),
    running: of("running"),
    completed: of("completed"),
    failed: of("failed"),
    usage: {
      inputTokens: sum("input"),
      cachedInputTokens: sum("cached"),
      outputTokens: sum("output"),
      reasoningOutputTokens: sum("reasoning"),
      ...batchedIn({
        inputTokens: sum("batch_input"),
        cachedInputTokens: sum("batch_cached"),
        outputTokens: sum("batch_output"),
      }),
    },
  };
}

/** Decodes the totals of all attempts. */
export function decodeSpending(row: DatabaseRow | undefined): UsageTotals {
  const of = (column: string) => Number(row?.[column] ?? 0);
  return {
    used: {
      inputTokens: of("input"),
      cachedInputTokens: of("cached"),
      outputTokens: of("output"),
      reasoningOutputTokens: of("reasoning"),
      ...batchedIn({
        inputTokens: of("batch_input"),
        cachedInputTokens: of("batch_cached"),
        outputTokens: of("batch_output"),
      }),
    },
    ended: of("ended"),
    maxRowTokens: of("dearest_tokens"),
    maxRowUsd: of("dearest_usd"),
  };
}

/** Decodes a batch group. */
export function decodeBatchGroup(row: DatabaseRow): BatchGroup {
  return {
    id: text(row.id),
    state: requireOneOf(BATCH_GROUP_STATES, row.state),
    rows: count(row.row_count),
    answered: count(row.answered),
    fileId: textOrNull(row.file_id),
    batchId: textOrNull(row.batch_id),
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

type UsageValue = Exclude<keyof TokenUsage, "batched"> | `batch${Capitalize<keyof BatchedTokens>}`;

/** Returns `batched`, or nothing if no token was in a batch. */
function batchedIn(batched: BatchedTokens): Pick<TokenUsage, "batched"> {
  return batched.inputTokens + batched.outputTokens > 0 ? { batched } : {};
}

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
    ...given({
      request: isObject(task.request) ? decodeRequest(task.request) : undefined,
      imageColumns: task.imageColumns === undefined ? undefined : list(task.imageColumns).map(text),
      votes: countOrNull(task.votes) ?? undefined,
    }),
  };
}

function decodeUsage(row: DatabaseRow): TokenUsage {
  return {
    inputTokens: count(row.input_tokens),
    cachedInputTokens: count(row.cached_input_tokens),
    outputTokens: count(row.output_tokens),
    reasoningOutputTokens: count(row.reasoning_output_tokens),
    ...batchedIn({
      inputTokens: count(row.batch_input_tokens),
      cachedInputTokens: count(row.batch_cached_input_tokens),
      outputTokens: count(row.batch_output_tokens),
    }),
  };
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
  return given({
    temperature: countOrNull(request.temperature) ?? undefined,
    maxOutputTokens: countOrNull(request.maxOutputTokens) ?? undefined,
    extraBody: isObject(request.extraBody) ? request.extraBody : undefined,
  });
}

/** Removes undefined members. */
function given<T extends object>(fields: T): Partial<T> {
  const present: Partial<T> = { ...fields };
  for (const [name, value] of Object.entries(fields)) {
    if (value === undefined) Reflect.deleteProperty(present, name);
  }
  return present;
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

function list(value: unknown): unknown[] {
  return Array.isArray(value) ? value : [];
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
