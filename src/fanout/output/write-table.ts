import { constants } from "node:fs";
import { lstat, mkdir, open, readlink, rename, rm, stat } from "node:fs/promises";
import path from "node:path";
import { csvLine } from "./csv-line.ts";

/** Returns why a folder, given by its real path, may not be written to; null when it may. */
export type FolderJudge = (realFolder: string) => Promise<string | null>;

export interface WriteTableOptions {
  escapeFormulas?: boolean;
  judgeFolder?: FolderJudge | undefined;
  /** How a record is written; default: as CSV. */
  line?: ((cells: readonly string[]) => string) | undefined;
  /** Whether a header line comes first; default: yes. */
  header?: boolean;
}

/** In place of a file: standard output. */
export const STDOUT = "-";

/** Text is written in chunks of about this size. */
const WRITE_CHARS = 64 * 1024;

/** Writes a table atomically: the file appears whole or not at all. Returns its number of rows. */
export async function writeTable(
  file: string,
  columns: readonly string[],
  options: WriteTableOptions,
  rows: AsyncIterable<string[]>,
): Promise<number> {
  const line = options.line ?? ((cells: readonly string[]) => csvLine(cells, options));
  const beginning = (options.header ?? true) ? line(columns) : "";
  if (file === STDOUT) return writeRows(appendToStdout, beginning, line, rows);
  await using place = options.judgeFolder
    ? await judgedPlace(path.resolve(file), options.judgeFolder)
    : await anyPlace(path.resolve(file));
  try {
    const count = await writeFile(place, beginning, line, rows);
    if (!place.inPlace) await rename(place.temporary, place.target);
    return count;
  } catch (error) {
    if (!place.inPlace) await rm(place.temporary, { force: true });
    throw error;
  }
}

async function writeRows(
  append: (text: string) => Promise<unknown>,
  beginning: string,
  line: (cells: readonly string[]) => string,
  rows: AsyncIterable<string[]>,
): Promise<number> {
  let count = 0;
  let text = beginning;
  for await (const row of rows) {
    count++;
    text += line(row);
    if (text.length < WRITE_CHARS) continue;
    await append(text);
    text = "";
  }
  await append(text);
  return count;
}

async function writeFile(
  place: Place,
  beginning: string,
  line: (cells: readonly string[]) => string,
  rows: AsyncIterable<string[]>,
): Promise<number> {
  await using out = await open(place.temporary, "w");
  const count = await writeRows((text) => out.appendFile(text), beginning, line, rows);
  // Flush to disk before it replaces the old file; a pipe or a device cannot be flushed.
  if (!place.inPlace) await out.sync();
  return count;
}

function appendToStdout(text: string): Promise<void> {
  return new Promise((resolve, reject) => {
    process.stdout.write(text, (error) => (error ? reject(error) : resolve()));
  });
}

interface Place extends AsyncDisposable {
  target: string;
  /** Written first, then renamed to the target. */
  temporary: string;
  /** A pipe or a device cannot be replaced, only written to. */
  inPlace: boolean;
}

async function anyPlace(target: string): Promise<Place> {
  const folder = path.dirname(target);
  await mkdir(folder, { recursive: true });
  const existing = await stat(target).catch(() => null);
  const inPlace = existing !== null && !existing.isFile();
  return {
    target,
    temporary: inPlace ? target : path.join(folder, temporaryName(target)),
    inPlace,
    [Symbol.asyncDispose]: async () => undefined,
  };
}

/**
 * The folder is opened, judged by its real path, and then used through its descriptor: swapping it for a link
 * meanwhile has no effect. A target that is itself a link is replaced, never followed.
 */
async function judgedPlace(target: string, judge: FolderJudge): Promise<Place> {
  const handle = await open(path.dirname(target), constants.O_RDONLY | constants.O_DIRECTORY);
  try {
    const folder = `/proc/self/fd/${handle.fd}`;
    const refusal = await judge(await readlink(folder));
    if (refusal !== null) throw new Error(`${target} may not be written: ${refusal}`);
    const name = path.basename(target);
    const existing = await lstat(path.join(folder, name)).catch(() => null);
    if (existing !== null && !existing.isFile() && !existing.isSymbolicLink()) {
      throw new Error(`${target} may not be written: it is not a regular file`);
    }
    return {
      target: path.join(folder, name),
      temporary: path.join(folder, temporaryName(target)),
      inPlace: false,
      [Symbol.asyncDispose]: () => handle.close(),
    };
  } catch (error) {
    await handle.close();
    throw error;
  }
}

function temporaryName(target: string): string {
  return `.${path.basename(target)}.${process.pid}.tmp`;
}
