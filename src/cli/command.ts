import type { ParseArgsConfig, parseArgs } from "node:util";
import { type HelpPage, renderHelp } from "./help/help-page.ts";
import type { CommandWords } from "./help/summaries.ts";
import { parseOptions, subcommandError } from "./options/parse-options.ts";
import type { Candidate, CompletedWords } from "./support/candidates.ts";
import { UsageError } from "./usage-error.ts";

export { UsageError } from "./usage-error.ts";

/** A command of the CLI, or a subcommand. `summaries.ts` has its summary. */
export interface Command {
  readonly name: CommandWords;
  readonly help: HelpPage;
  /** All options that the command accepts, except `--help`. */
  readonly options: OptionTable;
  /** Loads the subcommands, by name. */
  readonly subcommands?: Readonly<Record<string, () => Promise<Command>>>;
  /** Returns candidates for the argument after these words, for shell completion. */
  readonly complete?: ((words: CompletedWords) => Promise<Candidate[]>) | undefined;
  /** Returns candidates for the value of an option such as `--attach`, for shell completion. */
  readonly completeValue?: ((option: string, words: CompletedWords) => Promise<Candidate[]>) | undefined;
  /** Takes the arguments after the command's name; resolves with the exit code. */
  run(argv: string[]): Promise<number>;
}

export interface CommandDefinition<O extends OptionTable> {
  readonly options: O;
  /** Whether the command accepts positional arguments. Default: true. */
  readonly takesArguments?: boolean;
  readonly complete?: Command["complete"];
  readonly completeValue?: Command["completeValue"];
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

/** Defines a command from its options and its help page. */
export function defineCommand<const O extends OptionTable>(
  name: CommandWords,
  help: HelpPage,
  definition: CommandDefinition<O>,
): Command {
  const { options, takesArguments = true, complete, completeValue } = definition;
  return {
    name,
    help,
    options,
    complete,
    completeValue,
    async run(args) {
      const all = { ...options, ...HELP_OPTION };
      const { values, positionals } = parseOptions({ args, options: all, allowPositionals: takesArguments });
      if ("help" in values && values.help) return printHelp(name, help);
      // `values` also has `help`, which the type of the command's own options lacks.
      return definition.run(values as OptionValues<O>, positionals);
    },
  };
}

/** Defines a command that parses its own arguments. `parse` returns null to print the help. */
export function defineParsedCommand<T>(
  name: CommandWords,
  help: HelpPage,
  definition: Omit<Command, "name" | "help" | "run"> & {
    parse(argv: string[]): T | null;
    run(options: T): Promise<number>;
  },
): Command {
  const { parse, run, ...rest } = definition;
  return {
    ...rest,
    name,
    help,
    async run(argv) {
      const options = parse(argv);
      return options === null ? printHelp(name, help) : run(options);
    },
  };
}

/** Defines a command that consists of subcommands. */
export function defineSubcommands(name: CommandWords, help: HelpPage, commands: Record<string, Command>): Command {
  return {
    name,
    help,
    options: {},
    subcommands: Object.fromEntries(Object.entries(commands).map(([verb, command]) => [verb, async () => command])),
    async run([verb, ...rest]) {
      if (verb === "--help" || verb === "-h") return printHelp(name, help);
      const command = verb !== undefined && Object.hasOwn(commands, verb) ? commands[verb] : undefined;
      if (!command) throw subcommandError(verb, Object.keys(commands));
      return command.run(rest);
    },
  };
}

/** Prints a help page. Returns the exit code 0. */
export function printHelp(name: CommandWords, help: HelpPage): number {
  process.stdout.write(renderHelp(name, help));
  return 0;
}

/** Returns the single positional argument; `name` is its name in the help. */
export function singleArgument(positionals: readonly string[], name: string): string {
  const [only, ...more] = positionals;
  if (only === undefined || more.length > 0) throw new UsageError(`give one ${name}`);
  return only;
}
