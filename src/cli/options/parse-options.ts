import { type ParseArgsConfig, parseArgs } from "node:util";
import { hasErrorCode } from "../../base/error-code.ts";
import { editDistance } from "../../base/text/edit-distance.ts";
import { UsageError } from "../usage-error.ts";

/** `parseArgs` of node:util, with a suggestion in the error for an unknown option. */
export function parseOptions<T extends ParseArgsConfig>(config: T): ReturnType<typeof parseArgs<T>> {
  try {
    return parseArgs(config);
  } catch (error) {
    throw withSuggestion(error, Object.keys(config.options ?? {}));
  }
}

function withSuggestion(error: unknown, names: readonly string[]): unknown {
  if (!(error instanceof Error) || !hasErrorCode(error, "ERR_PARSE_ARGS_UNKNOWN_OPTION")) return error;
  const [, option] = /'(--?[^']*)'/.exec(error.message) ?? [];
  if (option === undefined) return error;
  const suggestion = option.startsWith("--") ? closestMatch(option.slice(2), names) : null;
  return new UsageError(
    `unknown option \`${option}\`${suggestion === null ? "" : `; did you mean \`--${suggestion}\`?`}`,
  );
}

/** Parses one of several words. Returns undefined if the option is absent. */
export function parseChoice<T extends string>(
  name: string,
  value: string | undefined,
  choices: readonly T[],
): T | undefined {
  if (value === undefined) return undefined;
  const choice = choices.find((candidate) => candidate === value);
  if (choice === undefined) throw new UsageError(`unknown --${name} \`${value}\`; expected ${choices.join(", ")}`);
  return choice;
}

/** Returns the candidate closest to a mistyped word, or null. */
export function closestMatch(typed: string, words: readonly string[]): string | null {
  const [best] = words
    .map((word) => ({ word, distance: word.startsWith(typed) ? 1 : editDistance(typed, word) }))
    .sort((a, b) => a.distance - b.distance);
  // More than a third of wrong letters is another word, not a typing error.
  return best && best.distance <= Math.max(1, Math.floor(typed.length / 3)) ? best.word : null;
}

/** Returns the flag of a secret file, keyed by its path; empty without a path. */
export function secretFlag(path: string | undefined, flag: string): Record<string, string> {
  return path === undefined ? {} : { [path]: flag };
}
