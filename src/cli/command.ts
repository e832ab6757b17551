import type { ParseArgsConfig, parseArgs } from "node:util";
import { parseOptions } from "./options/parse-options.ts";
import { UsageError } from "./usage-error.ts";

export { UsageError } from "./usage-error.ts";

export interface Command {
  readonly name: string;
  /** One line for the list of commands. */
  readonly summary: string;
  /** Takes the arguments after the command's name; resolves with the exit code. */
  run(argv: string[]): Promise<number>;
}

interface CommandDefinition<O extends Options> {
  readonly name: string;
  readonly summary: string;
  /** The whole text of `--help`. */
  readonly help: string;
  readonly options: O;
  /** Whether the command accepts positional arguments. Default: true. */
  readonly takesArguments?: boolean;
  run(values: Values<O>, words: string[]): Promise<number>;
}

type Options = NonNullable<ParseArgsConfig["options"]>;
type Values<O extends Options> = ReturnType<
  typeof parseArgs<{ args: string[]; options: O; allowPositionals: boolean }>
>["values"];

const HELP_OPTION = { help: { type: "boolean", short: "h" } } as const;

/** A command whose arguments are options and words, and which answers `--help`. */
export function defineCommand<const O extends Options>(spoken: CommandDefinition<O>): Command {
  const { name, summary, help, options, takesArguments = true } = spoken;
  return {
    name,
    summary,
    async run(args) {
      const all = { ...options, ...HELP_OPTION };
      const { values, positionals } = parseOptions({ args, options: all, allowPositionals: takesArguments });
      if ("help" in values && values.help) {
        process.stdout.write(help);
        return 0;
      }
      // The options of every command and `help` were parsed; the type is that of the command's own.
      return spoken.run(values as Values<O>, positionals);
    },
  };
}

/** Defines a command that parses its own arguments. `parse` returns null to print the help. */
export function defineParsedCommand<T>(spoken: {
  readonly name: string;
  readonly summary: string;
  help(): string;
  parse(argv: string[]): T | null;
  run(options: T): Promise<number>;
}): Command {
  return {
    name: spoken.name,
    summary: spoken.summary,
    async run(argv) {
      const options = spoken.parse(argv);
      if (options !== null) return spoken.run(options);
      process.stdout.write(spoken.help());
      return 0;
    },
  };
}

/** Returns the single positional argument; `name` is its name in the help. */
export function singleArgument(words: readonly string[], name: string): string {
  const [word, ...more] = words;
  if (word === undefined || more.length > 0) throw new UsageError(`give one ${name}`);
  return word;
}
