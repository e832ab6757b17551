import { isObject } from "../../agent/api/response-events.ts";
import type { BatchedTokens, TokenUsage } from "../../agent/token-usage.ts";
import { parseExactJson } from "../../base/lossless-json.ts";
import { ERROR_CLASSES, JOB_STATUSES } from "../../protocol/console-job-schemas.ts";
import type { FleetBudget, Spending } from "../cost/job-budget.ts";
import {
  type AttemptOutcome,
  type AttemptRecord,
  type ItemRecord,
  type ItemStatus,
  type JobCounts,
  type JobRecord,
  type JobSettings,
  type JobTask,
  jobName,
  type Row,
  type StoredAnswer,
  type TranscriptEntry,
} from "../job.ts";
import type { BatchPart, BatchPartState } from "./batch-ledger.ts";
import type { FailureGroup, SettledSpan } from "./ledger-views.ts";

/** A row of either database: numbers may be numbers, bigints or text, times are epoch milliseconds. */
type DatabaseRow = Readonly<Record<string, unknown>>;

export function decodeJob(row: DatabaseRow): JobRecord {
  const id = text(row.id);
  return {
    id,
    key: text(row.key),
    name: jobName(id),
    status: oneOf(JOB_STATUSES, row.status),
    task: decodeTask(json(row.task_json)),
    settings: decodeSettings(json(row.settings_json)),
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
    status: oneOf(ITEM_STATUSES, row.status),
    attempts: count(row.attempt_count),
    result: textOrNull(row.result_json),
    errorClass: row.error_class === null ? null : oneOf(ERROR_CLASSES, row.error_class),
    error: textOrNull(row.last_error),
    usage: decodeUsage(row),
    startedAtMs: countOrNull(row.started_at),
    reportedAtMs: countOrNull(row.reported_at),
    completedAtMs: countOrNull(row.completed_at),
  };
}

export function decodeAttempt(row: DatabaseRow): AttemptRecord {
  return {
    outcome: oneOf(ATTEMPT_OUTCOMES, row.outcome),
    errorClass: row.error_class === null ? null : oneOf(ERROR_CLASSES, row.error_class),
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

/** From rows with a status each, the number of its items and their token sums. */
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

/** From the row that sums up attempts. */
export function decodeSpending(row: DatabaseRow | undefined): Spending {
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
    dearestTokens: of("dearest_tokens"),
    dearestUsd: of("dearest_usd"),
  };
}

/** From the row of one batch part. */
export function decodeBatchPart(row: DatabaseRow): BatchPart {
  return {
    id: text(row.id),
    state: oneOf(BATCH_PART_STATES, row.state),
    rows: count(row.row_count),
    answered: count(row.answered),
    fileId: textOrNull(row.file_id),
    batchId: textOrNull(row.batch_id),
    tries: count(row.tries),
    cancelAsked: Boolean(row.cancel_asked),
    error: textOrNull(row.last_error),
    createdAtMs: count(row.created_at),
  };
}

export function decodeFailureGroup(row: DatabaseRow): FailureGroup {
  return {
    errorClass: oneOf(ERROR_CLASSES, row.error_class),
    rows: count(row.n),
    usage: decodeUsage(row),
  };
}

export function decodeSettledSpan(row: DatabaseRow): SettledSpan {
  return { atMs: count(row.at), completed: count(row.completed), failed: count(row.failed) };
}

/** A LIKE pattern that finds the text anywhere, with LIKE's special characters escaped. */
export function likePattern(text: string): string {
  return `%${text.replace(/[\\%_]/g, "\\$&")}%`;
}

const BATCH_PART_STATES: readonly BatchPartState[] = ["assigned", "uploaded", "created", "done"];

/** The values that a statement needs to add an attempt's usage. */
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

/** The field is absent where no token was in a batch, as in usage that was never stored. */
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

function decodeSettings(value: unknown): JobSettings {
  const settings = decodeRow(value);
  return {
    maxAttempts: count(settings.maxAttempts),
    rowTimeoutMs: count(settings.rowTimeoutMs),
    rowLimit: countOrNull(settings.rowLimit),
    reuse: settings.reuse !== false,
    ...given({
      batch: settings.batch === true ? true : undefined,
      onlyItems: Array.isArray(settings.onlyItems) ? settings.onlyItems.map(text) : undefined,
      model: textOrNull(settings.model) ?? undefined,
      fallbackModel: textOrNull(settings.fallbackModel) ?? undefined,
      serviceTier: textOrNull(settings.serviceTier) ?? undefined,
      budget: isObject(settings.budget) ? decodeBudget(settings.budget) : undefined,
    }),
  };
}

function decodeBudget(value: DatabaseRow): FleetBudget {
  const amount = (given: unknown) => (given === undefined || given === null ? undefined : Number(given));
  const { price } = value;
  return {
    tokens: amount(value.tokens),
    usd: amount(value.usd),
    price: isObject(price)
      ? {
          input: Number(price.input),
          cachedInput: Number(price.cachedInput),
          output: Number(price.output),
        }
      : undefined,
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

/** Null for an entry type that only a newer procwire knows. */
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

/** Only the fields that have a value: the others were not encoded either. */
function given<T extends object>(fields: T): Partial<T> {
  const kept: Partial<T> = { ...fields };
  for (const [name, value] of Object.entries(fields)) {
    if (value === undefined) Reflect.deleteProperty(kept, name);
  }
  return kept;
}

function decodeRow(value: unknown): Row {
  if (!isObject(value)) throw new Error("the ledger holds a value that is not an object");
  return value;
}

export function oneOf<T extends string>(choices: readonly T[], value: unknown): T {
  const choice = choices.find((candidate) => candidate === value);
  if (choice === undefined) throw new Error(`the ledger holds the unknown word ${JSON.stringify(value)}`);
  return choice;
}

/** Postgres returns JSON columns as values, SQLite as text. */
function json(value: unknown): unknown {
  return typeof value === "string" ? parseExactJson(value) : value;
}

function list(value: unknown): unknown[] {
  return Array.isArray(value) ? value : [];
}

function text(value: unknown): string {
  if (typeof value !== "string") throw new Error("the ledger holds a value that is not a text");
  return value;
}

function textOrNull(value: unknown): string | null {
  return value === null || value === undefined ? null : text(value);
}

function count(value: unknown): number {
  const number = Number(value);
  if (!Number.isFinite(number)) throw new Error("the ledger holds a value that is not a number");
  return number;
}

function countOrNull(value: unknown): number | null {
  return value === null || value === undefined ? null : count(value);
}
