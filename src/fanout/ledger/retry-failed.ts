import type { JobLedger } from "./job-ledger.ts";

/**
 * Makes failed rows pending again, and a job that had ended resumable. Returns the number of rows; no model is called
 * here.
 */
export async function askAgain(
  ledger: JobLedger,
  filter: Parameters<JobLedger["retryFailed"]>[0],
): Promise<number> {
  const rows = await ledger.retryFailed(filter);
  if (rows > 0) {
    const reason = `${rows} failed rows are to be asked again`;
    await ledger.setStatus("paused", ["completed", "completed_with_errors", "failed", "cancelled"], reason);
  }
  return rows;
}
