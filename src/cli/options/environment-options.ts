import type { SecretFilterOptions } from "../../exec/backend/secret-filter.ts";
import type { PartialValues } from "../command.ts";
import type { HelpRow } from "../help/help-page.ts";

/** Options of commands whose processes inherit the environment of the host. */
export const ENVIRONMENT_OPTIONS = {
  "inherit-env": { type: "string", multiple: true },
  verbose: { type: "boolean" },
} as const;

/** Help of `ENVIRONMENT_OPTIONS`. */
export const ENVIRONMENT_ROWS: readonly HelpRow[] = [
  ["--inherit-env NAME", "pass on a variable that looks like a secret; repeatable"],
  ["--verbose", "print the names of variables that were removed as secrets"],
];

type EnvironmentValues = PartialValues<typeof ENVIRONMENT_OPTIONS>;

/** Names in the summary of removed variables. */
const SHOWN_NAMES = 3;

/**
 * Returns the filter that removes secrets. It reports the removed variables with `--verbose`. With `isSummarized` it also prints
 * a summary without `--verbose`: a user who runs one command may miss a variable, a user of an agent expects the removal.
 */
export function secretFilterFromFlags(
  command: string,
  values: EnvironmentValues,
  { isSummarized = false } = {},
): SecretFilterOptions {
  const inherit = values["inherit-env"] ?? [];
  if (!values.verbose) return isSummarized ? { inherit, onDropped: (names) => summarize(command, names) } : { inherit };
  return {
    inherit,
    onDropped: (names) =>
      process.stderr.write(
        `procwire ${command}: removed from the environment as secrets: ${names.join(", ")}; --inherit-env NAME passes one on\n`,
      ),
  };
}

function summarize(command: string, names: readonly string[]): void {
  const shown = [...names.slice(0, SHOWN_NAMES), ...(names.length > SHOWN_NAMES ? ["…"] : [])].join(", ");
  const what = names.length === 1 ? "1 variable that looks" : `${names.length} variables that look`;
  const list = names.length > SHOWN_NAMES ? "--verbose lists them, " : "";
  process.stderr.write(
    `procwire ${command}: left out ${what} secret (${shown}); ${list}--inherit-env NAME passes one on\n`,
  );
}
