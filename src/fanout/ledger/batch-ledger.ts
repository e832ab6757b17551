import type { TokenUsage } from "../../agent/token-usage.ts";
import type { ItemRecord } from "../job.ts";
import type { AttemptFailure, Report } from "./job-ledger.ts";

/**
 * Rows that are submitted to the provider together. `state` is the last recorded step. The next step may be done too,
 * without being recorded.
 */
export interface BatchGroup {
  id: string;
  state: BatchGroupState;
  rows: number;
  /** Rows that the provider had processed at the last poll. */
  answered: number;
  fileId: string | null;
  batchId: string | null;
  /** Whether the file and its batch may belong to another client. Their results prove it; until then, they are not cancelled. */
  isAssumed: boolean;
  /** Number of submissions; a provider may reject a batch for lack of capacity. */
  tries: number;
  /** Whether a cancellation was requested from the provider. */
  cancelRequested: boolean;
  /** Why the batch failed or has fewer answers than rows. */
  error: string | null;
  createdAtMs: number;
}

export type BatchGroupState =
  /** Rows are assigned; the file may be uploading. */
  | "assigned"
  /** The file is uploaded; the batch may have been created. */
  | "uploaded"
  /** The provider processes the batch; some rows may be finished. */
  | "created"
  /** Every row is finished or left to single calls. */
  | "done";

/** The batch groups of a job. A row in a batch group is pending and cannot be leased. */
export interface BatchLedger {
  /**
   * Acquires the right to submit batch groups and apply their results, until the ledger is closed or its connection is
   * lost. Returns false if another process has it. Call it before each step; it returns true at once while the right
   * lasts.
   */
  acquireLeadership(): Promise<boolean>;
  /** Returns all batch groups, oldest first. */
  groups(): Promise<BatchGroup[]>;
  /** Returns selected rows without an attempt that were never in a batch group, in table order. */
  newRows(afterRow: number, limit: number): Promise<ItemRecord[]>;
  /** Creates a batch group of these rows. Returns the number of rows assigned. */
  assign(groupId: string, rowIndexes: readonly number[]): Promise<number>;
  /** Leaves a new row to single calls. */
  moveToSingleCalls(rowIndex: number): Promise<void>;
  /** Yields the rows in the batch group, in table order. */
  rows(groupId: string): AsyncIterable<ItemRecord>;
  /** Returns a row in the batch group, or null if the row is no longer in it. */
  row(groupId: string, rowIndex: number): Promise<ItemRecord | null>;
  update(groupId: string, change: BatchGroupChange): Promise<void>;
  /** Completes a row. Returns null if the row is no longer in the batch group. */
  complete(groupId: string, rowIndex: number, report: Report): Promise<ItemRecord | null>;
  /** Leaves a row without a valid report to single calls. The attempt counts. */
  requeue(groupId: string, rowIndex: number, failure: AttemptFailure): Promise<boolean>;
  /** Leaves a row without an answer to single calls. Only its usage counts. */
  release(groupId: string, rowIndex: number, usage: TokenUsage): Promise<boolean>;
  /** Ends the batch group. Its remaining rows are left to single calls. */
  finish(groupId: string, error: string | null): Promise<void>;
}

export type BatchGroupChange = Partial<
  Pick<BatchGroup, "state" | "answered" | "fileId" | "batchId" | "isAssumed" | "tries" | "cancelRequested" | "error">
>;
