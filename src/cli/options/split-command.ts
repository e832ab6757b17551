import type { ParseArgsOptionsConfig } from "node:util";

/**
 * Finds where the options of `procwire run` end: at `--`, or at the first argument that is neither an option nor its value.
 * All arguments after it belong to the command.
 */
export function splitOptionsAndCommand(
  args: readonly string[],
  options: ParseArgsOptionsConfig,
): { own: string[]; words: string[] } {
  let at = 0;
  while (at < args.length) {
    const arg = args[at] ?? "";
    if (arg === "--") return { own: args.slice(0, at), words: args.slice(at + 1) };
    if (!arg.startsWith("-") || arg === "-") break;
    at += takesValue(arg, options) ? 2 : 1;
  }
  return { own: args.slice(0, at), words: args.slice(at) };
}

/** Whether the value of an option is the word behind it. */
function takesValue(arg: string, options: ParseArgsOptionsConfig): boolean {
  if (arg.startsWith("--")) return !arg.includes("=") && options[arg.slice(2)]?.type === "string";
  const letters = arg.slice(1);
  const shorts = new Map(Object.values(options).map(({ short, type }) => [short, type]));
  const valued = [...letters].findIndex((letter) => shorts.get(letter) === "string");
  // Several letters in one; the value of the first that has one may stand right behind it.
  return valued >= 0 && valued === letters.length - 1;
}
