import { type ParseArgsConfig, parseArgs } from "node:util";
import { hasErrorCode } from "../../base/error-code.ts";
import { errorMessage } from "../../base/error-message.ts";
import { editDistance } from "../../base/text/edit-distance.ts";
import { UsageError } from "../usage-error.ts";

/** `parseArgs` of node:util, with one line per error, and a suggestion for an unknown option. */
export function parseOptions<T extends ParseArgsConfig>(config: T): ReturnType<typeof parseArgs<T>> {
  try {
    return parseArgs(config);
  } catch (error) {
    throw toUsageError(error, config.options ?? {});
  }
}

function toUsageError(error: unknown, options: NonNullable<ParseArgsConfig["options"]>): unknown {
  const message = errorMessage(error);
  const [, word] = /'([^']*?)(?: <value>)?'/.exec(message) ?? [];
  if (word === undefined) return error;
  if (hasErrorCode(error, "ERR_PARSE_ARGS_UNEXPECTED_POSITIONAL"))
    return new UsageError(`unexpected argument \`${word}\``);
  if (hasErrorCode(error, "ERR_PARSE_ARGS_INVALID_OPTION_VALUE")) {
    const [, name = ""] = /--(.*)$/.exec(word) ?? [];
    if (options[name]?.type === "boolean") return new UsageError(`\`${word}\` takes no value`);
    const [, long] = /'(--[^'=]*)=-XYZ'/.exec(message) ?? [];
    const remedy = long === undefined ? "" : `; write \`${long}=VALUE\` if the value starts with a dash`;
    return new UsageError(`\`${word}\` requires a value${remedy}`);
  }
  if (!hasErrorCode(error, "ERR_PARSE_ARGS_UNKNOWN_OPTION")) return error;
  const suggestion = word.startsWith("--") ? closestMatch(word.slice(2), Object.keys(options)) : null;
  return new UsageError(
    `unknown option \`${word}\`${suggestion === null ? "" : `; did you mean \`--${suggestion}\`?`}`,
  );
}

/** Returns the error of a missing or unknown subcommand. */
export function subcommandError(typed: string | undefined, names: readonly string[]): UsageError {
  const all = [names.slice(0, -1).join(", "), names.at(-1)].filter((part) => part !== "").join(" or ");
  if (typed === undefined) return new UsageError(`give a subcommand: ${all}`);
  const suggestion = closestMatch(typed, names);
  const remedy = suggestion === null ? `expected ${all}` : `did you mean \`${suggestion}\`?`;
  return new UsageError(`unknown subcommand \`${typed}\`; ${remedy}`);
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
