import { readdir, readFile, rm, stat } from "node:fs/promises";
import path from "node:path";
import { takeLock } from "./sqlite-database.ts";

/** A job that is just being created has no ledger that could be locked yet, so younger folders are left alone. */
const YOUNGEST_LEFTOVER_MS = 60_000;

/**
 * Removes what dead processes left in the folder of jobs: jobs that were not completely created, and tables from
 * standard input. Returns how many there were.
 */
export async function removeLeftovers(home: string, ledgerFile: string, nowMs: number): Promise<number> {
  let removed = 0;
  const entries = await readdir(home, { withFileTypes: true }).catch(() => []);
  for (const entry of entries.filter(({ name }) => name.endsWith(".partial"))) {
    const target = path.join(home, entry.name);
    const isInUse = entry.isDirectory()
      ? await isBeingWritten(target, ledgerFile, nowMs)
      : isOfLivingProcess(entry.name);
    if (isInUse) continue;
    await rm(target, { recursive: true, force: true });
    removed++;
  }
  return removed;
}

/** Removes the keys that name a job; the same command can no longer resume it. */
export async function removeKeysOf(keysFolder: string, jobId: string): Promise<void> {
  for (const name of await readdir(keysFolder).catch(() => [])) {
    if (name.endsWith(".lock")) continue;
    const file = path.join(keysFolder, name);
    const id = await readFile(file, "utf8").catch(() => "");
    if (id.trim() === jobId) await rm(file, { force: true });
  }
}

/** Its writer keeps one transaction open from the first row to the last. */
async function isBeingWritten(folder: string, ledgerFile: string, nowMs: number): Promise<boolean> {
  const found = await stat(folder).catch(() => null);
  if (!found || nowMs - found.mtimeMs < YOUNGEST_LEFTOVER_MS) return true;
  const ledger = path.join(folder, ledgerFile);
  if (!(await stat(ledger).catch(() => null))) return false;
  try {
    const lock = takeLock(ledger);
    lock?.close();
    return lock === null;
  } catch {
    // It is not a database, so no process writes it.
    return false;
  }
}

/** `stdin-PID.partial`. */
function isOfLivingProcess(name: string): boolean {
  const pid = Number(/^stdin-(\d+)\.partial$/.exec(name)?.[1] ?? Number.NaN);
  if (!Number.isSafeInteger(pid)) return true;
  try {
    process.kill(pid, 0);
    return true;
  } catch {
    return false;
  }
}
