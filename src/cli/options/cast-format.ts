import type { CastVersion } from "../../client/recording/asciicast.ts";
import type { HelpRow } from "../help/help-page.ts";
import { parseChoice } from "./parse-options.ts";

export const CAST_FORMAT_ROW: HelpRow = [
  "--format FORMAT",
  "asciicast-v2 for asciinema 2, or asciicast-v3 (default: asciicast-v3)",
];

const VERSIONS = { "asciicast-v2": 2, "asciicast-v3": 3, v2: 2, v3: 3 } as const;

/** Returns the version of `--format`; undefined without the option. */
export function parseCastFormat(text: string | undefined): CastVersion | undefined {
  const format = parseChoice("format", text, Object.keys(VERSIONS) as (keyof typeof VERSIONS)[]);
  return format && VERSIONS[format];
}
