import type { TokenUsage } from "../../agent/token-usage.ts";
import type { UsageTotals } from "../cost/job-budget.ts";
import type {
  AttemptRecord,
  ErrorClass,
  ItemRecord,
  ItemStatus,
  JobCounts,
  JobRecord,
  JobStatus,
  JobStop,
  NewItem,
  NewJob,
  StoredAnswer,
} from "../job.ts";
import type { JobSettings } from "../job-settings.ts";
import type { BatchLedger } from "./batch-ledger.ts";
import type { LedgerViews } from "./ledger-views.ts";

export interface JobStore extends AsyncDisposable {
  /**
   * Runs a task while no other process runs one for the same key, so that two equal commands find or create one job. A
   * task that an outage of the ledger interrupted runs again, even if it has created the job.
   */
  withKey<T>(key: string, signal: AbortSignal, task: () => Promise<T>): Promise<T>;
  /** Returns the current job of a key, or null. `--fresh` makes a new job the current one. */
  find(key: string): Promise<JobRecord | null>;
  /**
   * Creates a job, or none if reading a row fails. `table` is called after the last row. `appendRows` adds the rest of
   * a table that is still being read.
   */
  create(job: NewJob, rows: AsyncIterable<NewItem>, table: () => TableState): Promise<JobRecord>;
  /** Returns all readable jobs, newest first. */
  list(): Promise<JobRecord[]>;
  /** Returns the unreadable jobs, and why. */
  unreadable(): Promise<UnreadableJob[]>;
  /**
   * Deletes a job with all its data, by id or id prefix, even if the job is unreadable. Returns its id, or null if
   * there is none. Rejects while a process works on the job.
   */
  remove(idOrPrefix: string): Promise<string | null>;
  /** Removes files of dead processes that belong to no job. Returns their number. */
  removeStaleFiles(): Promise<number>;
  /** Opens a job by id or id prefix. Returns null if there is none; rejects if the prefix is ambiguous. */
  open(idOrPrefix: string): Promise<JobLedger | null>;
  /** Returns the answers of all other jobs. */
  answersFromOtherJobs(jobId: string): Promise<AnswerSource>;
}

/** State of a table after some rows were read. */
export interface TableState {
  headers: readonly string[];
  isReading: boolean;
}

export interface UnreadableJob {
  id: string;
  reason: string;
}

/** Answers of several jobs, open for many lookups. */
export interface AnswerSource extends AsyncDisposable {
  /** Returns all answers to these questions; those of the newest job first. */
  find(questions: readonly string[]): Promise<StoredAnswer[]>;
}

/** The answer of another job for a row of this one. */
export interface ReusedAnswer {
  rowIndex: number;
  answer: StoredAnswer;
}

/** A row without any attempt. */
export interface UnattemptedRow {
  rowIndex: number;
  question: string;
}

/** One attempt, held by the process that leased the row. */
export interface ItemLease {
  item: ItemRecord;
  /** Only the token of the newest attempt can finish the row. */
  leaseToken: string;
}

/** The report of an attempt. `result` is JSON text, serialized once and not parsed again. */
export interface Report {
  result: string;
  usage: TokenUsage;
  /** Whether the report also cancels the job. */
  stop: boolean;
  /** Transcript as JSON; undefined if it is empty. */
  transcript?: string | undefined;
}

export interface AttemptFailure {
  errorClass: ErrorClass;
  message: string;
  usage: TokenUsage;
  transcript?: string | undefined;
}

export interface AcquireRunOptions {
  /** Whether another process began the run and recovers the rows of dead processes. Default: false. */
  join?: boolean;
  /** Output path that the user of this process chose. The outcome spool may write to its directory. */
  outputPath?: string;
}

export interface JobLedger extends AsyncDisposable {
  readonly jobId: string;
  /** Whether other processes may finish rows, which only `finishedSince` shows. */
  readonly shared: boolean;
  readonly batches: BatchLedger;
  readonly views: LedgerViews;
  job(): Promise<JobRecord>;
  counts(): Promise<JobCounts>;

  /**
   * Acquires the right to execute rows. Returns false if the store supports one process per job and another one has the
   * right. Rows that a dead process left running become pending again; their attempts do not count. Call it before the
   * first command runs, because it opens the directories of the outcome spool.
   */
  acquireRun(options?: AcquireRunOptions): Promise<boolean>;
  releaseRun(): Promise<void>;
  /** Reports whether a process has the right to execute rows; null if the store does not know. */
  isRunHeld(): Promise<boolean | null>;

  /**
   * Adds rows of a table that is still being read. Rows with a reused answer are completed. Existing rows stay
   * unchanged.
   */
  appendRows(rows: readonly NewItem[], answers: readonly ReusedAnswer[]): Promise<void>;
  /** Records that the table was read completely. */
  finishReading(headers: readonly string[], totalRows: number): Promise<void>;

  /**
   * Leases up to `limit` due rows in table order and marks them as running. Returns none unless the job is running, and
   * no more than the budget in the settings allows.
   */
  lease(limit: number): Promise<ItemLease[]>;
  /** Reports whether no row is left to execute, in any process. */
  isDone(): Promise<boolean>;
  /** Returns the time at which the next row in backoff is due, or null if there is none. */
  nextDueAtMs(): Promise<number | null>;

  /** Completes the row; the first report wins. Returns the row, or null if the attempt no longer holds it. */
  complete(lease: ItemLease, report: Report): Promise<ItemRecord | null>;
  /** Fails the row. Returns the row, or null if the attempt no longer holds it. */
  fail(lease: ItemLease, failure: AttemptFailure): Promise<ItemRecord | null>;
  /** Makes the row pending after a failed attempt; the next one starts after `delayMs` at the earliest. */
  retry(lease: ItemLease, failure: AttemptFailure, delayMs: number): Promise<boolean>;
  /** Makes the row pending without counting the attempt, because the row did not cause its end. */
  release(lease: ItemLease, usage: TokenUsage, transcript?: string): Promise<boolean>;

  /** Returns the usage of all attempts; null if a single process works on the job and counts its own usage. */
  spending(): Promise<UsageTotals | null>;

  /** Sets the status if the current one is in `from`. Returns false otherwise. */
  setStatus(to: JobStatus, from: readonly JobStatus[], stop?: JobStop | null): Promise<boolean>;
  setOptions(options: { settings: JobSettings; outputPath: string }): Promise<void>;
  /** Makes failed rows pending again. Returns their number. */
  retryFailed(filter: {
    errorClasses?: readonly ErrorClass[] | undefined;
    itemIds?: readonly string[] | undefined;
  }): Promise<number>;

  /** Yields rows in table order, up to the row limit. */
  items(filter?: { statuses?: readonly ItemStatus[] }): AsyncIterable<ItemRecord>;
  item(itemId: string): Promise<ItemRecord | null>;
  /** Returns all attempts at a row, oldest first. */
  attempts(itemId: string): Promise<AttemptRecord[]>;
  /** Returns rows after `afterRow` that have a question and no attempt, in table order. */
  unattempted(afterRow: number, limit: number): Promise<UnattemptedRow[]>;
  /** Completes rows without an attempt with reused answers. Returns their number. */
  completeWithReused(answers: readonly ReusedAnswer[]): Promise<number>;
  /**
   * Yields rows that any process finished since a time, in that order. The rows are read in pages, because a resumed
   * job may have all its rows finished.
   */
  finishedSince(sinceMs: number): AsyncIterable<ItemRecord>;
}
