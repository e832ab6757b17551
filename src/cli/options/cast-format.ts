import type { CastVersion } from "../../client/recording/asciicast.ts";
import { OutputFile } from "../../files/output-file.ts";
import type { HelpRow } from "../help/help-page.ts";
import { parseChoice } from "./parse-options.ts";

/** Options of the commands that write an asciicast. */
export const CAST_OPTIONS = { format: { type: "string" }, force: { type: "boolean" } } as const;
export const CAST_ROWS: readonly HelpRow[] = [
  ["--force", "overwrite FILE if it exists"],
  ["--format FORMAT", "asciicast-v2 for asciinema 2, or asciicast-v3 (default: asciicast-v3)"],
];

const VERSIONS = { "asciicast-v2": 2, "asciicast-v3": 3, v2: 2, v3: 3 } as const;

/** Returns the version of `--format`; undefined without the option. */
export function parseCastFormat(text: string | undefined): CastVersion | undefined {
  const format = parseChoice("format", text, Object.keys(VERSIONS) as (keyof typeof VERSIONS)[]);
  return format && VERSIONS[format];
}

/** Opens FILE before the command runs. Throws if the file exists and `force` is not set. */
export async function openCastFile(command: string, file: string, force = false): Promise<OutputFile> {
  const output = await OutputFile.open(file);
  if (force || !output.wouldReplace) return output;
  await output[Symbol.asyncDispose]();
  throw new Error(`${command} ${file}: the file exists; --force overwrites it`);
}
