import type { SecretFilterOptions } from "../../exec/backend/secret-filter.ts";
import type { PartialValues } from "../command.ts";

/** Options of commands whose processes inherit the environment of the host. */
export const ENVIRONMENT_OPTIONS = {
  "inherit-env": { type: "string", multiple: true },
  verbose: { type: "boolean" },
} as const;

type EnvironmentValues = PartialValues<typeof ENVIRONMENT_OPTIONS>;

/** Returns the filter that removes secrets. Reports removed variables with `--verbose` only, because removal is normal. */
export function secretFilterFromFlags(command: string, values: EnvironmentValues): SecretFilterOptions {
  const inherit = values["inherit-env"] ?? [];
  if (!values.verbose) return { inherit };
  return {
    inherit,
    onDropped: (names) =>
      process.stderr.write(
        `procwire ${command}: removed from the environment as secrets: ${names.join(", ")}; --inherit-env NAME passes one on\n`,
      ),
  };
}
