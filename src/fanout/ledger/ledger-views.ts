import type { TokenUsage } from "../../agent/usage.ts";
import type { ErrorClass, ItemRecord, ItemStatus } from "../job.ts";

/** Which rows a person wants to see. What is not given does not matter. */
export interface RowFilter {
  statuses?: readonly ItemStatus[] | undefined;
  /** Only failed rows have one. */
  errorClasses?: readonly ErrorClass[] | undefined;
  /** Stands in the row's id, cells, result or error, whatever the case of its letters. */
  text?: string | undefined;
}

export interface RowPage {
  /** Rows that the filter lets through, on this page and the others. */
  total: number;
  items: ItemRecord[];
}

/** Failed rows of one class, and what they have used. */
export interface FailureGroup {
  errorClass: ErrorClass;
  rows: number;
  usage: TokenUsage;
}

/** Rows that were settled within one span of time. */
export interface SettledSpan {
  /** When it begins. */
  atMs: number;
  completed: number;
  failed: number;
}

export interface Waits {
  /** Rows whose next attempt is put off now. */
  backingOff: number;
  /** Attempts that ended because the API refused the rate. */
  refusedForRate: number;
}

/**
 * What a person who looks at a job wants to know, however large it is: the database counts, and only the rows that are
 * shown are read. Like all else, as far as the row limit goes.
 */
export interface LedgerViews {
  /** Rows in the table's order. */
  page(filter: RowFilter, offset: number, limit: number): Promise<RowPage>;
  /** The commonest class first. */
  failures(): Promise<FailureGroup[]>;
  /** Only spans in which a row was settled, the first one first. */
  settled(sinceMs: number, spanMs: number): Promise<SettledSpan[]>;
  waits(nowMs: number): Promise<Waits>;
}
