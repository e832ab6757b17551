import { mkdirSync, statSync } from "node:fs";
import path from "node:path";
import { STDOUT } from "../../../fanout/output/write-table.ts";
import { UsageError } from "../../usage-error.ts";

/** Options of commands that write a file which the user names. */
export const OUTPUT_OPTIONS = { output: { type: "string" }, mkdir: { type: "boolean" } } as const;

/** Endings of table files, as `exportResults` writes them. */
export const TABLE_ENDINGS: readonly string[] = [".csv", ".tsv", ".tab", ".jsonl", ".ndjson"];

/**
 * Returns the absolute path of `--output`, or `-` for standard output. Throws if the ending is unknown or the directory is
 * missing; with `--mkdir` it creates the directory. A file without an ending is allowed.
 */
export function parseOutputPath(
  { output, mkdir = false }: { output?: string | undefined; mkdir?: boolean | undefined },
  endings: readonly string[] = TABLE_ENDINGS,
): string | undefined {
  if (output === undefined && mkdir) throw new UsageError("--mkdir requires --output FILE");
  if (output === undefined || output === STDOUT) return output;
  const file = path.resolve(output);
  const ending = path.extname(file).toLowerCase();
  if (ending !== "" && !endings.includes(ending) && !isSpecial(file))
    throw new UsageError(`--output ${output}: cannot write \`${ending}\` files; expected ${formatEndings(endings)}`);
  const directory = path.dirname(file);
  if (mkdir) mkdirSync(directory, { recursive: true });
  else if (!statSync(directory, { throwIfNoEntry: false })?.isDirectory())
    throw new UsageError(`--output ${output}: no such directory: ${directory}; --mkdir creates it`);
  return file;
}

/** Reports whether the path is a device, a pipe or a descriptor, whose name has no meaning. */
function isSpecial(file: string): boolean {
  const found = statSync(file, { throwIfNoEntry: false });
  return found !== undefined && !found.isFile();
}

function formatEndings(endings: readonly string[]): string {
  return endings.length === 1 ? `${endings[0]}` : `${endings.slice(0, -1).join(", ")} or ${endings.at(-1)}`;
}
