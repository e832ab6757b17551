import { type ParseArgsConfig, parseArgs } from "node:util";
import { hasErrorCode } from "../../base/error-code.ts";
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

/** Number of letters to add, remove, change or swap with the next one (Damerau-Levenshtein). */
function editDistance(from: string, to: string): number {
  const rows = [Array.from({ length: to.length + 1 }, (_, at) => at)];
  const at = (row: number, column: number) => rows[row]?.[column] ?? Number.POSITIVE_INFINITY;
  for (let row = 1; row <= from.length; row++) {
    rows.push([row]);
    for (let column = 1; column <= to.length; column++) {
      const same = from[row - 1] === to[column - 1] ? 0 : 1;
      const isSwapped = from[row - 1] === to[column - 2] && from[row - 2] === to[column - 1];
      rows[row]?.push(
        Math.min(
          at(row - 1, column) + 1,
          at(row, column - 1) + 1,
          at(row - 1, column - 1) + same,
          isSwapped ? at(row - 2, column - 2) + 1 : Number.POSITIVE_INFINITY,
        ),
      );
    }
  }
  return at(from.length, to.length);
}
