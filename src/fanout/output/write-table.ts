import { type DirectoryJudge, OutputFile } from "../../files/output-file.ts";
import { csvLine, type LineOptions } from "./csv-line.ts";

export interface WriteTableOptions extends LineOptions {
  /** Formats a record. Default: CSV. */
  line?: ((cells: readonly string[]) => string) | undefined;
  /** Whether to write a header line. Default: true. */
  header?: boolean;
}

/** Path that means standard output. */
export const STDOUT = "-";

/** Opens a path for a table and creates its directories; `-` is standard output. */
export async function openOutput(file: string, judgeDirectory?: DirectoryJudge): Promise<OutputFile> {
  return file === STDOUT ? OutputFile.stdout() : OutputFile.open(file, { makeParents: true, judgeDirectory });
}

/** Writes a table atomically. Returns its number of rows. */
export async function writeTable(
  file: OutputFile,
  columns: readonly string[],
  options: WriteTableOptions,
  rows: AsyncIterable<string[]>,
): Promise<number> {
  const line = options.line ?? ((cells: readonly string[]) => csvLine(cells, options));
  let count = 0;
  const lines = async function* () {
    if (options.header ?? true) yield line(columns);
    for await (const row of rows) {
      count++;
      yield line(row);
    }
  };
  await file.write(lines());
  return count;
}
