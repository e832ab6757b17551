import { readFile } from "node:fs/promises";
import path from "node:path";
import { nullIfMissing } from "../../base/error-code.ts";
import type { OutputDirectory } from "../../files/output-directory.ts";
import type { JobLedger } from "../ledger/job-ledger.ts";

/** File in the job's directory on this host with the output path of the last run on this host. */
const OUTPUT_PATH_FILE = "output-path";

/** Records the output path of a run, so that later commands on this host may write to it. */
export async function recordOutputPath(directory: OutputDirectory, outputPath: string): Promise<void> {
  await directory.replace(OUTPUT_PATH_FILE, outputPath);
}

/**
 * Returns the output path that the ledger stores. Other users can write to a shared database, so its path must equal
 * the path of the last run on this host. Rejects otherwise.
 */
export async function readStoredOutputPath(ledger: JobLedger, jobsHome: string): Promise<string> {
  const { id, outputPath } = await ledger.job();
  if (!ledger.shared) return outputPath;
  const recorded = await readFile(path.join(jobsHome, id, OUTPUT_PATH_FILE), "utf8").catch(nullIfMissing);
  if (recorded === outputPath) return outputPath;
  throw new Error(
    `write job ${id.slice(0, 8)}: the database stores the output path \`${outputPath}\`, which no run on this host chose; name a file with --output`,
  );
}
