import path from "node:path";

/** The directory next to a table that contains jobs; see `jobsDirectory`. */
const OWN_DIRECTORY = ".procwire";
/** Directory levels between the ledger file and the parent of OWN_DIRECTORY: job, jobs, OWN_DIRECTORY. */
const LEVELS = 3;

/**
 * Converts a path for storage. Paths below the parent of OWN_DIRECTORY are stored relative to it, so that the user can
 * move that directory. Other paths, and paths of a ledger elsewhere, stay unchanged.
 */
export function toStoredPath(ledgerFile: string, file: string): string {
  const base = baseOf(ledgerFile);
  if (base === null || !path.isAbsolute(file)) return file;
  const relative = path.relative(base, file);
  return relative === "" || relative.startsWith("..") || path.isAbsolute(relative) ? file : relative;
}

export function fromStoredPath(ledgerFile: string, stored: string): string {
  const base = baseOf(ledgerFile);
  return base === null || path.isAbsolute(stored) || stored === STDOUT ? stored : path.join(base, stored);
}

/** Results go to standard output. */
const STDOUT = "-";

function baseOf(ledgerFile: string): string | null {
  const directory = path.resolve(path.dirname(ledgerFile), ...Array<string>(LEVELS - 1).fill(".."));
  return path.basename(directory) === OWN_DIRECTORY ? path.dirname(directory) : null;
}
