import { type ParseArgsConfig, parseArgs } from "node:util";
import { getErrorCode } from "../../base/error-code.ts";
import { editDistance } from "../../base/text/edit-distance.ts";
import { UsageError } from "../usage-error.ts";

/** `parseArgs` of node:util, with one line per error, and a suggestion for an unknown option. */
export function parseOptions<T extends ParseArgsConfig>(config: T): ReturnType<typeof parseArgs<T>> {
  try {
    return parseArgs(config);
  } catch (error) {
    if (!getErrorCode(error)?.startsWith("ERR_PARSE_ARGS_")) throw error;
    // The error names the unknown option only in its text, so the words are checked again.
    const lenient = { ...config, strict: false, allowPositionals: true, allowNegative: false, tokens: true };
    for (const token of parseArgs<ParseArgsConfig>(lenient).tokens ?? []) {
      const mistake = findMistake(token, config);
      if (mistake !== null) throw new UsageError(mistake);
    }
    throw error;
  }
}

type Token = NonNullable<ReturnType<typeof parseArgs>["tokens"]>[number];

function findMistake(token: Token, { options = {}, allowPositionals, allowNegative }: ParseArgsConfig): string | null {
  if (token.kind === "option-terminator") return null;
  if (token.kind === "positional") return allowPositionals ? null : `unexpected argument \`${token.value}\``;
  const { rawName, value } = token;
  const isNegative = allowNegative && !Object.hasOwn(options, token.name) && token.name.startsWith("no-");
  const name = isNegative ? token.name.slice("no-".length) : token.name;
  const option = Object.hasOwn(options, name) ? options[name] : undefined;
  if (!option || (isNegative && option.type !== "boolean")) {
    const suggestion = rawName.startsWith("--") ? closestMatch(rawName.slice(2), Object.keys(options)) : null;
    return `unknown option \`${rawName}\`${suggestion === null ? "" : `; did you mean \`--${suggestion}\`?`}`;
  }
  const label = option.short === undefined ? `--${name}` : `-${option.short}, --${name}`;
  if (option.type === "boolean") return value === undefined ? null : `\`${label}\` takes no value`;
  if (value === undefined) return `\`${label}\` requires a value`;
  if (token.inlineValue || value === "-" || !value.startsWith("-")) return null;
  return `\`${rawName}\` requires a value; write \`--${name}=VALUE\` if the value starts with a dash`;
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
