import type { ParseArgsOptionsConfig } from "node:util";

/**
 * Finds where the options of `procwire run` end: at `--`, or at the first argument that is neither an option nor its value.
 * All arguments after it belong to the command.
 */
export function splitOptionsAndCommand(
  args: readonly string[],
  options: ParseArgsOptionsConfig,
): { ownArgs: string[]; command: string[] } {
  let at = 0;
  while (at < args.length) {
    const arg = args[at] ?? "";
    if (arg === "--") return { ownArgs: args.slice(0, at), command: args.slice(at + 1) };
    if (!arg.startsWith("-") || arg === "-") break;
    at += takesNextArgument(arg, options) ? 2 : 1;
  }
  return { ownArgs: args.slice(0, at), command: args.slice(at) };
}

/** Reports whether the next argument is the value of this option. */
export function takesNextArgument(arg: string, options: ParseArgsOptionsConfig): boolean {
  if (arg.startsWith("--")) return !arg.includes("=") && options[arg.slice(2)]?.type === "string";
  const letters = arg.slice(1);
  const shorts = new Map(Object.values(options).map(({ short, type }) => [short, type]));
  const valued = [...letters].findIndex((letter) => shorts.get(letter) === "string");
  // Short options can be combined. The rest of the argument is the value of the first option that takes one.
  return valued >= 0 && valued === letters.length - 1;
}
