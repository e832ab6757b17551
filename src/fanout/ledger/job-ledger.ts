import type { TokenUsage } from "../../agent/usage.ts";
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
import type { Spending } from "../money/job-budget.ts";
import type { BatchLedger } from "./batch-ledger.ts";
import type { LedgerViews } from "./ledger-views.ts";

export interface JobStore extends AsyncDisposable {
  /**
   * Runs a task while no other process runs one for the same key: the same command, started twice at once, must find or
   * make one job.
   */
  withKey<T>(key: string, signal: AbortSignal, task: () => Promise<T>): Promise<T>;
  /** The job that this key stands for now; `--fresh` makes a new one stand for it. */
  find(key: string): Promise<JobRecord | null>;
  /**
   * All or nothing: an error while these rows are read leaves no job. `table` is asked after the last of them; a job that
   * is still reading gets the rest of its rows by `append`.
   */
  create(job: NewJob, rows: AsyncIterable<NewItem>, table: () => ReadTable): Promise<JobRecord>;
  /** Newest first; a job that cannot be read hides no other one. */
  list(): Promise<JobRecord[]>;
  /** The jobs that cannot be read, and why. */
  unreadable(): Promise<UnreadableJob[]>;
  /**
   * Forgets a job with everything about it, by id or by the beginning of one, also one that cannot be read. Gives its id;
   * null when there is none. Rejects when a process works on it.
   */
  remove(idOrPrefix: string): Promise<string | null>;
  /** Removes what processes that died have left behind besides jobs; tells how much. */
  removeLeftovers(): Promise<number>;
  /** By id, or by the beginning of one. Null when there is none; rejects when there are several. */
  open(idOrPrefix: string): Promise<JobLedger | null>;
  /** What other jobs than this one have answered. */
  answersOutside(jobId: string): Promise<AnswerSource>;
}

/** What is known of a table once rows of it were read. */
export interface ReadTable {
  headers: readonly string[];
  isReading: boolean;
}

export interface UnreadableJob {
  id: string;
  reason: string;
}

/** Answers of several jobs, open to be asked many times. */
export interface AnswerSource extends AsyncDisposable {
  /** All answers to these questions, those of the newest job first. */
  find(questions: readonly string[]): Promise<StoredAnswer[]>;
}

/** A row that nobody has been asked about yet. */
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

/** What an attempt reports: the result as JSON text, written once and never parsed again on its way. */
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
  /** Rows may be settled by other processes, which only `settledSince` tells. */
  readonly shared: boolean;
  readonly batches: BatchLedger;
  readonly views: LedgerViews;
  job(): Promise<JobRecord>;
  counts(): Promise<JobCounts>;

  /**
   * The right to work on the job's rows. False when another process on this machine has it and the store can serve only
   * one. With it, rows that a dead process left behind become pending again, and their attempts do not count. `join`:
   * another process has begun the run and does that.
   */
  beginRun(options?: { join?: boolean }): Promise<boolean>;
  endRun(): Promise<void>;
  /** Whether a process has that right now; null where the store cannot tell. */
  isBeingRun(): Promise<boolean | null>;

  /**
   * Further rows of a table that is still being read, those with an answer of another job completed by it. Rows that are
   * there already stay as they are.
   */
  append(
    rows: readonly NewItem[],
    answers: readonly { rowIndex: number; answer: StoredAnswer }[],
  ): Promise<void>;
  /** The table has been read to its end. */
  finishReading(headers: readonly string[], totalRows: number): Promise<void>;

  /**
   * Up to `limit` rows that are due, in the table's order, marked as running. None unless the job is running; no more than
   * the budget has room for that the job's settings name.
   */
  claim(limit: number): Promise<Claim[]>;
  /** No row that is to be worked on is left, here or elsewhere. */
  isDone(): Promise<boolean>;
  /** When the next row falls due that waits for its back-off; null when none does. */
  nextDueAtMs(): Promise<number | null>;

  /** The report: first one wins. The row as it stands now; null when the attempt no longer holds it. */
  complete(claim: Claim, report: Report): Promise<ItemRecord | null>;
  /** The row has failed for good. The row as it stands now; null when the attempt no longer holds it. */
  fail(claim: Claim, failure: AttemptFailure): Promise<ItemRecord | null>;
  /** The attempt has failed; the row is tried again, not before `delayMs` from now. */
  retry(claim: Claim, failure: AttemptFailure, delayMs: number): Promise<boolean>;
  /** The attempt came to nothing through no fault of its own, and does not count. */
  release(claim: Claim, usage: TokenUsage, transcript?: string): Promise<boolean>;

  /** What all attempts have cost together; null where one process alone works on the job and knows it. */
  spending(): Promise<Spending | null>;

  /** Guarded: false when the job is in none of `from`. */
  setStatus(to: JobStatus, from: readonly JobStatus[], error?: string | null): Promise<boolean>;
  setOptions(options: { settings: JobSettings; outputPath: string }): Promise<void>;
  /** Makes failed rows pending again; tells how many. */
  retryFailed(filter: {
    errorClasses?: readonly ErrorClass[] | undefined;
    itemIds?: readonly string[] | undefined;
  }): Promise<number>;

  /** Rows in the table's order, as far as the row limit goes. */
  items(filter?: { statuses?: readonly ItemStatus[] }): AsyncIterable<ItemRecord>;
  item(itemId: string): Promise<ItemRecord | null>;
  /** All attempts at a row, the first one first. */
  attempts(itemId: string): Promise<AttemptRecord[]>;
  /** Rows that wait for their first attempt and have a question, in the table's order, behind the given row. */
  unasked(afterRow: number, limit: number): Promise<UnaskedRow[]>;
  /** Completes rows that nobody was asked about with answers of other jobs; tells how many. */
  adopt(answers: readonly { rowIndex: number; answer: StoredAnswer }[]): Promise<number>;
  /** Rows that were settled since then, by this process or another; the same one may be told twice. */
  settledSince(sinceMs: number): Promise<ItemRecord[]>;
}
