import type { SecretFilterOptions } from "../../exec/backend/secret-filter.ts";

/** The options of every command that gives programs the host's environment. */
export const ENVIRONMENT_OPTIONS = {
  "inherit-env": { type: "string", multiple: true },
  verbose: { type: "boolean" },
} as const;

export interface EnvironmentValues {
  "inherit-env"?: string[] | undefined;
  verbose?: boolean | undefined;
}

/** Leaving a variable out is normal, so it is reported only with --verbose. */
export function secretFilterFromFlags(command: string, values: EnvironmentValues): SecretFilterOptions {
  const inherit = values["inherit-env"] ?? [];
  if (!values.verbose) return { inherit };
  return {
    inherit,
    onDropped: (names) =>
      process.stderr.write(
        `procwire ${command}: left out of the environment as secrets: ${names.join(", ")}; --inherit-env NAME passes one on\n`,
      ),
  };
}
