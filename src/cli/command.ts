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
