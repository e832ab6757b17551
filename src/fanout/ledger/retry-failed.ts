import { otherStop } from "../job.ts";
import type { JobLedger } from "./job-ledger.ts";

/** Makes failed rows pending again, and an ended job resumable. Returns the number of rows. Calls no model. */
export async function retryFailedItems(
  ledger: JobLedger,
  filter: Parameters<JobLedger["retryFailed"]>[0],
): Promise<number> {
  const rows = await ledger.retryFailed(filter);
  if (rows > 0) {
    const stop = otherStop(`${rows} failed rows are pending again`);
    await ledger.setStatus("paused", ["completed", "completed_with_errors", "failed", "cancelled"], stop);
  }
  return rows;
}
