import type { ParseArgsConfig, parseArgs } from "node:util";
import { parseOptions } from "./options/parse-options.ts";
import { UsageError } from "./usage-error.ts";

export { UsageError } from "./usage-error.ts";

/** A command of the CLI. `main.ts` has its name and summary. */
export interface Command {
  /** Takes the arguments after the command's name; resolves with the exit code. */
  run(argv: string[]): Promise<number>;
}

export interface CommandDefinition<O extends OptionTable> {
  /** The whole text of `--help`. */
  readonly help: string;
  readonly options: O;
  /** Whether the command accepts positional arguments. Default: true. */
  readonly takesArguments?: boolean;
  run(values: OptionValues<O>, positionals: string[]): Promise<number>;
}

export type OptionTable = NonNullable<ParseArgsConfig["options"]>;
export type OptionValues<O extends OptionTable> = ReturnType<
  typeof parseArgs<{ args: string[]; options: O; allowPositionals: boolean }>
>["values"];
/** Option values; each of them may be absent. */
export type PartialValues<O extends OptionTable> = {
  [K in keyof OptionValues<O>]?: OptionValues<O>[K] | undefined;
};

const HELP_OPTION = { help: { type: "boolean", short: "h" } } as const;

/** Defines a command from its options and its help text. */
export function defineCommand<const O extends OptionTable>(definition: CommandDefinition<O>): Command {
  const { help, options, takesArguments = true } = definition;
  return {
    async run(args) {
      const all = { ...options, ...HELP_OPTION };
      const { values, positionals } = parseOptions({ args, options: all, allowPositionals: takesArguments });
      if ("help" in values && values.help) {
        process.stdout.write(help);
        return 0;
      }
      // `values` also has `help`, which the type of the command's own options lacks.
      return definition.run(values as OptionValues<O>, positionals);
    },
  };
}

/** Defines a command that parses its own arguments. `parse` returns null to print the help. */
export function defineParsedCommand<T>(definition: {
  help(): string;
  parse(argv: string[]): T | null;
  run(options: T): Promise<number>;
}): Command {
  return {
    async run(argv) {
      const options = definition.parse(argv);
      if (options !== null) return definition.run(options);
      process.stdout.write(definition.help());
      return 0;
    },
  };
}

/** Returns the single positional argument; `name` is its name in the help. */
export function singleArgument(positionals: readonly string[], name: string): string {
  const [only, ...more] = positionals;
  if (only === undefined || more.length > 0) throw new UsageError(`give one ${name}`);
  return only;
}
