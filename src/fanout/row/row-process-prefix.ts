import { rowNumber } from "../job.ts";

/** Returns the prefix of process ids of a row agent. It identifies the processes in a server's list. */
export function rowProcessPrefix(jobId: string, rowIndex: number): string {
  return `row-${jobId.slice(0, 8)}-${rowNumber(rowIndex)}-`;
}
