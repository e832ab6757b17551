/**
 * cli/: one file a command. A command turns its arguments into a call and the outcome into an exit code; what it does
 * lives elsewhere.
 */
export interface Command {
  readonly name: string;
  /** One line for the list of commands. */
  readonly summary: string;
  /** Takes the arguments after the command's name; resolves with the exit code. */
  run(argv: string[]): Promise<number>;
}

/** Bad arguments: told in one line, with the way to the command's help, exit code 2. */
export class UsageError extends Error {
  override readonly name = "UsageError";
}
