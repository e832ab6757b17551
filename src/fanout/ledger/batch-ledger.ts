import type { TokenUsage } from "../../agent/usage.ts";
import type { ItemRecord } from "../job.ts";
import type { AttemptFailure, Report } from "./job-ledger.ts";

/** Rows that are handed to the provider together. Its state is what has surely been done; the next step may have been. */
export interface BatchPart {
  id: string;
  state: BatchPartState;
  rows: number;
  /** Rows the provider said it was done with, when it was last asked. */
  answered: number;
  fileId: string | null;
  batchId: string | null;
  /** How often it was handed in: a provider may have no room for it yet. */
  tries: number;
  /** We asked the provider to cancel it. */
  cancelAsked: boolean;
  /** Why it came to nothing, or to less than all its rows. */
  error: string | null;
  createdAtMs: number;
}

export type BatchPartState =
  /** The rows are its own; the file may be on its way. */
  | "assigned"
  /** The file is there; the batch may have been made. */
  | "uploaded"
  /** The provider works on it; answers may have been taken. */
  | "created"
  /** Every row of it is settled, or is left to single calls. */
  | "done";

/** What the ledger keeps about batches. A row that is in a part is pending, and nobody claims it. */
export interface BatchLedger {
  /** The right to hand in parts and to take their answers, until the ledger is closed; false: another process has it. */
  lead(): Promise<boolean>;
  /** The first one first. */
  parts(): Promise<BatchPart[]>;
  /** Rows that are to be worked on and were never asked about nor put into a part, in the table's order. */
  fresh(afterRow: number, limit: number): Promise<ItemRecord[]>;
  /** Makes a part of these rows; tells how many it has got. */
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
  /** The answer was no report: the attempt counts, and the row is left to single calls. */
  giveBack(partId: string, rowIndex: number, failure: AttemptFailure): Promise<boolean>;
  /** The row got no answer: nothing counts but what it has cost, and it is left to single calls. */
  release(partId: string, rowIndex: number, usage: TokenUsage): Promise<boolean>;
  /** The part is done with; rows that are still in it are left to single calls. */
  finish(partId: string, error: string | null): Promise<void>;
}

export type BatchPartChange = Partial<
  Pick<BatchPart, "state" | "answered" | "fileId" | "batchId" | "tries" | "cancelAsked" | "error">
>;
