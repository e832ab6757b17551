import type { TokenUsage } from "../../agent/token-usage.ts";
import type { Spending } from "../cost/job-budget.ts";
import type {
  AttemptRecord,
  ErrorClass,
  ItemRecord,
  ItemStatus,
  JobCounts,
  JobRecord,
  JobSettings,
  JobStatus,
  NewItem,
  NewJob,
  StoredAnswer,
} from "../job.ts";
import type { BatchLedger } from "./batch-ledger.ts";
import type { LedgerViews } from "./ledger-views.ts";

export interface JobStore extends AsyncDisposable {
  /**
   * Runs a task while no other process runs one for the same key: the same command, started twice at once, must find or create
   * one job. A task that an outage of the ledger interrupted is run again, although it may have made the job.
   */
  withKey<T>(key: string, signal: AbortSignal, task: () => Promise<T>): Promise<T>;
  /** The job that this key names now; with `--fresh` the key names a new job. */
  find(key: string): Promise<JobRecord | null>;
  /**
   * All or nothing: an error while these rows are read leaves no job. `table` is called after the last of them; a job that
   * is still being read gets the rest of its rows by `append`.
   */
  create(job: NewJob, rows: AsyncIterable<NewItem>, table: () => ReadTable): Promise<JobRecord>;
  /** Newest first; a job that cannot be read does not hide the others. */
  list(): Promise<JobRecord[]>;
  /** The jobs that cannot be read, and why. */
  unreadable(): Promise<UnreadableJob[]>;
  /**
   * Removes a job with everything about it, by id or id prefix, also one that cannot be read. Returns its id;
   * null when there is none. Rejects while a process works on it.
   */
  remove(idOrPrefix: string): Promise<string | null>;
  /** Removes what dead processes left behind besides jobs; returns the number of things removed. */
  removeLeftovers(): Promise<number>;
  /** By id or id prefix. Null when there is none; rejects when there are several. */
  open(idOrPrefix: string): Promise<JobLedger | null>;
  /** The answers of all jobs but this one. */
  answersOutside(jobId: string): Promise<AnswerSource>;
}

/** What is known about a table after some of its rows were read. */
export interface ReadTable {
  headers: readonly string[];
  isReading: boolean;
}

export interface UnreadableJob {
  id: string;
  reason: string;
}

/** Answers of several jobs, kept open for many lookups. */
export interface AnswerSource extends AsyncDisposable {
  /** All answers to these questions, those of the newest job first. */
  find(questions: readonly string[]): Promise<StoredAnswer[]>;
}

/** A row without any attempt. */
export interface UnaskedRow {
  rowIndex: number;
  question: string;
}

/** One attempt at one row, held by the process that claimed it. */
export interface Claim {
  item: ItemRecord;
  /** Only the newest attempt's token settles the row. */
  token: string;
}

/** What an attempt reports: the result as JSON text, serialised once and not parsed again on its way. */
export interface Report {
  result: string;
  usage: TokenUsage;
  /** Cancels the job with the report. */
  stop: boolean;
  /** What was said in the attempt, as JSON text; undefined: nothing. */
  transcript?: string | undefined;
}

export interface AttemptFailure {
  errorClass: ErrorClass;
  message: string;
  usage: TokenUsage;
  transcript?: string | undefined;
}

export interface JobLedger extends AsyncDisposable {
  readonly jobId: string;
  /** Whether other processes may settle rows, which only `settledSince` shows. */
  readonly shared: boolean;
  readonly batches: BatchLedger;
  readonly views: LedgerViews;
  job(): Promise<JobRecord>;
  counts(): Promise<JobCounts>;

  /**
   * Takes the right to work on the job's rows. False when another process on this machine has it and the store can serve only
   * one. Rows that a dead process left running become pending again, and their attempts do not count. `join`:
   * another process has begun the run and recovers such rows.
   */
  beginRun(options?: { join?: boolean }): Promise<boolean>;
  endRun(): Promise<void>;
  /** Whether a process has that right now; null where the store cannot tell. */
  isBeingRun(): Promise<boolean | null>;

  /**
   * Adds further rows of a table that is still being read; a row with an answer of another job is completed by it. Rows that are
   * already there stay as they are.
   */
  append(
    rows: readonly NewItem[],
    answers: readonly { rowIndex: number; answer: StoredAnswer }[],
  ): Promise<void>;
  /** The table has been read to its end. */
  finishReading(headers: readonly string[], totalRows: number): Promise<void>;

  /**
   * Claims up to `limit` due rows in the table's order and marks them as running. None unless the job is running; no more than
   * the budget in the job's settings allows.
   */
  claim(limit: number): Promise<Claim[]>;
  /** True when no row is left to work on, here or in other processes. */
  isDone(): Promise<boolean>;
  /** When the next row in back-off is due; null when none is. */
  nextDueAtMs(): Promise<number | null>;

  /** Settles the row with a report; the first one wins. Returns the row; null when the attempt no longer holds it. */
  complete(claim: Claim, report: Report): Promise<ItemRecord | null>;
  /** Fails the row for good. Returns the row; null when the attempt no longer holds it. */
  fail(claim: Claim, failure: AttemptFailure): Promise<ItemRecord | null>;
  /** The attempt has failed; the row is retried, not before `delayMs` from now. */
  retry(claim: Claim, failure: AttemptFailure, delayMs: number): Promise<boolean>;
  /** The attempt ended through no fault of the row, and does not count. */
  release(claim: Claim, usage: TokenUsage, transcript?: string): Promise<boolean>;

  /** The cost of all attempts together; null where a single process works on the job and counts it itself. */
  spending(): Promise<Spending | null>;

  /** Guarded: false when the job is in none of `from`. */
  setStatus(to: JobStatus, from: readonly JobStatus[], error?: string | null): Promise<boolean>;
  setOptions(options: { settings: JobSettings; outputPath: string }): Promise<void>;
  /** Makes failed rows pending again; returns how many. */
  retryFailed(filter: {
    errorClasses?: readonly ErrorClass[] | undefined;
    itemIds?: readonly string[] | undefined;
  }): Promise<number>;

  /** Rows in the table's order, up to the row limit. */
  items(filter?: { statuses?: readonly ItemStatus[] }): AsyncIterable<ItemRecord>;
  item(itemId: string): Promise<ItemRecord | null>;
  /** All attempts at a row, oldest first. */
  attempts(itemId: string): Promise<AttemptRecord[]>;
  /** Rows that wait for their first attempt and have a question, in the table's order, after the given row. */
  unasked(afterRow: number, limit: number): Promise<UnaskedRow[]>;
  /** Completes rows without any attempt with answers of other jobs; returns how many. */
  adopt(answers: readonly { rowIndex: number; answer: StoredAnswer }[]): Promise<number>;
  /**
   * Rows that were settled since then, by this process or another, in that order. They are read a page at a time: a job
   * that is resumed has all its rows behind it.
   */
  settledSince(sinceMs: number): AsyncIterable<ItemRecord>;
}
