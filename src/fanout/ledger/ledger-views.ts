import type { TokenUsage } from "../../agent/token-usage.ts";
import type { ErrorClass, ItemRecord, ItemStatus } from "../job.ts";

/** Which rows a person wants to see. Absent members do not filter. */
export interface RowFilter {
  statuses?: readonly ItemStatus[] | undefined;
  /** Only failed rows have one. */
  errorClasses?: readonly ErrorClass[] | undefined;
  /** Text contained in the row's id, cells, result or error, ignoring case. */
  text?: string | undefined;
}

export interface RowPage {
  /** Number of rows that match the filter, over all pages. */
  total: number;
  items: ItemRecord[];
}

/** Failed rows of one class, and what they have used. */
export interface FailureGroup {
  errorClass: ErrorClass;
  rows: number;
  usage: TokenUsage;
}

/** Rows settled within one span of time. */
export interface SettledSpan {
  /** When it begins. */
  atMs: number;
  completed: number;
  failed: number;
}

export interface Waits {
  /** Rows whose next attempt waits for its back-off now. */
  backingOff: number;
  /** Attempts that ended because of the API's rate limit. */
  refusedForRate: number;
}

/**
 * What a person wants to see of a job of any size: the database does the counting, and only the rows that are
 * shown are read. Like everything else, up to the row limit.
 */
export interface LedgerViews {
  /** Rows in the table's order. */
  page(filter: RowFilter, offset: number, limit: number): Promise<RowPage>;
  /** The commonest class first. */
  failures(): Promise<FailureGroup[]>;
  /** Only spans in which a row was settled, oldest first. */
  settled(sinceMs: number, spanMs: number): Promise<SettledSpan[]>;
  waits(nowMs: number): Promise<Waits>;
}
