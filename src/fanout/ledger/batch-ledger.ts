import type { TokenUsage } from "../../agent/token-usage.ts";
import type { ItemRecord } from "../job.ts";
import type { AttemptFailure, Report } from "./job-ledger.ts";

/** Rows that are submitted to the provider together. Its state is the last step known to be done; the next may be done too. */
export interface BatchPart {
  id: string;
  state: BatchPartState;
  rows: number;
  /** Rows that the provider had finished when it was last polled. */
  answered: number;
  fileId: string | null;
  batchId: string | null;
  /** How often it was submitted: a provider may have no capacity for it yet. */
  tries: number;
  /** We asked the provider to cancel it. */
  cancelAsked: boolean;
  /** Why it failed, or answered fewer than all its rows. */
  error: string | null;
  createdAtMs: number;
}

export type BatchPartState =
  /** The rows belong to the part; the file may be uploading. */
  | "assigned"
  /** The file is uploaded; the batch may have been created. */
  | "uploaded"
  /** The provider works on it; some answers may have been settled. */
  | "created"
  /** Every row of it is settled, or is left to single calls. */
  | "done";

/** What the ledger keeps about batches. A row that is in a part is pending and cannot be claimed. */
export interface BatchLedger {
  /** Takes the right to submit parts and settle their answers, until the ledger is closed; false: another process has it. */
  lead(): Promise<boolean>;
  /** Oldest first. */
  parts(): Promise<BatchPart[]>;
  /** Rows to be worked on that had no attempt and were never in a part, in the table's order. */
  fresh(afterRow: number, limit: number): Promise<ItemRecord[]>;
  /** Makes a part of these rows; returns how many it got. */
  assign(partId: string, rowIndexes: readonly number[]): Promise<number>;
  /** Leaves a fresh row to single calls. */
  askSingly(rowIndex: number): Promise<void>;
  /** Rows that are in the part, in the table's order. */
  rows(partId: string): AsyncIterable<ItemRecord>;
  /** A row that is in the part; null when it no longer is. */
  row(partId: string, rowIndex: number): Promise<ItemRecord | null>;
  update(partId: string, change: BatchPartChange): Promise<void>;
  /** Null when the row is no longer in the part. */
  complete(partId: string, rowIndex: number, report: Report): Promise<ItemRecord | null>;
  /** The answer was not a report: the attempt counts, and the row is left to single calls. */
  giveBack(partId: string, rowIndex: number, failure: AttemptFailure): Promise<boolean>;
  /** The row got no answer: only its cost counts, and it is left to single calls. */
  release(partId: string, rowIndex: number, usage: TokenUsage): Promise<boolean>;
  /** Ends the part; rows that are still in it are left to single calls. */
  finish(partId: string, error: string | null): Promise<void>;
}

export type BatchPartChange = Partial<
  Pick<BatchPart, "state" | "answered" | "fileId" | "batchId" | "tries" | "cancelAsked" | "error">
>;
