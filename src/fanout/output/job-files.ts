import path from "node:path";
import type { JobRecord } from "../job.ts";
import type { JobLedger } from "../ledger/job-ledger.ts";
import { type ExportOptions, exportErrors, exportResults } from "./export-results.ts";

/**
 * Writes the results, and the failures when there are any; returns the path of the failures. The ledger keeps everything if
 * the files cannot be written.
 */
export async function writeJobFiles(
  ledger: JobLedger,
  job: JobRecord,
  folder: string,
  options: ExportOptions | undefined,
): Promise<string | null> {
  const errorsPath = path.join(folder, "errors.csv");
  await exportResults(ledger, job, job.outputPath, options);
  return (await exportErrors(ledger, job, errorsPath)) > 0 ? errorsPath : null;
}
