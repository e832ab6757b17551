import path from "node:path";

/** The folder beside a table in which jobs are kept; see `jobsHome`. */
const OWN_FOLDER = ".procwire";
/** Folders between a ledger's file and the one that holds OWN_FOLDER: that itself, the jobs, the job. */
const LEVELS = 3;

/**
 * Paths within the folder that holds a ledger, which its user may move with the ledger in it: the ledger stores them relative
 * to that folder. Other paths, and those of a ledger that is kept elsewhere, stay as they are.
 */
export function storedPath(ledgerFile: string, file: string): string {
  const base = baseOf(ledgerFile);
  if (base === null || !path.isAbsolute(file)) return file;
  const relative = path.relative(base, file);
  return relative === "" || relative.startsWith("..") || path.isAbsolute(relative) ? file : relative;
}

export function readPath(ledgerFile: string, stored: string): string {
  const base = baseOf(ledgerFile);
  return base === null || path.isAbsolute(stored) || stored === STDOUT ? stored : path.join(base, stored);
}

/** No file: the results go to standard output. */
const STDOUT = "-";

function baseOf(ledgerFile: string): string | null {
  const folder = path.resolve(path.dirname(ledgerFile), ...Array<string>(LEVELS - 1).fill(".."));
  return path.basename(folder) === OWN_FOLDER ? path.dirname(folder) : null;
}
