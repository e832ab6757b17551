import type { TokenUsage } from "../../agent/token-usage.ts";
import type { ErrorClass, ItemRecord, ItemStatus } from "../job.ts";

/** Filter of rows. Absent members do not filter. */
export interface RowFilter {
  statuses?: readonly ItemStatus[] | undefined;
  /** Error classes; only failed rows have one. */
  errorClasses?: readonly ErrorClass[] | undefined;
  /** Text in the id, cells, result or error of a row, ignoring case. */
  text?: string | undefined;
}

export interface LedgerRowPage {
  /** Number of matching rows on all pages. */
  total: number;
  items: ItemRecord[];
}

/** Failed rows of one class and their usage. */
export interface FailureGroup {
  errorClass: ErrorClass;
  rows: number;
  usage: TokenUsage;
}

/** Rows finished within one interval. */
export interface FinishedPerInterval {
  /** Start of the interval. */
  atMs: number;
  completed: number;
  failed: number;
}

export interface WaitCounts {
  /** Rows in backoff. */
  backingOff: number;
  /** Attempts that the API's rate limit ended. */
  refusedForRate: number;
}

/**
 * Views of a job for users, for any number of rows: the database counts, and only the rows of a page are read. All
 * views respect the row limit.
 */
export interface LedgerViews {
  /** Returns a page of rows, in table order. */
  page(filter: RowFilter, offset: number, limit: number): Promise<LedgerRowPage>;
  /** Returns failures by class, the most frequent class first. */
  failures(): Promise<FailureGroup[]>;
  /** Returns the intervals in which rows finished, oldest first. */
  finishedPerInterval(sinceMs: number, spanMs: number): Promise<FinishedPerInterval[]>;
  waits(nowMs: number): Promise<WaitCounts>;
}
