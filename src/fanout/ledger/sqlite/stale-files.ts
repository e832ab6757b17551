import { readdir, readFile, rm, stat } from "node:fs/promises";
import path from "node:path";
import { processExists } from "../process-exists.ts";
import { takeLock } from "./sqlite-database.ts";

/** Younger directories are not removed, because a job that is just being created has no ledger to lock yet. */
const MIN_LEFTOVER_AGE_MS = 60_000;

/**
 * Removes files of dead processes from the jobs directory: incomplete jobs, and copies of standard input. Returns their
 * number.
 */
export async function removeStaleFiles(home: string, ledgerFile: string, nowMs: number): Promise<number> {
  let removed = 0;
  const entries = await readdir(home, { withFileTypes: true }).catch(() => []);
  for (const entry of entries.filter(({ name }) => name.endsWith(".partial"))) {
    const target = path.join(home, entry.name);
    const isInUse = entry.isDirectory() ? await isWriterActive(target, ledgerFile, nowMs) : isOwnerAlive(entry.name);
    if (isInUse) continue;
    await rm(target, { recursive: true, force: true });
    removed++;
  }
  return removed;
}

/** Removes the keys of a job, so that the same command no longer resumes it. */
export async function removeKeysOf(keysDirectory: string, jobId: string): Promise<void> {
  for (const name of await readdir(keysDirectory).catch(() => [])) {
    if (name.endsWith(".lock")) continue;
    const file = path.join(keysDirectory, name);
    const id = await readFile(file, "utf8").catch(() => "");
    if (id.trim() === jobId) await rm(file, { force: true });
  }
}

/** Reports whether a process creates the job. The writer keeps one transaction open from the first row to the last. */
async function isWriterActive(directory: string, ledgerFile: string, nowMs: number): Promise<boolean> {
  const found = await stat(directory).catch(() => null);
  if (!found || nowMs - found.mtimeMs < MIN_LEFTOVER_AGE_MS) return true;
  const ledger = path.join(directory, ledgerFile);
  if (!(await stat(ledger).catch(() => null))) return false;
  try {
    const lock = takeLock(ledger);
    lock?.close();
    return lock === null;
  } catch {
    // Not a database, so no process writes it.
    return false;
  }
}

/** Reports whether the process in the name `stdin-PID-RANDOM.partial` exists. */
function isOwnerAlive(name: string): boolean {
  const [, digits] = /^stdin-(\d+)(?:-[0-9a-f-]+)?\.partial$/.exec(name) ?? [];
  const pid = Number(digits);
  return digits === undefined || !Number.isSafeInteger(pid) || processExists(pid);
}
